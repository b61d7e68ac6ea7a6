"""Looking at values inside a compiled graph: the calls stay in the graph, forward and backward."""
import math

from . import _C
from . import library
from ._C import Tensor


def _printer(name, tail):
    def fn(x: Tensor, label: str) -> Tensor:
        print(f"{label}{tail}: {x}", flush=True)
        return x.clone()
    return library.CustomOpDef(f"taper::{name}", f"taper::{name}(Tensor x, str label) -> Tensor", fn, effects=True)


def _bad_values(x):
    flat = x.detach().reshape(-1)
    nan, inf = int(flat.isnan().sum()), int(flat.isinf().sum())
    return nan, inf


def _checker(name, what):
    def fn(x: Tensor, label: str) -> Tensor:
        if x.is_floating_point():
            nan, inf = _bad_values(x)
            if nan or inf:
                first = next(i for i, v in enumerate(x.detach().reshape(-1).tolist()) if not math.isfinite(v))
                raise FloatingPointError(f"debug_check_finite: {what}{label!r} has {nan} NaN and {inf} infinite values among "
                                         f"{x.numel()}; the first is element {first} (flat) of shape {list(x.shape)}")
        return x.clone()
    return library.CustomOpDef(f"taper::{name}", f"taper::{name}(Tensor x, str label) -> Tensor", fn, effects=True)


_print, _print_grad = _printer("debug_print", ""), _printer("debug_print_grad", " grad")
_finite, _finite_grad = _checker("debug_check_finite", ""), _checker("debug_check_finite_grad", "the gradient of ")
for _op, _back in ((_print, _print_grad), (_finite, _finite_grad), (_print_grad, _print_grad), (_finite_grad, _finite_grad)):
    _op._needs = None
    _op.register_fake(lambda x, label: x.clone())

    def _setup(ctx, inputs, output):
        ctx.label = inputs[1]
    _op.register_autograd(lambda ctx, g, back=_back: (back(g, ctx.label), None), setup_context=_setup)


def debug_print(x, label="debug_print"):
    """Print x where the graph computes it. Use the result (x = debug_print(x)) to have its gradient printed, too."""
    return _print(x, label)


def debug_check_finite(x, label="tensor"):
    """Raise FloatingPointError where x has a NaN or an infinity; with the result used, its gradient is checked, too."""
    return _finite(x, label)
