"""Helpers around parameters: clipping, flattening, parametrisation."""
import warnings

import taper
from . import parametrize, parametrizations, rnn  # noqa: F401
from .parametrizations import spectral_norm, weight_norm


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    tensors = [tensors] if isinstance(tensors, taper.Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return taper.tensor(0.0)
    norms = [taper.linalg.vector_norm(t, norm_type) for t in tensors]
    total = taper.linalg.vector_norm(taper.stack(norms), norm_type)
    if error_if_nonfinite and not bool(taper.isfinite(total)):
        raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped. "
                           "To disable this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`")
    return total


def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    params = [parameters] if isinstance(parameters, taper.Tensor) else list(parameters)
    coef = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    for p in params:
        if p.grad is not None:
            p.grad.mul_(coef)


@taper.no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scale all gradients so that their joint norm is at most max_norm; returns the norm before."""
    params = [parameters] if isinstance(parameters, taper.Tensor) else list(parameters)
    if not params:
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3)
    total = get_total_norm([p.grad for p in params if p.grad is not None], norm_type, error_if_nonfinite)
    clip_grads_with_norm_(params, max_norm, total)
    return total


@taper.no_grad()
def clip_grad_value_(parameters, clip_value, foreach=None):
    params = [parameters] if isinstance(parameters, taper.Tensor) else list(parameters)
    v = float(clip_value)
    for p in params:
        if p.grad is not None:
            p.grad.clamp_(min=-v, max=v)


def parameters_to_vector(parameters):
    return taper.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec, parameters):
    if not isinstance(vec, taper.Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    at = 0
    for p in parameters:
        n = p.numel()
        p.data = vec[at:at + n].view_as(p).data
        at += n


def _removed(module, name, kind):
    if not parametrize.is_parametrized(module, name):
        raise ValueError(f"{kind} of '{name}' not found in {module}")
    return parametrize.remove_parametrizations(module, name)


def remove_weight_norm(module, name="weight"):
    """The parameter becomes an ordinary one again, with the value it has now."""
    return _removed(module, name, "weight_norm")


def remove_spectral_norm(module, name="weight"):
    return _removed(module, name, "spectral_norm")
