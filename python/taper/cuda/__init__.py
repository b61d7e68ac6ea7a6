"""NVIDIA GPUs through their driver, which is loaded when it is first asked for. Without one everything but the questions fails with
the reason."""
from .. import _C
from .._absent import AbsentDevice as _Absent, absent_class as _absent_class
from .._settings import OutOfMemoryError  # noqa: F401
from . import amp  # noqa: F401

_WHY = "Taper has no such thing for CUDA"


class NoDeviceError(AssertionError, RuntimeError):
    """There is no CUDA device, and why. Both of what PyTorch raises."""


_used = False


def _index(device=None):
    """The number of a device: None, a number, "cuda:1" or a taper.device. -1: the current one."""
    if device is None:
        return -1
    if isinstance(device, int):
        return device
    d = _C.device(device)
    if d.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {d}")
    return -1 if d.index is None else d.index


def init():
    """Loads the driver."""
    global _used
    why = _C._cuda_why()
    if why is not None:
        raise NoDeviceError(f"there is no CUDA device. {why}")
    _used = True


def is_available():
    return _C._cuda_is_available()


def is_initialized():
    return _used


def is_bf16_supported(including_emulation=True):
    return is_available()


def device_count():
    return _C._cuda_device_count()


def current_device():
    init()
    return _C._cuda_current_device()


def set_device(device):
    init()
    i = _index(device)
    if i >= 0:
        _C._cuda_set_device(i)


class device:
    """The current device within a with block."""

    def __init__(self, device):
        self.idx = _index(device)

    def __enter__(self):
        self.before = current_device()
        if self.idx >= 0:
            _C._cuda_set_device(self.idx)
        return self

    def __exit__(self, *_):
        _C._cuda_set_device(self.before)
        return False


def synchronize(device=None):
    """Waits until the device has done what it was given."""
    init()
    _C._cuda_synchronize(_index(device))


def empty_cache():
    """Gives the memory that no tensor uses back to the driver."""
    _C._cuda_empty_cache()


def manual_seed(seed):
    """The device draws the CPU's numbers: taper.manual_seed seeds both."""
    from .. import manual_seed as seed_all
    seed_all(seed)


manual_seed_all = manual_seed


def memory_stats(device=None):
    s = _C._cuda_stats(_index(device))
    return {"allocated_bytes.all.current": s["allocated"], "allocated_bytes.all.peak": s["allocated_peak"],
            "reserved_bytes.all.current": s["reserved"], "reserved_bytes.all.peak": s["reserved_peak"],
            "inactive_split_bytes.all.current": s["inactive"], "allocation.all.allocated": s["requests"],
            "allocation.all.freed": s["frees"], "segment.all.current": s["segments"], "num_alloc_retries": s["retries"],
            "num_ooms": s["ooms"]}


def memory_allocated(device=None):
    return _C._cuda_stats(_index(device))["allocated"]


def max_memory_allocated(device=None):
    return _C._cuda_stats(_index(device))["allocated_peak"]


def memory_reserved(device=None):
    return _C._cuda_stats(_index(device))["reserved"]


def max_memory_reserved(device=None):
    return _C._cuda_stats(_index(device))["reserved_peak"]


def reset_peak_memory_stats(device=None):
    _C._cuda_reset_peaks(_index(device))


def mem_get_info(device=None):
    """(free, total) bytes of the device."""
    init()
    return _C._cuda_mem_get_info(_index(device))


class _Properties:
    def __init__(self, d):
        self.__dict__.update(d)

    def __repr__(self):
        return (f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
                f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count})")


def get_device_properties(device=None):
    init()
    return _Properties(_C._cuda_properties(_index(device)))


def get_device_name(device=None):
    return get_device_properties(device).name


def get_device_capability(device=None):
    p = get_device_properties(device)
    return p.major, p.minor


class Stream:
    """A queue of work. What is launched within `with taper.cuda.stream(s)` goes there."""

    def __init__(self, device=None, priority=0, _address=None):
        init()
        self._own = _address is None
        self.cuda_stream = _C._cuda_queue_new() if _address is None else _address

    def __del__(self):
        if getattr(self, "_own", False):
            _C._cuda_queue_free(self.cuda_stream)

    def synchronize(self):
        _C._cuda_queue_sync(self.cuda_stream)

    def record_event(self, event=None):
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event):
        _C._cuda_queue_wait(self.cuda_stream, event._address)

    def wait_stream(self, stream):
        self.wait_event(stream.record_event())

    def __eq__(self, other):
        return isinstance(other, Stream) and self.cuda_stream == other.cuda_stream

    def __hash__(self):
        return hash(self.cuda_stream)

    def __repr__(self):
        return f"<taper.cuda.Stream device=cuda:{current_device()} cuda_stream={self.cuda_stream:#x}>"


def current_stream(device=None):
    init()
    return Stream(_address=_C._cuda_queue_current() or 0)


def default_stream(device=None):
    init()
    return Stream(_address=0)


class stream:
    """Work within the block goes to this stream; None: nothing changes."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self.before = _C._cuda_queue_current() or 0
            _C._cuda_queue_set(self.stream.cuda_stream)
        return self.stream

    def __exit__(self, *_):
        if self.stream is not None:
            _C._cuda_queue_set(self.before)
        return False


class Event:
    """A mark in a stream, with the time at which it was reached."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        init()
        self._address = _C._cuda_event_new(bool(enable_timing))

    def __del__(self):
        if hasattr(self, "_address"):
            _C._cuda_event_free(self._address)

    def record(self, stream=None):
        at = stream.cuda_stream if stream is not None else _C._cuda_queue_current() or 0
        _C._cuda_event_record(self._address, at)

    def wait(self, stream=None):
        (stream or current_stream()).wait_event(self)

    def synchronize(self):
        _C._cuda_event_wait(self._address)

    def elapsed_time(self, end):
        """Milliseconds from this event to that one; both have been reached."""
        return _C._cuda_event_ms(self._address, end._address)


class ExternalStream(Stream):
    """A stream that other code made, by its address."""

    def __init__(self, stream_ptr, device=None):
        super().__init__(_address=stream_ptr)


StreamContext = stream
device_of = device


def set_stream(stream):
    """Work goes there from now on."""
    if stream is not None:
        _C._cuda_queue_set(stream.cuda_stream)


CUDAGraph = _absent_class(__name__, "CUDAGraph", _WHY)
MemPool = _absent_class(__name__, "MemPool", _WHY)
CudaError = type("CudaError", (RuntimeError,), {"__module__": __name__})
for _n in ("FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "IntTensor", "ShortTensor", "CharTensor", "ByteTensor", "BoolTensor"):
    globals()[_n] = _absent_class(__name__, _n, _WHY)
has_half = has_magma = False
default_generators = ()


def graph(*args, **kwargs):
    raise NotImplementedError(f"taper.cuda.graph: {_WHY}.")


make_graphed_callables = graph_pool_handle = graph


def is_tf32_supported():
    return False


def check_error(res):
    if res:
        raise CudaError(str(res))


def __getattr__(name):
    if name in ("random", "nvtx", "profiler", "graphs", "memory", "streams", "comm", "sparse"):
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_Absent("CUDA", "this is not supported").names(globals())
