"""Initial values of parameters."""
import math
import warnings

import taper


def calculate_gain(nonlinearity, param=None):
    plain = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid")
    if nonlinearity in plain:
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif isinstance(param, (int, float)) and not isinstance(param, bool):
            slope = param
        else:
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope ** 2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def uniform_(tensor, a=0.0, b=1.0, generator=None):
    with taper.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor, mean=0.0, std=1.0, generator=None):
    with taper.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """Normal numbers from [a, b]: what falls outside is drawn again."""
    def cdf(x):
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    if tensor.is_meta:
        return tensor
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn("mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect.", stacklevel=2)
    with taper.no_grad():
        if cdf((b - mean) / std) - cdf((a - mean) / std) > 0.3:  # most normal numbers are inside
            lo, hi = taper.tensor([a, b], dtype=tensor.dtype).tolist()
            x = tensor.normal_(mean, std, generator=generator)
            while (out := (x < lo) | (x > hi)).any():
                x = taper.where(out, taper.empty_like(x).normal_(mean, std, generator=generator), x)
        else:  # few are: uniform ones, each kept as often as the density there says
            top = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
            x, again = tensor, None
            while again is None or again.any():
                new = (tensor if again is None else taper.empty_like(tensor)).uniform_(a, b, generator=generator)
                x = new if again is None else taper.where(again, new, x)
                density = ((new - mean) / std) ** 2 * -0.5 - top
                refused = taper.empty_like(tensor).uniform_(generator=generator).log_() > density
                again = refused if again is None else again & refused
        return tensor if x is tensor else tensor.copy_(x)


def constant_(tensor, val):
    with taper.no_grad():
        return tensor.fill_(val)


def ones_(tensor):
    return constant_(tensor, 1.0)


def zeros_(tensor):
    return constant_(tensor, 0.0)


def eye_(tensor):
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with taper.no_grad():
        return tensor.copy_(taper.eye(*tensor.shape))


def dirac_(tensor, groups=1):
    d = tensor.ndimension()
    if d not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.size(0) % groups:
        raise ValueError("dim 0 must be divisible by groups")
    out = tensor.size(0) // groups
    with taper.no_grad():
        tensor.zero_()
        for g in range(groups):
            for i in range(min(out, tensor.size(1))):
                tensor[(g * out + i, i) + tuple(s // 2 for s in tensor.shape[2:])] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor):
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = 1
    for s in tensor.shape[2:]:
        field *= s
    return tensor.size(1) * field, tensor.size(0) * field


def _calculate_correct_fan(tensor, mode):
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def xavier_uniform_(tensor, gain=1.0, generator=None):
    fi, fo = _calculate_fan_in_and_fan_out(tensor)
    a = math.sqrt(3.0) * gain * math.sqrt(2.0 / (fi + fo))
    return uniform_(tensor, -a, a, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    fi, fo = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fi + fo)), generator)


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    if 0 in tensor.shape:
        return tensor
    bound = math.sqrt(3.0) * calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    if 0 in tensor.shape:
        return tensor
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode)), generator)


def orthogonal_(tensor, gain=1, generator=None):
    if tensor.ndimension() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows, cols = tensor.size(0), tensor.numel() // tensor.size(0)
    flat = taper.randn(rows, cols, generator=generator, dtype=tensor.dtype)
    if rows < cols:
        flat = flat.t()
    q, r = taper.linalg.qr(flat)
    q = q * taper.sign(taper.diagonal(r))
    if rows < cols:
        q = q.t()
    with taper.no_grad():
        tensor.view_as(q).copy_(q)
        tensor.mul_(gain)
    return tensor


def sparse_(tensor, sparsity, std=0.01, generator=None):
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, cols = tensor.shape
    n = int(math.ceil(sparsity * rows))
    with taper.no_grad():
        tensor.normal_(0, std, generator=generator)
        for c in range(cols):
            tensor[taper.randperm(rows)[:n], c] = 0
    return tensor


def _old(name):
    new = globals()[name + "_"]

    def f(*args, **kwargs):
        warnings.warn(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.", FutureWarning, stacklevel=2)
        return new(*args, **kwargs)
    f.__name__ = f.__qualname__ = name
    return f


for _n in ("uniform", "normal", "constant", "eye", "dirac", "xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal", "orthogonal", "sparse"):
    globals()[_n] = _old(_n)
