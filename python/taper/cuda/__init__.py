"""Taper computes on the CPU. Programs that ask whether there is a GPU are told so and go on."""
import contextlib as _contextlib
from .. import _C
from .._absent import AbsentDevice as _Absent, absent_class as _absent_class
from . import amp  # noqa: F401

_WHY = "there is no CUDA device; Taper computes on the CPU"
_Absent("CUDA", _WHY).names(globals())


class Stream(_C._StreamBase if hasattr(_C, "_StreamBase") else object):
    """A queue of work on a GPU: there is none to make one on."""

    def __init__(self, *args, **kwargs):
        raise AssertionError(f"torch.cuda.{type(self).__name__}: {_WHY}. Ask torch.cuda.is_available() first.")


class ExternalStream(Stream):
    """A stream that other code made."""


class Event:
    """A mark in a stream: there is no stream."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False):
        raise AssertionError(f"torch.cuda.Event: {_WHY}. Ask torch.cuda.is_available() first.")


CUDAGraph = _absent_class(__name__, "CUDAGraph", _WHY)
MemPool = _absent_class(__name__, "MemPool", _WHY)
CudaError = type("CudaError", (RuntimeError,), {"__module__": __name__})
from .._settings import OutOfMemoryError  # noqa: E402,F401
for _n in ("FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "IntTensor", "ShortTensor", "CharTensor", "ByteTensor", "BoolTensor"):
    globals()[_n] = _absent_class(__name__, _n, _WHY)
has_half = has_magma = False
default_generators = ()


class device(_contextlib.AbstractContextManager):
    """with torch.cuda.device(None or -1): nothing happens; any other device is not there."""

    def __init__(self, device):
        self.device = device

    def __enter__(self):
        if self.device not in (None, -1) and getattr(self.device, "type", "cuda") == "cuda":
            raise AssertionError(f"torch.cuda.device({self.device!r}): {_WHY}.")

    def __exit__(self, *exc):
        return False


device_of = device


class StreamContext(_contextlib.AbstractContextManager):
    def __init__(self, stream):
        self.stream = stream

    def __exit__(self, *exc):
        return False


def stream(stream):
    """with torch.cuda.stream(None): nothing happens."""
    return StreamContext(stream)


def graph(*args, **kwargs):
    raise AssertionError(f"torch.cuda.graph: {_WHY}.")


make_graphed_callables = graph_pool_handle = graph


def is_bf16_supported(including_emulation=True):
    return False


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
