"""Taper computes on the CPU. Programs that ask whether there is a GPU are told so and go on."""
from . import amp

__all__ = ["amp", "current_device", "device_count", "empty_cache", "is_available", "is_initialized", "manual_seed",
           "manual_seed_all", "synchronize"]


def is_available():
    return False


def is_initialized():
    return False


def is_bf16_supported(including_emulation=True):
    return False


def device_count():
    return 0


def empty_cache():
    """There is none."""


def manual_seed(seed):
    """There is no generator on a GPU to seed."""


def manual_seed_all(seed):
    """There is no generator on a GPU to seed."""


def memory_allocated(device=None):
    return 0


def max_memory_allocated(device=None):
    return 0


def memory_reserved(device=None):
    return 0


def reset_peak_memory_stats(device=None):
    """Nothing is counted."""


def _none(name):
    def f(*args, **kwargs):
        raise AssertionError(f"taper.cuda.{name}: there is no CUDA device; Taper computes on the CPU. Ask "
                             "taper.cuda.is_available() first.")
    f.__name__ = f.__qualname__ = name
    return f


for _n in ("current_device", "set_device", "synchronize", "get_device_name", "get_device_properties",
           "get_device_capability", "current_stream", "Stream", "Event", "mem_get_info", "init"):
    globals()[_n] = _none(_n)
del _n
