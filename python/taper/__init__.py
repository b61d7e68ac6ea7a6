"""Taper: a tensor compiler you can debug."""
import importlib as _importlib
import sys as _sys
from . import _C
from ._C import *  # noqa: F401,F403  dtypes, Tensor, Size, device, Generator, tensor, ...

from .version import taper as __version__

globals().update(_C._op_functions.get("", {}))
_C._cuda_packages(":".join(p for p in _sys.path if isinstance(p, str) and p))  # cuDNN may lie beside other packages

from ._settings import *  # noqa: E402,F401,F403
from ._settings import _prefix as _prefix  # noqa: E402
from ._checks import *  # noqa: E402,F401,F403
from . import _tensor as _tensor  # noqa: E402
from . import _C_names as _C_names  # noqa: E402
from ._tensor import (BFloat16Tensor, BoolTensor, ByteTensor, CharTensor, DoubleTensor, FloatTensor,  # noqa: E402,F401
                      HalfTensor, IntTensor, LongTensor, ShortTensor)
from . import functional as functional  # noqa: E402
from .functional import *  # noqa: E402,F401,F403
from ._foreach import *  # noqa: E402,F401,F403
from . import autograd  # noqa: E402
from .autograd import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: E402,F401
from ._higher_order_ops import cond, scan, while_loop  # noqa: E402,F401

# Submodules are loaded when first named, so that `import taper` stays fast.
_SUBMODULES = {"nn", "optim", "autograd", "fx", "linalg", "special", "signal", "masked", "random", "testing", "utils", "safetensors",
               "ops", "compiler", "library", "amp", "overrides", "jit", "cpu", "cuda", "backends", "export",
               "_dynamo", "_logging", "_inductor", "_functorch", "_higher_order_ops", "_ops", "return_types", "types", "storage", "torch_alias",
               "distributed", "distributions", "func", "version", "torch_version", "__config__", "accelerator", "xpu", "mps", "mtia", "hub", "onnx",
               "nested", "futures", "multiprocessing", "serialization", "profiler", "fft", "sparse", "hooks", "_jit_internal", "_utils", "_tensor_str",
               "_prims_common", "_subclasses", "_guards", "_decomp", "_export", "_inductor", "_absent", "ao", "quantization", "classes", "_custom_ops",
               "_utils_internal", "_namedtensor_internals", "_lowrank", "_vmap_internals", "functional", "monitor", "package", "quasirandom", "_classes",
               "notebook", "_appdirs", "_lobpcg", "_linalg_utils", "_weights_only_unpickler", "_storage_docs", "_environment", "_awaits", "contrib"}


# Functions that live in such a submodule.
_ELSEWHERE = dict.fromkeys(
    ["autocast", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype", "is_autocast_cache_enabled",
     "is_autocast_cpu_enabled", "is_autocast_enabled", "set_autocast_cache_enabled", "set_autocast_cpu_dtype",
     "set_autocast_cpu_enabled", "set_autocast_dtype", "set_autocast_enabled"], "amp")
_ELSEWHERE["vmap"] = "func"
_ELSEWHERE["quantize_dynamic"] = _ELSEWHERE["quantization_report"] = "ao.quantization"
_ELSEWHERE["ScriptModule"] = _ELSEWHERE["ScriptFunction"] = "jit"
_ELSEWHERE["Future"] = "futures"
_UNLISTED = {"GradScaler": "amp"}  # names of the original that programs look up, and nobody here needs
_UNLISTED.update(dict.fromkeys(("TypedStorage", "FloatStorage", "DoubleStorage", "HalfStorage", "BFloat16Storage", "LongStorage", "IntStorage", "ShortStorage",
                                 "CharStorage", "ByteStorage", "BoolStorage", "ComplexFloatStorage", "ComplexDoubleStorage"), "storage"))
_UNLISTED.update(dict.fromkeys(("TensorType", "ListType", "DictType", "TupleType", "OptionalType", "UnionType", "IntType", "FloatType", "BoolType",
                                "StringType", "NoneType", "NumberType", "AnyType", "ComplexType", "DeviceObjType"), "_jit_types"))
_UNLISTED.update(dict.fromkeys(("Tag", "DisableTorchFunctionSubclass", "DisableTorchFunction", "DispatchKey", "DispatchKeySet"), "_C"))


from ._absent import absent_class as _absent_class, absent_function as _absent_function  # noqa: E402

_ELSEWHERE.update(dict.fromkeys(("sparse_coo_tensor", "sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor", "sparse_bsc_tensor",
                                 "sparse_compressed_tensor", "_sparse_coo_tensor_unsafe", "hspmm", "_convert_indices_from_coo_to_csr",
                                 "_convert_indices_from_csr_to_coo"), "sparse"))
for _n in ("quantize_per_tensor", "quantize_per_channel", "_make_per_tensor_quantized_tensor", "_scaled_mm"):
    globals().setdefault(_n, _absent_function("taper", _n, "quantized tensors are not supported"))


PyTorchFileReader, PyTorchFileWriter = (_absent_class("taper", _n, "files are read and written by taper.load and taper.save") for _n in ("PyTorchFileReader", "PyTorchFileWriter"))


def resolve_conj(input):
    """Conjugates are computed at once: there is nothing left to do.

    >>> taper.resolve_conj(taper.tensor([1 + 2j]).conj())
    tensor([1.-2.j])
    """
    return input


def resolve_neg(input):
    """Negatives are computed at once: there is nothing left to do.

    >>> taper.resolve_neg(taper.ones(2))
    tensor([1., 1.])
    """
    return input


def _assert(condition, message):
    """Raises AssertionError(message) unless condition holds."""
    assert condition, message


class Stream:
    """A queue of work on a device: the CPU has none.

    >>> taper.Stream(taper.device("cpu")).query()
    Traceback (most recent call last):
        ...
    NotImplementedError: torch.Stream: there is no device with streams; Taper computes on the CPU
    """

    def __init__(self, device=None, priority=0):
        raise NotImplementedError("torch.Stream: there is no device with streams; Taper computes on the CPU")


class Event:
    """A mark in a stream: there is none.

    >>> taper.Event().query()
    Traceback (most recent call last):
        ...
    NotImplementedError: torch.Event: there is no device with streams; Taper computes on the CPU
    """

    def __init__(self, device=None, enable_timing=False, blocking=False, interprocess=False):
        raise NotImplementedError("torch.Event: there is no device with streams; Taper computes on the CPU")


def get_device_module(device=None):
    """taper.cpu, taper.cuda, ...: the module of a kind of device.

    >>> taper.get_device_module("cpu").__name__
    'taper.cpu'
    """
    kind = "cpu" if device is None else device.type if isinstance(device, _C.device) else str(device).split(":")[0]
    try:
        return _importlib.import_module("taper." + kind)
    except ModuleNotFoundError:
        raise RuntimeError(f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'.") from None


def _shape_as_tensor(input):
    return _C.tensor(list(input.shape), dtype=_C.int64)


def debug_print(x, label="debug_print"):
    """Print x where the graph computes it. Use the result (x = debug_print(x)) to have its gradient printed, too.

    >>> y = taper.debug_print(taper.ones(2), "halves")  # doctest: +SKIP
    """
    from ._debug_ops import debug_print
    return debug_print(x, label)


def debug_check_finite(x, label="tensor"):
    """Raise FloatingPointError where x has a NaN or an infinity; with the result used, its gradient is checked, too.

    >>> y = taper.debug_check_finite(taper.ones(2))
    >>> taper.debug_check_finite(taper.tensor([1.0, float("nan")]))
    Traceback (most recent call last):
        ...
    FloatingPointError: debug_check_finite: 'tensor' has 1 NaN and 0 infinite values among 2; the first is element 1 (flat) of shape [2]
    """
    from ._debug_ops import debug_check_finite
    return debug_check_finite(x, label)


class _NoName(AttributeError):
    """Names what was probably meant when it is shown: programs ask for attributes that are not there all the time."""
    def __init__(self, missing):
        super().__init__(f"module '{_prefix()}' has no attribute '{missing}'")
        self.missing = missing

    def __str__(self):
        from ._settings import _did_you_mean
        return self.args[0] + (_did_you_mean(self.missing, [n for n in __dir__() if n != self.missing]) if not self.missing.startswith("_") else "")


_NoName.__module__, _NoName.__qualname__, _NoName.__name__ = "builtins", "AttributeError", "AttributeError"


def __getattr__(name):
    if name in _SUBMODULES:
        try:
            return _importlib.import_module("taper." + name)
        except ModuleNotFoundError as e:
            if e.name != "taper." + name:
                raise
    if name in _ELSEWHERE or name in _UNLISTED:
        value = getattr(_importlib.import_module("taper." + (_ELSEWHERE.get(name) or _UNLISTED[name])), name)
        globals()[name] = value  # found at once from now on
        return value
    raise _NoName(name)


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):
    """Capture a function, module or other callable, and run what was captured with a backend.

    >>> f = taper.compile(lambda x: x.sin() + 1)
    >>> f(taper.zeros(2))
    tensor([1., 1.])
    """
    from ._dynamo.eval_frame import compile
    return compile(model, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable)


def load_ipython_extension(shell):
    """%load_ext taper in a notebook: the cell magic %%taper.

    >>> %load_ext taper  # doctest: +SKIP
    """
    from .notebook import load_ipython_extension
    load_ipython_extension(shell)


def __dir__():
    return sorted(set(globals()) | _SUBMODULES | set(_ELSEWHERE))
