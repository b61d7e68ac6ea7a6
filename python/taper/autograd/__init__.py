"""Automatic differentiation: gradients of tensors along the recorded tape."""
from .. import _C
from . import graph
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .function import Function, FunctionCtx
from .grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from . import forward_ad, function, functional, grad_mode  # noqa: F401

Variable = _C.Tensor

__all__ = ["Function", "FunctionCtx", "Variable", "backward", "detect_anomaly", "enable_grad", "functional", "grad",
           "grad_mode", "gradcheck", "gradgradcheck", "graph", "inference_mode", "no_grad",
           "set_detect_anomaly", "set_grad_enabled"]


def _tuple(x):
    return (x,) if isinstance(x, _C.Tensor) or x is None else tuple(x)


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
    """Gradients of the sum of `tensors`, added to .grad of the leaves (or of `inputs` only)."""
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError("`grad_tensors` and `grad_variables` (deprecated) arguments both passed to "
                               "`backward()`. Please only use `grad_tensors`.")
        grad_tensors = grad_variables
    if inputs is not None:
        inputs = _tuple(inputs)
        if not inputs:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    tensors = _tuple(tensors)
    grads = None if grad_tensors is None else _tuple(grad_tensors)
    retain = create_graph if retain_graph is None else retain_graph
    _C._run_backward(tensors, grads, retain, create_graph, inputs, True, True)


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True,
         allow_unused=None, is_grads_batched=False, materialize_grads=False):
    """The gradients of the sum of `outputs` with respect to `inputs`, as a tuple; .grad is left alone."""
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
                         "allow_unused=False.")
    if allow_unused is None:
        allow_unused = materialize_grads
    outputs, inputs = _tuple(outputs), _tuple(inputs)
    if not inputs:
        raise ValueError("grad requires non-empty inputs.")
    grads = None if grad_outputs is None else _tuple(grad_outputs)
    retain = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        if grads is None:
            raise RuntimeError("is_grads_batched=True needs grad_outputs")
        n = grads[0].shape[0]
        rows = [_C._run_backward(outputs, tuple(g[i] for g in grads), retain or i + 1 < n, create_graph, inputs, False,
                                 allow_unused) for i in range(n)]
        stack = _C._op_functions[""]["stack"]
        result = tuple(None if col[0] is None else stack(col) for col in zip(*rows))
    else:
        result = _C._run_backward(outputs, grads, retain, create_graph, inputs, False, allow_unused)
    if materialize_grads:
        zeros_like = _C._op_functions[""]["zeros_like"]
        result = tuple(zeros_like(i, requires_grad=create_graph) if g is None else g for g, i in zip(result, inputs))
    return result


def variable(*args, **kwargs):
    raise RuntimeError("taper.autograd.variable(...) is deprecated, use taper.tensor(...) instead")


def _is_checkpoint_valid():
    return True


def _profiler_enabled():
    """Does a profile record?"""
    from ..profiler import profiler
    return profiler._running.get("prof") is not None


def _disable_profiler():
    """Ends the profile that records."""
    from ..profiler import profiler
    if profiler._running.get("prof") is not None:
        profiler._running["prof"].stop()
