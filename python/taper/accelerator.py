"""There is no accelerator: Taper computes on the CPU."""


def is_available():
    return False


def device_count():
    return 0


def current_accelerator(check_available=False):
    return None


def _none(name):
    def f(*args, **kwargs):
        raise RuntimeError("Cannot access accelerator device when none is available.")
    f.__name__ = name
    return f


for _n in ("current_device_index", "current_device_idx", "set_device_index", "set_device_idx", "current_stream", "set_stream", "synchronize", "device_index",
           "get_memory_info", "get_device_capability"):
    globals()[_n] = _none(_n)


def empty_cache():
    """There is none."""


def memory_stats(device_index=None):
    return {}


def memory_allocated(device_index=None):
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(device_index=None):
    """Nothing is counted."""


reset_accumulated_memory_stats = reset_peak_memory_stats
