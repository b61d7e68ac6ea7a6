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
def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The old name of clip_grad_norm_."""
    warnings.warn("torch.nn.utils.clip_grad_norm is now deprecated in favor of torch.nn.utils.clip_grad_norm_.", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


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
    return taper.cat([p.view(-1) for p in parameters])


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


def skip_init(module_cls, *args, **kwargs):
    """A module whose parameters have no values yet."""
    final = kwargs.pop("device", "cpu")
    return module_cls(*args, device="meta", **kwargs).to_empty(device=final)


def convert_conv2d_weight_memory_format(module, memory_format):
    """Weights of convolutions in another layout; values stay."""
    for m in module.modules():
        if isinstance(m, (taper.nn.Conv2d, taper.nn.ConvTranspose2d)):
            m.weight.data = m.weight.detach().clone().contiguous(memory_format=memory_format)
    return module


def convert_conv3d_weight_memory_format(module, memory_format):
    for m in module.modules():
        if isinstance(m, (taper.nn.Conv3d, taper.nn.ConvTranspose3d)):
            m.weight.data = m.weight.detach().clone().contiguous(memory_format=memory_format)
    return module


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False):
    """Weight and bias of a convolution that does what it and the normalisation after it do."""
    conv_b = taper.zeros_like(bn_rm) if conv_b is None else conv_b
    scale = (taper.ones_like(bn_rm) if bn_w is None else bn_w) * taper.rsqrt(bn_rv + bn_eps)
    shape = [1] * conv_w.dim()
    shape[1 if transpose else 0] = -1
    b = (conv_b - bn_rm) * scale + (taper.zeros_like(bn_rm) if bn_b is None else bn_b)
    return taper.nn.Parameter((conv_w * scale.reshape(shape)).to(conv_w.dtype), conv_w.requires_grad), taper.nn.Parameter(b.to(conv_b.dtype), conv_b.requires_grad)


def fuse_conv_bn_eval(conv, bn, transpose=False):
    import copy
    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose)
    return fused


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    scale = bn_w * taper.rsqrt(bn_rv + bn_eps)
    linear_b = taper.zeros_like(bn_rm) if linear_b is None else linear_b
    return taper.nn.Parameter(linear_w * scale.unsqueeze(-1)), taper.nn.Parameter((linear_b - bn_rm) * scale + bn_b)


def fuse_linear_bn_eval(linear, bn):
    import copy
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    return fused


def __getattr__(name):
    if name in ("prune", "clip_grad", "convert_parameters", "weight_norm", "init", "memory_format", "fusion", "stateless"):
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
