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


for _n in ("_cuda_is_available", "_cuda_device_count"):  # one answer for a process
    _C._capture_role(getattr(_C, _n), "native")


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

    def query(self):
        """Is all of its work done?"""
        return _C._cuda_queue_done(self.cuda_stream)

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

    def query(self):
        """Was it reached?"""
        return _C._cuda_event_done(self._address)

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


MemPool = _absent_class(__name__, "MemPool", _WHY)
CudaError = type("CudaError", (RuntimeError,), {"__module__": __name__})
for _n in ("FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "IntTensor", "ShortTensor", "CharTensor", "ByteTensor", "BoolTensor"):
    globals()[_n] = _absent_class(__name__, _n, _WHY)
has_half = has_magma = False
default_generators = ()


class _Pool:
    """A stream of its own: what is allocated while launches on it are recorded is given to nobody else."""

    def __init__(self):
        init()
        self.queue = _C._cuda_queue_new()
        _C._cuda_keep_queue(self.queue, True)

    def __del__(self):
        if hasattr(self, "queue"):
            _C._cuda_synchronize(-1)
            _C._cuda_keep_queue(self.queue, False)
            _C._cuda_queue_free(self.queue)


def graph_pool_handle():
    """Memory that several graphs may share, where they never run at the same time."""
    return _Pool()


class CUDAGraph:
    """Launches that were recorded and run as one. They read and write the tensors of the recording: fill inputs in place,
    replay(), read results before the next replay."""

    def __init__(self, keep_graph=False):
        self._graph = self._pool = None
        self._before = None

    def capture_begin(self, pool=None, capture_error_mode="global"):
        if self._graph is not None:
            raise RuntimeError("This CUDAGraph instance already owns a captured graph. Call reset() first.")
        self._pool = _Pool() if pool is None else pool
        _C._cuda_synchronize(-1)
        _C._cuda_record_begin(self._pool.queue)
        self._before = _C._cuda_queue_current() or 0
        _C._cuda_queue_set(self._pool.queue)

    def capture_end(self):
        if self._before is None:
            raise RuntimeError("capture_end() without capture_begin()")
        _C._cuda_queue_set(self._before)
        self._before = None
        self._graph = _C._cuda_record_end(self._pool.queue)

    def replay(self):
        if self._graph is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        _C._cuda_graph_launch(self._graph)

    def reset(self):
        if self._graph is not None:
            _C._cuda_synchronize(-1)
            _C._cuda_graph_free(self._graph)
        self._graph = self._pool = None

    def pool(self):
        return self._pool

    def __del__(self):
        if getattr(self, "_graph", None) is not None:
            self.reset()


class graph:
    """with taper.cuda.graph(g): what is launched inside is recorded into g instead of run."""

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        self.cuda_graph, self._shared = cuda_graph, pool

    def __enter__(self):
        self.cuda_graph.capture_begin(self._shared)

    def __exit__(self, kind, *_):
        try:
            self.cuda_graph.capture_end()
        except RuntimeError:
            if kind is None:  # else the first error is the one to see
                raise
        return False


def is_current_stream_capturing():
    return _C._cuda_recording()


def make_graphed_callables(*args, **kwargs):
    raise NotImplementedError('taper.cuda.make_graphed_callables is not supported: use taper.compile(f, mode="reduce-overhead"), or taper.cuda.graph.')


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
