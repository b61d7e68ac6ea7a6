"""Taper: a tensor compiler you can debug."""
import importlib as _importlib
from . import _C
from ._C import *  # noqa: F401,F403  dtypes, Tensor, Size, device, Generator, tensor, ...

__version__ = "0.1.0"

globals().update(_C._op_functions.get("", {}))

from ._settings import *  # noqa: E402,F401,F403
from ._checks import *  # noqa: E402,F401,F403
from . import _tensor as _tensor  # noqa: E402
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
               "distributed", "distributions", "func"}


# Functions that live in such a submodule.
_ELSEWHERE = dict.fromkeys(
    ["autocast", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype", "is_autocast_cache_enabled",
     "is_autocast_cpu_enabled", "is_autocast_enabled", "set_autocast_cache_enabled", "set_autocast_cpu_dtype",
     "set_autocast_cpu_enabled", "set_autocast_dtype", "set_autocast_enabled"], "amp")
_ELSEWHERE["vmap"] = "func"


def debug_print(x, label="debug_print"):
    """Print x where the graph computes it. Use the result (x = debug_print(x)) to have its gradient printed, too."""
    from ._debug_ops import debug_print
    return debug_print(x, label)


def debug_check_finite(x, label="tensor"):
    """Raise FloatingPointError where x has a NaN or an infinity; with the result used, its gradient is checked, too."""
    from ._debug_ops import debug_check_finite
    return debug_check_finite(x, label)


def __getattr__(name):
    if name in _SUBMODULES:
        try:
            return _importlib.import_module("taper." + name)
        except ModuleNotFoundError as e:
            if e.name != "taper." + name:
                raise
    if name in _ELSEWHERE:
        value = getattr(_importlib.import_module("taper." + _ELSEWHERE[name]), name)
        globals()[name] = value  # found at once from now on
        return value
    raise AttributeError(f"module 'taper' has no attribute '{name}'")


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):
    """Capture a function, module or other callable, and run what was captured with a backend."""
    from ._dynamo.eval_frame import compile
    return compile(model, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable)


def export(fn, args=(), kwargs=None, path=None, dynamic=False):
    """One graph of fn(*args, **kwargs) with its weights, for files and for programs without Python."""
    from ._export import export
    return export(fn, args, kwargs, path, dynamic)


def __dir__():
    return sorted(set(globals()) | _SUBMODULES | set(_ELSEWHERE))
