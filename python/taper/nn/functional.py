"""Functions of neural networks. Most are rows of the op table; the rest is argument glue."""
import math
import warnings

import taper
from .. import _C
from .._never import never_captured as _never_captured
from .._overridable import overridable_functions as _overridable_functions

_call = _C._call
globals().update(_C._op_functions.get("nn.functional", {}))


def _red(reduction):
    if reduction == "mean":
        return 1
    if reduction == "sum":
        return 2
    if reduction == "none":
        return 0
    raise ValueError(f"{reduction} is not a valid value for reduction")


class _Reduction:
    get_enum = staticmethod(_red)


def _pair(v, n):
    return (v,) * n if isinstance(v, int) else tuple(v)


# --- activations with an inplace flag --------------------------------------------------------------------------
def _into(input, fn):
    """fn(input) becomes what input holds. A derivative that needs what it held before looks at a copy."""
    return input.copy_(fn(input.clone() if taper.is_grad_enabled() and input.requires_grad else input))


def relu(input, inplace=False):
    """max(0, x)

    >>> F.relu(taper.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    return input.relu_() if inplace else taper.relu(input)


# What activations make of -1 and 2, for their docstrings.
_PRINTED = {
    "celu": "tensor([-0.6321,  2.0000])",
    "elu": "tensor([-0.6321,  2.0000])",
    "hardsigmoid": "tensor([0.3333, 0.8333])",
    "hardswish": "tensor([-0.3333,  1.6667])",
    "hardtanh": "tensor([-1.,  1.])",
    "leaky_relu": "tensor([-0.0100,  2.0000])",
    "mish": "tensor([-0.3034,  1.9440])",
    "relu6": "tensor([0., 2.])",
    "selu": "tensor([-1.1113,  2.1014])",
    "silu": "tensor([-0.2689,  1.7616])",
    "threshold": "tensor([9., 2.])",
}


def _shown(name, suffix=""):
    more = ", 0.5, 9.0" if name == "threshold" else ", 0.1, 0.1" if name == "rrelu" else ""
    printed = {"relu": "tensor([0., 2.])", "rrelu": "tensor([-0.1000,  2.0000])"}.get(name) or _PRINTED[name]
    return f"\n\n>>> F.{name}{suffix}(taper.tensor([-1.0, 2.0]){more})\n{printed}\n"


def _act(name, *params):
    """An activation row with positional parameters before `inplace`."""

    def f(input, *args, inplace=None, **kw):
        if not isinstance(input, taper.Tensor):  # one call for whoever takes it over
            got = _C._taken(f, (input, *args), kw if inplace is None else dict(kw, inplace=inplace))
            if got is not None:
                return got[0]
        args, most = list(args), len(params) + (inplace is None)
        if len(args) > most:
            raise TypeError(f"{name}() takes from 1 to {most + 1} positional arguments but {len(args) + 1} were given")
        if len(args) > len(params):
            inplace = args.pop()
        vals = [args[i] if i < len(args) else kw.pop(p, d) for i, (p, d) in enumerate(params)]
        if kw:
            raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kw))}'")
        return _into(input, lambda x: _call(name, x, *vals)) if inplace else _call(name, input, *vals)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"{name}(input, {''.join(f'{p}={d}, ' for p, d in params)}inplace=False)" + _shown(name)
    return f


relu6 = _act("relu6")
elu = _act("elu", ("alpha", 1.0))
selu = _act("selu")
celu = _act("celu", ("alpha", 1.0))
leaky_relu = _act("leaky_relu", ("negative_slope", 0.01))
silu = _act("silu")
mish = _act("mish")
hardswish = _act("hardswish")
hardsigmoid = _act("hardsigmoid")
hardtanh = _act("hardtanh", ("min_val", -1.0), ("max_val", 1.0))
threshold = _act("threshold", ("threshold", 0.0), ("value", 0.0))


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """leaky_relu with a slope that is drawn in training, and the mean of its bounds otherwise.

    >>> F.rrelu(taper.tensor([-1.0, 2.0]), 0.1, 0.3)
    tensor([-0.2000,  2.0000])
    """
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = taper.rand_like(input) * (upper - lower) + lower
    fn = lambda x: taper.where(x >= 0, x, x * slope)  # noqa: E731
    return _into(input, fn) if inplace else fn(input)


def tanh(input):
    """The hyperbolic tangent.

    >>> F.tanh(taper.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7616])
    """
    return input.tanh()


def sigmoid(input):
    """1 / (1 + exp(-x))

    >>> F.sigmoid(taper.tensor([0.0, 2.0]))
    tensor([0.5000, 0.8808])
    """
    return input.sigmoid()


def tanhshrink(input):
    """x - tanh(x)

    >>> F.tanhshrink(taper.tensor([0.0, 1.0]))
    tensor([0.0000, 0.2384])
    """
    return input - input.tanh()


def softsign(input):
    """x / (1 + abs(x))

    >>> F.softsign(taper.tensor([-1.0, 3.0]))
    tensor([-0.5000,  0.7500])
    """
    return input / (input.abs() + 1)


def logsigmoid(input):
    """log(sigmoid(x))

    >>> F.logsigmoid(taper.tensor([0.0]))
    tensor([-0.6931])
    """
    return _call("log_sigmoid", input)


def softplus(input, beta=1, threshold=20):
    """log(1 + exp(beta * x)) / beta

    >>> F.softplus(taper.tensor([0.0, 2.0]))
    tensor([0.6931, 2.1269])
    """
    return _call("softplus", input, beta, threshold)


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    """softmax(-x) along dim

    >>> F.softmin(taper.tensor([0.0, 0.0]), dim=0)
    tensor([0.5000, 0.5000])
    """
    return softmax(-input, dim, dtype=dtype)


def _softmax_dim(name, ndim):
    warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.", stacklevel=4)
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    """exp(x) divided by its sum along dim

    >>> F.softmax(taper.tensor([0.0, 0.0]), dim=0)
    tensor([0.5000, 0.5000])
    """
    if dim is None:
        dim = _softmax_dim("softmax", input.dim())
    return taper.softmax(input, dim, dtype=dtype)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """log(softmax(x)) along dim

    >>> F.log_softmax(taper.tensor([0.0, 0.0]), dim=0)
    tensor([-0.6931, -0.6931])
    """
    if dim is None:
        dim = _softmax_dim("log_softmax", input.dim())
    return taper.log_softmax(input, dim, dtype=dtype)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """A sample of a categorical distribution that gradients pass; hard=True makes it one-hot.

    >>> F.gumbel_softmax(taper.zeros(2, 3), hard=True).sum(-1)
    tensor([1., 1.])
    """
    g = -taper.empty_like(logits).exponential_().log()
    y = taper.softmax((logits + g) / tau, dim)
    if not hard:
        return y
    index = y.max(dim, keepdim=True)[1]
    y_hard = taper.zeros_like(logits).scatter_(dim, index, 1.0)
    return y_hard - y.detach() + y


def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    """Divides by the p-norm along dim.

    >>> F.normalize(taper.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    return input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)


def glu(input, dim=-1):
    """a * sigmoid(b), where a and b are the halves of the input along dim

    >>> F.glu(taper.tensor([1.0, 2.0, 0.0, 0.0]))
    tensor([0.5000, 1.0000])
    """
    a, b = input.chunk(2, dim)
    return a * b.sigmoid()


# --- dropout -----------------------------------------------------------------------------------------------------
def _check_p(p):
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input, p=0.5, training=True, inplace=False):
    """Zeros elements with probability p and divides the others by 1 - p, in training.

    >>> F.dropout(taper.tensor([1.0, 2.0]), 0.5, training=False)
    tensor([1., 2.])
    """
    _check_p(p)
    return _into(input, lambda x: taper.dropout(x, p, training)) if inplace else taper.dropout(input, p, training)


def _feature_dropout(input, p, training, inplace):
    _check_p(p)
    fn = lambda x: taper.feature_dropout(x, p, training)  # noqa: E731
    return _into(input, fn) if inplace else fn(input)


def dropout1d(input, p=0.5, training=True, inplace=False):
    """Dropout of whole channels: (batch, channels, length).

    >>> F.dropout1d(taper.ones(1, 2, 3), training=False).shape
    taper.Size([1, 2, 3])
    """
    if input.dim() == 2:
        return _feature_dropout(input.unsqueeze(0), p, training, False).squeeze(0)
    return _feature_dropout(input, p, training, inplace)


def dropout2d(input, p=0.5, training=True, inplace=False):
    """Dropout of whole channels: (batch, channels, height, width).

    >>> F.dropout2d(taper.ones(1, 2, 3, 3), training=False).shape
    taper.Size([1, 2, 3, 3])
    """
    return _feature_dropout(input, p, training, inplace)


def dropout3d(input, p=0.5, training=True, inplace=False):
    """Dropout of whole channels: (batch, channels, depth, height, width).

    >>> F.dropout3d(taper.ones(1, 2, 3, 3, 3), training=False).shape
    taper.Size([1, 2, 3, 3, 3])
    """
    return _feature_dropout(input, p, training, inplace)


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout that keeps mean and variance of what selu makes.

    >>> F.alpha_dropout(taper.tensor([1.0, 2.0]), training=False)
    tensor([1., 2.])
    """
    _check_p(p)
    fn = lambda x: taper.alpha_dropout(x, p, training)  # noqa: E731
    return _into(input, fn) if inplace else fn(input)


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """alpha_dropout of whole channels.

    >>> F.feature_alpha_dropout(taper.ones(1, 2, 3), training=False).shape
    taper.Size([1, 2, 3])
    """
    _check_p(p)
    fn = lambda x: taper.feature_alpha_dropout(x, p, training)  # noqa: E731
    return _into(input, fn) if inplace else fn(input)


# --- normalisation -------------------------------------------------------------------------------------------------
def _elements(size):
    n = 1
    for k in size:
        n *= k
    return n


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """Normalises each channel over the batch, or by running statistics.

    >>> F.batch_norm(taper.tensor([[1.0], [3.0]]), None, None, training=True, eps=0.0)
    tensor([[-1.],
            [ 1.]])
    """
    if training:
        if _elements([*input.shape[:1], *input.shape[2:]]) == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.size()}")
    return taper.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, False)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Normalises over the last dimensions (normalized_shape).

    >>> F.layer_norm(taper.tensor([1.0, 3.0]), (2,), eps=0.0)
    tensor([-1.,  1.])
    """
    return taper.layer_norm(input, normalized_shape, weight, bias, eps, False)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """Normalises groups of channels of each sample.

    >>> F.group_norm(taper.tensor([[[1.0, 3.0]]]), 1, eps=0.0)
    tensor([[[-1.,  1.]]])
    """
    if input.dim() < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
    if num_groups > 0:
        size = [input.size(0) * input.size(1) // num_groups, num_groups, *input.shape[2:]]
        if _elements(size[:1] + size[2:]) == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {size}")
    return taper.group_norm(input, num_groups, weight, bias, eps, False)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    """Divides by the root of the mean square over the last dimensions.

    >>> F.rms_norm(taper.tensor([3.0, 3.0]), (2,), eps=0.0)
    tensor([1., 1.])
    """
    return taper.rms_norm(input, normalized_shape, weight, eps)


def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5):
    """Normalises each channel of each sample.

    >>> F.instance_norm(taper.tensor([[[1.0, 3.0]]]), eps=0.0)
    tensor([[[-1.,  1.]]])
    """
    if use_input_stats and _elements(input.shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.size()}")
    return taper.instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, False)


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """Divides each channel by a power of the sum of squares of its neighbours.

    >>> F.local_response_norm(taper.ones(1, 3, 2), 2).shape
    taper.Size([1, 3, 2])
    """
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    if not input.numel():
        return input
    sq = (input * input).unsqueeze(1)
    if input.dim() == 3:
        sq = pad(sq, (0, 0, size // 2, (size - 1) // 2))
        div = taper.avg_pool2d(sq, (size, 1), stride=1).squeeze(1)
    else:
        n, c, h = input.shape[0], input.shape[1], input.shape[2]
        sq = sq.view(n, 1, c, h, -1)
        sq = pad(sq, (0, 0, 0, 0, size // 2, (size - 1) // 2))
        div = taper.avg_pool3d(sq, (size, 1, 1), stride=1).squeeze(1).view(input.shape)
    return input / (div * alpha + k) ** beta


# --- embedding -------------------------------------------------------------------------------------------------------
def _renorm_rows(weight, index, max_norm, norm_type):
    """Scales the rows that are looked up down to max_norm, in place."""
    with taper.no_grad():
        rows = taper.unique(index.reshape(-1))
        w = weight.detach()[rows]
        norm = w.norm(norm_type, -1, keepdim=True)
        weight.index_copy_(0, rows.long(), taper.where(norm > max_norm, w * (max_norm / (norm + 1e-7)), w))


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """Rows of a table, by their numbers.

    >>> F.embedding(taper.tensor([1, 0]), taper.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 4.],
            [1., 2.]])
    """
    if padding_idx is not None:
        n = weight.size(0)
        if padding_idx >= n or padding_idx < -n:
            raise AssertionError("Padding_idx must be within num_embeddings")
        if padding_idx < 0:
            padding_idx += n
    else:
        padding_idx = -1
    if max_norm is not None:
        _renorm_rows(weight, input, max_norm, norm_type)
    return _looked_up(weight, input, padding_idx, scale_grad_by_freq, sparse)


def _looked_up(weight, input, padding_idx, scale_grad_by_freq, sparse):
    """Rows of weight; with sparse=True their gradient is a sparse tensor."""
    if sparse and weight.requires_grad and taper.is_grad_enabled():
        if scale_grad_by_freq:
            raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
        return _looked_up_sparse(weight, input, padding_idx)
    return taper.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)


def _looked_up_sparse(weight, input, padding_idx):
    from ..sparse import _tensor
    return _tensor.look_up(weight, input, padding_idx)


_looked_up_sparse = _never_captured(_looked_up_sparse, reason="the gradient of an embedding with sparse=True is a sparse tensor: it runs outside of graphs")


def _bags_of_one_length(input, weight, scale_grad_by_freq, mode, per_sample_weights, padding_idx, sparse):
    """Rows are summed where they are looked up: one kernel when compiled."""
    wide = taper.float32 if weight.dtype in (taper.float16, taper.bfloat16) else weight.dtype
    rows, count = _looked_up(weight, input, -1, scale_grad_by_freq, sparse).to(wide), input.size(1)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.to(wide).unsqueeze(2)
    if padding_idx is not None:
        keep = input != (padding_idx if padding_idx >= 0 else padding_idx + weight.size(0))
        rows = taper.where(keep.unsqueeze(2), rows, 0)
        count = keep.sum(1, keepdim=True).clamp_min(1)
    out = rows.sum(1)
    return (out / count if mode == "mean" else out).to(weight.dtype)


def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False,
                  per_sample_weights=None, include_last_offset=False, padding_idx=None):
    """Sums, means or maxima of rows of a table, by their numbers.

    >>> F.embedding_bag(taper.tensor([[0, 1]]), taper.tensor([[1.0, 2.0], [3.0, 4.0]]), mode="sum")
    tensor([[4., 6.]])
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if scale_grad_by_freq and mode == "max":
        raise RuntimeError("embedding_bag: scale_grad_by_freq was not supported for mode='max'")
    if max_norm is not None:
        _renorm_rows(weight, input, max_norm, norm_type)
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(f"embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got mode='{mode}').")
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences.")
        if mode != "max" and input.size(1) > 0:
            return _bags_of_one_length(input, weight, scale_grad_by_freq, mode, per_sample_weights, padding_idx, sparse)
        offsets = taper.arange(0, input.numel(), max(input.size(1), 1), device=input.device)[:input.size(0)]
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    elif input.dim() == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.dim() != 1:
            raise ValueError("offsets has to be a 1D Tensor")
        if include_last_offset:
            offsets = offsets[:-1]
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    n, bags = input.numel(), offsets.numel()
    starts = taper.zeros(n + 1, dtype=taper.int64, device=weight.device).index_add(0, offsets.long(), taper.ones(bags, dtype=taper.int64, device=weight.device))
    bag = starts[:n].cumsum(0) - 1  # the bag each entry belongs to
    keep = taper.ones(n, dtype=taper.bool, device=weight.device)
    if padding_idx is not None:
        keep = input != (padding_idx if padding_idx >= 0 else padding_idx + weight.size(0))
        input, bag = input[keep], bag[keep]
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights[keep]
    rows = _looked_up(weight, input, -1, scale_grad_by_freq, sparse)
    wide = taper.float32 if weight.dtype in (taper.float16, taper.bfloat16) else weight.dtype
    rows = rows.to(wide)  # narrow floats are summed in float
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.to(wide).unsqueeze(1)
    out = taper.zeros(bags, weight.size(1), dtype=wide, device=weight.device)
    if mode == "max":
        return out.scatter_reduce(0, bag.unsqueeze(1).expand(rows.shape), rows, "amax", include_self=False).to(weight.dtype)
    out = out.index_add(0, bag, rows)
    if mode == "mean":
        count = taper.zeros(bags, dtype=wide, device=weight.device).index_add(0, bag, taper.ones(bag.numel(), dtype=wide, device=weight.device))
        out = out / count.clamp_min(1).unsqueeze(1)
    return out.to(weight.dtype)


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """Reads images at the places of a grid, between -1 and 1, by interpolation.

    >>> F.grid_sample(taper.arange(4.0).view(1, 1, 2, 2), taper.zeros(1, 1, 1, 2), align_corners=True)
    tensor([[[[1.5000]]]])
    """
    modes, pads = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    if mode not in modes:
        raise ValueError(f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'")
    if padding_mode not in pads:
        raise ValueError(f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{padding_mode}'")
    return _call("grid_sampler", input, grid, modes.index(mode), pads.index(padding_mode), bool(align_corners))


def affine_grid(theta, size, align_corners=None):
    """The places at which grid_sample reads to move, turn or scale images by theta.

    >>> F.affine_grid(taper.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 4, 4)).shape
    taper.Size([1, 4, 4, 2])
    """
    return _call("affine_grid_generator", theta, list(size), bool(align_corners))


# --- convolution and pooling ------------------------------------------------------------------------------------------
def _with_indices(pool):
    def f(input, *args, **kwargs):
        return pool(input, *args, **{**kwargs, "return_indices": True})
    f.__name__ = f.__qualname__ = pool.__name__ + "_with_indices"
    n = 2 ** int(pool.__name__[-2])
    f.__doc__ = f"""{pool.__name__}() with return_indices=True.

    >>> F.{f.__name__}(taper.arange({n}.0).view(1, 1{", 2" * int(pool.__name__[-2])}), {1 if "adaptive" in pool.__name__ else 2})[1].flatten()
    tensor([{n - 1}])
    """
    return f


def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """Maxima of windows of kernel_size elements.

    >>> F.max_pool1d(taper.arange(4.0).view(1, 1, 4), 2)
    tensor([[[1., 3.]]])
    """
    f = taper.max_pool1d_with_indices if return_indices else taper.max_pool1d
    return f(input, kernel_size, stride if stride is not None else [], padding, dilation, ceil_mode)


def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """Maxima of windows of kernel_size rows and columns.

    >>> F.max_pool2d(taper.arange(4.0).view(1, 1, 2, 2), 2)
    tensor([[[[3.]]]])
    """
    if return_indices:
        return _call("max_pool2d_with_indices", input, kernel_size, stride if stride is not None else [], padding, dilation, ceil_mode)
    return taper.max_pool2d(input, kernel_size, stride if stride is not None else [], padding, dilation, ceil_mode)


def max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """Maxima of windows of kernel_size elements in each of three dimensions.

    >>> F.max_pool3d(taper.ones(1, 1, 2, 2, 2), 2).shape
    taper.Size([1, 1, 1, 1, 1])
    """
    if return_indices:
        return _call("max_pool3d_with_indices", input, kernel_size, stride if stride is not None else [], padding, dilation, ceil_mode)
    return taper.max_pool3d(input, kernel_size, stride if stride is not None else [], padding, dilation, ceil_mode)


def _avg_pool(nd):
    name = f"avg_pool{nd}d"

    def f(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        extra = () if nd == 1 else (divisor_override,)
        return _call(name, input, kernel_size, stride if stride is not None else [], padding, ceil_mode, count_include_pad, *extra)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"""Means of windows of kernel_size elements in each of {nd} dimension{"s" * (nd > 1)}.

    >>> F.avg_pool{nd}d(taper.ones(1, 1, {", ".join("4" * nd)}), 2).shape
    taper.Size([1, 1, {", ".join("2" * nd)}])
    """
    return f


avg_pool1d, avg_pool2d, avg_pool3d = _avg_pool(1), _avg_pool(2), _avg_pool(3)


def _adaptive_size(size, input, nd):
    size = _pair(size, nd)
    if nd > 1 and input.dim() <= len(size):
        raise ValueError(f"Input dimension should be at least {len(size) + 1}")
    return tuple(s if s is not None else input.shape[i - nd] for i, s in enumerate(size))


def adaptive_avg_pool1d(input, output_size):
    """Averages over windows chosen so that the result has output_size elements.

    >>> F.adaptive_avg_pool1d(taper.arange(4.0).view(1, 1, 4), 2)
    tensor([[[0.5000, 2.5000]]])
    """
    return _call("adaptive_avg_pool1d", input, _adaptive_size(output_size, input, 1))


def adaptive_avg_pool2d(input, output_size):
    """Averages over windows chosen so that the result has output_size rows and columns.

    >>> F.adaptive_avg_pool2d(taper.arange(4.0).view(1, 1, 2, 2), 1)
    tensor([[[[1.5000]]]])
    """
    return _call("adaptive_avg_pool2d", input, _adaptive_size(output_size, input, 2))


def adaptive_avg_pool3d(input, output_size):
    """Averages over windows chosen so that the result has output_size elements in each of three dimensions.

    >>> F.adaptive_avg_pool3d(taper.ones(1, 1, 2, 2, 2), 1).shape
    taper.Size([1, 1, 1, 1, 1])
    """
    return _call("adaptive_avg_pool3d", input, _adaptive_size(output_size, input, 3))


def adaptive_max_pool3d(input, output_size, return_indices=False):
    """Maxima of windows chosen so that the result has output_size elements in each of three dimensions.

    >>> F.adaptive_max_pool3d(taper.ones(1, 1, 2, 2, 2), 1).shape
    taper.Size([1, 1, 1, 1, 1])
    """
    r = _call("adaptive_max_pool3d", input, _adaptive_size(output_size, input, 3))
    return r if return_indices else r[0]


def adaptive_max_pool1d(input, output_size, return_indices=False):
    """Maxima of windows chosen so that the result has output_size elements.

    >>> F.adaptive_max_pool1d(taper.arange(4.0).view(1, 1, 4), 2)
    tensor([[[1., 3.]]])
    """
    r = _call("adaptive_max_pool1d", input, _adaptive_size(output_size, input, 1))
    return r if return_indices else r[0]


def adaptive_max_pool2d(input, output_size, return_indices=False):
    """Maxima of windows chosen so that the result has output_size rows and columns.

    >>> F.adaptive_max_pool2d(taper.arange(4.0).view(1, 1, 2, 2), 1)
    tensor([[[[3.]]]])
    """
    r = _call("adaptive_max_pool2d", input, _adaptive_size(output_size, input, 2))
    return r if return_indices else r[0]


def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """The p-norm of windows: (sum of x**p)**(1/p).

    >>> F.lp_pool1d(taper.tensor([[[3.0, 4.0]]]), 2, 2)
    tensor([[[5.]]])
    """
    out = avg_pool1d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return (out.sign() * relu(out.abs())).mul(kernel_size).pow(1.0 / norm_type)


def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """The p-norm of windows of rows and columns.

    >>> F.lp_pool2d(taper.ones(1, 1, 2, 2), 2, 2)
    tensor([[[[2.]]]])
    """
    kh, kw = _pair(kernel_size, 2)
    out = avg_pool2d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return (out.sign() * relu(out.abs())).mul(kh * kw).pow(1.0 / norm_type)


def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """The p-norm of windows in three dimensions.

    >>> F.lp_pool3d(taper.ones(1, 1, 2, 2, 2), 1, 2).shape
    taper.Size([1, 1, 1, 1, 1])
    """
    kd, kh, kw = _pair(kernel_size, 3)
    out = avg_pool3d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return (out.sign() * relu(out.abs())).mul(kd * kh * kw).pow(1.0 / norm_type)


def _unpool_size(input, kernel_size, stride, padding, output_size):
    """The size before pooling: the smallest one, or the one asked for when pooling could have had it."""
    nd = len(kernel_size)
    least = [(n - 1) * s + k - 2 * p for n, k, s, p in zip(input.shape[-nd:], kernel_size, stride, padding)]
    if output_size is None:
        return least
    output_size = list(output_size)
    if len(output_size) == nd + 2:
        output_size = output_size[2:]
    if len(output_size) != nd:
        raise ValueError(f"output_size should be a sequence containing {nd} or {nd + 2} elements, but it has a length of '{len(output_size)}'")
    for d, n in enumerate(least):
        if not n - stride[d] < output_size[d] < n + stride[d]:
            raise ValueError(f'invalid output_size "{output_size}" (dim {d} must be between {n - stride[d]} and {n + stride[d]})')
    return output_size


def _max_unpool(nd):
    def f(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        kernel_size, padding = _pair(kernel_size, nd), _pair(padding, nd)
        stride = _pair(stride, nd) if stride is not None else kernel_size
        size = _unpool_size(input, kernel_size, stride, padding, output_size)
        if nd == 1:
            return _call("max_unpool2d", input.unsqueeze(-1), indices.unsqueeze(-1), [size[0], 1]).squeeze(-1)
        if nd == 2:
            return _call("max_unpool2d", input, indices, size)
        return _call("max_unpool3d", input, indices, size, list(stride), list(padding))

    f.__name__ = f.__qualname__ = f"max_unpool{nd}d"
    sizes = ", ".join("2" * nd)
    f.__doc__ = f"""Puts values back where max pooling found them.

    >>> F.max_unpool{nd}d(*F.max_pool{nd}d(taper.ones(1, 1, {sizes}), 2, return_indices=True), 2).shape
    taper.Size([1, 1, {sizes}])
    """
    return f


max_unpool1d, max_unpool2d, max_unpool3d = _max_unpool(1), _max_unpool(2), _max_unpool(3)


def _fractional_max_pool(nd):
    def f(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        if output_size is None and output_ratio is None:
            raise ValueError(f"fractional_max_pool{nd}d requires specifying either an output_size or an output_ratio")
        if output_size is None:
            ratio = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * nd
            if len(ratio) > nd:
                raise ValueError(f"fractional_max_pool{nd}d requires output_ratio to either be a single Int or tuple of Ints.")
            output_size = [int(n * r) for n, r in zip(input.shape[-nd:], ratio)]
        if _random_samples is None:
            n = 1 if input.dim() == nd + 1 else input.size(0)
            _random_samples = taper.rand(n, input.size(-nd - 1), nd, dtype=input.dtype)
        r = _call(f"fractional_max_pool{nd}d", input, list(_pair(kernel_size, nd)), list(_pair(output_size, nd)), _random_samples)
        return r if return_indices else r[0]

    f.__name__ = f.__qualname__ = f"fractional_max_pool{nd}d"
    f.__doc__ = f"""Max pooling with windows at pseudorandom steps.

    >>> F.fractional_max_pool{nd}d(taper.ones(1, 1, {", ".join("5" * nd)}), 2, output_size=3).shape
    taper.Size([1, 1, {", ".join("3" * nd)}])
    """
    return f


fractional_max_pool2d, fractional_max_pool3d = _fractional_max_pool(2), _fractional_max_pool(3)


def upsample_nearest(input, size=None, scale_factor=None):
    """Makes images larger: the nearest pixel.

    >>> F.upsample_nearest(taper.tensor([[[[1.0, 2.0]]]]), scale_factor=2)
    tensor([[[[1., 1., 2., 2.],
              [1., 1., 2., 2.]]]])
    """
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    """Makes images larger, by linear interpolation of rows and columns.

    >>> F.upsample_bilinear(taper.ones(1, 1, 2, 2), scale_factor=2).shape
    taper.Size([1, 1, 4, 4])
    """
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def pad(input, pad, mode="constant", value=None):
    """Pads the last dimensions: (left, right) of the last, then of the one before.

    >>> F.pad(taper.tensor([1.0, 2.0]), (1, 0))
    tensor([0., 1., 2.])
    """
    return _call("pad", input, list(pad), mode, value)


def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    """Makes signals or images larger or smaller: the nearest value, or an interpolation (mode).

    >>> F.interpolate(taper.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    if not isinstance(input, taper.Tensor):  # one call for whoever takes it over
        got = _C._taken(interpolate, (input,), dict(size=size, scale_factor=scale_factor, mode=mode, align_corners=align_corners,
                                                    recompute_scale_factor=recompute_scale_factor, antialias=antialias))
        if got is not None:
            return got[0]
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    nd = input.dim() - 2
    modes = "nearest | linear | bilinear | bicubic | trilinear | area | nearest-exact"
    if not 1 <= nd <= 3:
        raise NotImplementedError(f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.dim()}D) for the modes: {modes} (got {mode})")
    if antialias:
        if mode not in ("bilinear", "bicubic") or nd != 2:
            raise ValueError("Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input")
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise ValueError("align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear")
    if size is not None:
        out = list(_pair(size, nd))
        scales = [None] * nd
    else:
        f = [float(scale_factor)] * nd if isinstance(scale_factor, (int, float)) else [float(s) for s in scale_factor]
        if len(f) != nd:
            raise ValueError(f"Input and scale_factor must have the same number of spatial dimensions, but got input with spatial dimensions of {list(input.shape[2:])} and scale_factor of shape {scale_factor}.")
        out = [int(math.floor(float(input.shape[i + 2]) * f[i])) for i in range(nd)]
        scales = [None] * nd if recompute_scale_factor else f
    if mode == "area":
        return {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}[nd](input, out)
    if mode == "nearest":
        return _call(f"upsample_nearest{nd}d", input, out, *scales)
    if mode == "nearest-exact":
        return _call(f"_upsample_nearest_exact{nd}d", input, out, *scales)
    ac = bool(align_corners)
    names = {"linear": (1, "upsample_linear1d"), "bilinear": (2, "upsample_bilinear2d"), "trilinear": (3, "upsample_trilinear3d"), "bicubic": (2, "upsample_bicubic2d")}
    if mode not in names:
        raise NotImplementedError(f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.dim()}D) for the modes: {modes} (got {mode})")
    want, row = names[mode]
    if want != nd:
        raise NotImplementedError(f"Got {input.dim()}D input, but {mode} mode needs {want + 2}D input")
    return _call(f"_{row}_aa" if antialias else row, input, out, ac, *scales)


upsample = interpolate


def pixel_shuffle(input, upscale_factor):
    """Makes images r times as large out of r * r channels.

    >>> F.pixel_shuffle(taper.arange(4.0).view(1, 4, 1, 1), 2)
    tensor([[[[0., 1.],
              [2., 3.]]]])
    """
    return taper.pixel_shuffle(input, upscale_factor)


def pixel_unshuffle(input, downscale_factor):
    """Undoes pixel_shuffle: r * r channels out of each block of pixels.

    >>> F.pixel_unshuffle(taper.zeros(1, 1, 4, 4), 2).shape
    taper.Size([1, 4, 2, 2])
    """
    return taper.pixel_unshuffle(input, downscale_factor)


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """The sliding blocks of an image, one a column.

    >>> F.unfold(taper.ones(1, 1, 3, 3), 2).shape
    taper.Size([1, 4, 4])
    """
    return _call("im2col", input, _pair(kernel_size, 2), _pair(dilation, 2), _pair(padding, 2), _pair(stride, 2))


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Sums sliding blocks, as unfold makes them, into an image.

    >>> F.fold(taper.ones(1, 4, 4), (3, 3), 2)
    tensor([[[[1., 2., 1.],
              [2., 4., 2.],
              [1., 2., 1.]]]])
    """
    return _call("col2im", input, _pair(output_size, 2), _pair(kernel_size, 2), _pair(dilation, 2), _pair(padding, 2), _pair(stride, 2))


def channel_shuffle(input, groups):
    """Deals the channels out to groups, as one shuffles cards.

    >>> F.channel_shuffle(taper.arange(4.0).view(1, 4, 1, 1), 2).flatten()
    tensor([0., 2., 1., 3.])
    """
    return taper.channel_shuffle(input, groups)


# --- losses ------------------------------------------------------------------------------------------------------------
def _warn_size(name, input, target):
    if target.size() != input.size():
        warnings.warn(f"Using a target size ({target.size()}) that is different to the input size ({input.size()}). "
                      "This will likely lead to incorrect results due to broadcasting. Please ensure they have the same size.", stacklevel=3)


def _broadcast(a, b):
    return taper.broadcast_tensors(a, b)


def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """The mean of (input - target) ** 2.

    >>> F.mse_loss(taper.tensor([1.0, 2.0]), taper.tensor([1.0, 4.0]))
    tensor(2.)
    """
    _warn_size("mse_loss", input, target)
    a, b = _broadcast(input, target)
    return _call("mse_loss", a, b, _red(reduction))


def l1_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """The mean of abs(input - target).

    >>> F.l1_loss(taper.tensor([1.0, 2.0]), taper.tensor([1.0, 4.0]))
    tensor(1.)
    """
    _warn_size("l1_loss", input, target)
    a, b = _broadcast(input, target)
    return _call("l1_loss", a, b, _red(reduction))


def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """Quadratic for differences below beta, linear above.

    >>> F.smooth_l1_loss(taper.tensor([0.0, 0.0]), taper.tensor([1.0, 3.0]))
    tensor(1.5000)
    """
    _warn_size("smooth_l1_loss", input, target)
    a, b = _broadcast(input, target)
    if beta == 0.0:
        return _call("l1_loss", a, b, _red(reduction))
    return _call("smooth_l1_loss", a, b, _red(reduction), beta)


def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """Quadratic for differences below delta, linear above.

    >>> F.huber_loss(taper.tensor([0.0, 0.0]), taper.tensor([1.0, 3.0]))
    tensor(1.5000)
    """
    _warn_size("huber_loss", input, target)
    a, b = _broadcast(input, target)
    return _call("huber_loss", a, b, _red(reduction), delta)


def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    """-log(softmax(input)[target]): the loss of a classifier, from logits and numbers of classes.

    >>> F.cross_entropy(taper.zeros(1, 2), taper.tensor([1]))
    tensor(0.6931)
    """
    return _call("cross_entropy_loss", input, target, weight, _red(reduction), ignore_index, label_smoothing)


def linear_cross_entropy(input, linear_weight, target, *, linear_bias=None, weight=None, reduction="mean", ignore_index=None, label_smoothing=0.0,
                         options=None):
    """cross_entropy of linear(input, linear_weight, linear_bias). Weights of more than two dimensions, (classes, ..., in), give logits of
    (batch, classes, ...). `options` choose how much is computed at a time in PyTorch; the result is the same without them.

    >>> F.linear_cross_entropy(taper.ones(1, 3), taper.zeros(2, 3), taper.tensor([1]))
    tensor(0.6931)
    """
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}")
    classes, shape = linear_weight.shape[:-1], tuple(linear_weight.shape)
    if input.shape[-1] != shape[-1]:
        raise RuntimeError(f"expected equal input and linear_weight last dimensions (in_features), got {input.shape[-1]} and {shape[-1]}, respectively")
    if len(classes) > 1 and input.dim() != 2:
        raise RuntimeError(f"K-dimensional loss defined by linear_weight shape {shape} requires batched input, (N, {shape[-1]}), "
                           f"got unbatched input with shape {tuple(input.shape)}")
    if linear_bias is not None and linear_bias.shape != classes:
        raise RuntimeError(f"expected linear_bias shape {tuple(classes)}, got {tuple(linear_bias.shape)}")
    if ignore_index is not None and target.is_floating_point():
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    logits = linear(input, linear_weight.flatten(0, -2), None if linear_bias is None else linear_bias.flatten())
    if len(classes) > 1:
        logits = logits.unflatten(-1, classes)
    return cross_entropy(logits, target, weight=weight, reduction=reduction, ignore_index=-100 if ignore_index is None else ignore_index,
                         label_smoothing=label_smoothing)


def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """-input[target], where input holds logarithms of probabilities

    >>> F.nll_loss(taper.tensor([[0.25, 0.75]]).log(), taper.tensor([1]))
    tensor(0.2877)
    """
    return _call("nll_loss_nd", input, target, weight, _red(reduction), ignore_index)


def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """-(y * log(p) + (1 - y) * log(1 - p)) of probabilities p

    >>> F.binary_cross_entropy(taper.tensor([0.5]), taper.tensor([1.0]))
    tensor(0.6931)
    """
    if target.size() != input.size():
        raise ValueError(f"Using a target size ({target.size()}) that is different to the input size ({input.size()}) is deprecated. Please ensure they have the same size.")
    return _call("binary_cross_entropy", input, target, weight, _red(reduction))


def binary_cross_entropy_with_logits(input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None):
    """Binary cross entropy of sigmoid(input), computed without overflow.

    >>> F.binary_cross_entropy_with_logits(taper.tensor([0.0]), taper.tensor([1.0]))
    tensor(0.6931)
    """
    if target.size() != input.size():
        raise ValueError(f"Target size ({target.size()}) must be the same as input size ({input.size()})")
    return _call("binary_cross_entropy_with_logits", input, target, weight, pos_weight, _red(reduction))


def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """target * (log(target) - input), where input holds logarithms of probabilities

    >>> F.kl_div(taper.tensor([0.5, 0.5]).log(), taper.tensor([1.0, 0.0]), reduction="sum")
    tensor(0.6931)
    """
    for t in (input, target):
        if isinstance(t, taper.Tensor) and not t.is_floating_point():
            raise RuntimeError("kl_div: Integral inputs not supported.")
    if reduction == "batchmean":
        return _call("kl_div", input, target, 2, log_target=log_target) / input.size(0)
    return _call("kl_div", input, target, _red(reduction), log_target=log_target)


def _reduce(x, reduction):
    _red(reduction)
    return x.mean() if reduction == "mean" else x.sum() if reduction == "sum" else x


def poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"):
    """The negative log likelihood of counts; input is the logarithm of the rate.

    >>> F.poisson_nll_loss(taper.tensor([0.0]), taper.tensor([2.0]))
    tensor(1.)
    """
    return _call("poisson_nll_loss", input, target, log_input, full, eps, _red(reduction))


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """The negative log likelihood of targets under normal distributions with given means and variances.

    >>> F.gaussian_nll_loss(taper.tensor([1.0]), taper.tensor([3.0]), taper.tensor([1.0]))
    tensor(2.)
    """
    if not isinstance(var, taper.Tensor):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * taper.ones_like(input)
    elif bool((var < 0).any()):
        raise ValueError("var has negative entry/entries")
    if var.shape != input.shape:
        if input.shape[:-1] == var.shape:  # one variance a row
            var = var.unsqueeze(-1)
        elif input.dim() != var.dim() or sum(y for x, y in zip(input.shape, var.shape) if x != y) != 1:
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    var = var.clone()
    with taper.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduce(loss, reduction)


def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """log(1 + exp(-target * input))

    >>> F.soft_margin_loss(taper.tensor([0.0]), taper.tensor([1.0]))
    tensor(0.6931)
    """
    return _call("soft_margin_loss", input, target, _red(reduction))


def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """x where target is 1, max(0, margin - x) where it is -1

    >>> F.hinge_embedding_loss(taper.tensor([0.5, 0.5]), taper.tensor([1, -1]))
    tensor(0.5000)
    """
    return _call("hinge_embedding_loss", input, target, margin, _red(reduction))


def margin_ranking_loss(input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction="mean"):
    """max(0, -target * (a - b) + margin): a should rank above b where target is 1.

    >>> F.margin_ranking_loss(taper.tensor([1.0]), taper.tensor([2.0]), taper.tensor([1.0]))
    tensor(1.)
    """
    return _call("margin_ranking_loss", input1, input2, target, margin, _red(reduction))


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between vectors along dim.

    >>> F.cosine_similarity(taper.tensor([1.0, 0.0]), taper.tensor([1.0, 1.0]), dim=0)
    tensor(0.7071)
    """
    return taper.cosine_similarity(x1, x2, dim, eps)


def cosine_embedding_loss(input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction="mean"):
    """1 - cos(a, b) for pairs with target 1, max(0, cos(a, b) - margin) for those with -1.

    >>> F.cosine_embedding_loss(taper.tensor([[1.0, 0.0]]), taper.tensor([[0.0, 1.0]]), taper.tensor([1]))
    tensor(1.)
    """
    return _call("cosine_embedding_loss", input1, input2, target, margin, _red(reduction))


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of the difference of vectors.

    >>> F.pairwise_distance(taper.tensor([[0.0, 0.0]]), taper.tensor([[3.0, 4.0]]), eps=0.0)
    tensor([5.])
    """
    return (x1 - x2 + eps).norm(p, -1, keepdim)


def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean"):
    """max(0, distance(anchor, positive) - distance(anchor, negative) + margin)

    >>> F.triplet_margin_loss(taper.zeros(1, 2), taper.tensor([[3.0, 4.0]]), taper.tensor([[0.0, 1.0]]), eps=0.0)
    tensor(5.)
    """
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _call("triplet_margin_loss", anchor, positive, negative, margin, p, eps, swap, _red(reduction))


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
    """triplet_margin_loss with a distance of one's own.

    >>> F.triplet_margin_with_distance_loss(taper.zeros(1, 2), taper.ones(1, 2), taper.ones(1, 2), distance_function=lambda a, b: (a - b).abs().sum(-1))
    tensor(1.)
    """
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    _red(reduction)
    distance = distance_function if distance_function is not None else pairwise_distance
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError("The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
                           f"anchor {anchor.dim()}D, positive {positive.dim()}D, and negative {negative.dim()}D inputs")
    dp, dn = distance(anchor, positive), distance(anchor, negative)
    if swap:
        dn = taper.minimum(dn, distance(positive, negative))
    return _reduce((margin + dp - dn).clamp_min(0), reduction)


def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The hinge loss of a classifier.

    >>> F.multi_margin_loss(taper.tensor([[0.0, 0.0]]), taper.tensor([1]))
    tensor(0.5000)
    """
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    return _call("multi_margin_loss", input, target, p, margin, weight, _red(reduction))


def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """The hinge loss of several classes at once; targets end with -1.

    >>> F.multilabel_margin_loss(taper.tensor([[0.1, 0.2, 0.4]]), taper.tensor([[2, -1, -1]]))
    tensor(0.5000)
    """
    return _call("multilabel_margin_loss", input, target, _red(reduction))


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """Connectionist temporal classification: the loss of a sequence of targets that is aligned to no times.

    >>> F.ctc_loss(taper.zeros(4, 1, 3).log_softmax(2), taper.tensor([[1, 2]]), (4,), (2,))
    tensor(0.8432)
    """
    return taper.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, _red(reduction), zero_infinity)


def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The mean binary cross entropy of several classes at once.

    >>> F.multilabel_soft_margin_loss(taper.zeros(1, 2), taper.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return _reduce(loss.sum(-1) / input.size(-1), reduction)


# --- attention -----------------------------------------------------------------------------------------------------------
def multi_head_attention_forward(query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn,
                                 dropout_p, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None, need_weights=True, attn_mask=None,
                                 use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None,
                                 static_v=None, average_attn_weights=True, is_causal=False):
    """What nn.MultiheadAttention computes, as a function of all its weights.

    >>> F.multi_head_attention_forward(*[taper.ones(3, 1, 4)] * 3, 4, 2, taper.ones(12, 4), None, None, None, False, 0.0, taper.ones(4, 4), None)[0].shape
    taper.Size([3, 1, 4])
    """
    batched = query.dim() == 3
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    tgt, bsz, dim = query.shape
    src = key.shape[0]
    head = dim // num_heads
    assert dim == embed_dim_to_check, f"was expecting embedding dimension of {embed_dim_to_check}, but got {dim}"
    assert head * num_heads == dim, f"embed_dim {dim} not divisible by num_heads {num_heads}"
    if use_separate_proj_weight:
        bq, bk, bv = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        q = taper.linear(query, q_proj_weight, bq)
        k = taper.linear(key, k_proj_weight, bk)
        v = taper.linear(value, v_proj_weight, bv)
    elif query is key and key is value:
        q, k, v = taper.linear(query, in_proj_weight, in_proj_bias).chunk(3, -1)
    else:
        wq, wk, wv = in_proj_weight.chunk(3)
        bq, bk, bv = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        q, k, v = taper.linear(query, wq, bq), taper.linear(key, wk, bk), taper.linear(value, wv, bv)

    def as_float(mask, like):
        if mask.dtype == taper.bool:
            return taper.zeros(mask.shape, dtype=like.dtype, device=mask.device).masked_fill(mask, float("-inf"))
        return mask

    if attn_mask is not None:
        attn_mask = as_float(attn_mask, q)
        if attn_mask.dim() == 2:
            attn_mask = attn_mask.unsqueeze(0)
    if bias_k is not None and bias_v is not None:
        k = taper.cat([k, bias_k.repeat(1, bsz, 1)])
        v = taper.cat([v, bias_v.repeat(1, bsz, 1)])
        if attn_mask is not None:
            attn_mask = pad(attn_mask, (0, 1))
        if key_padding_mask is not None:
            key_padding_mask = pad(key_padding_mask, (0, 1))
        src += 1
    q = q.reshape(tgt, bsz * num_heads, head).transpose(0, 1)
    k = k.reshape(src, bsz * num_heads, head).transpose(0, 1)
    v = v.reshape(src, bsz * num_heads, head).transpose(0, 1)
    if add_zero_attn:
        z = taper.zeros(bsz * num_heads, 1, head, dtype=k.dtype, device=k.device)
        k, v = taper.cat([k, z], 1), taper.cat([v, z], 1)
        if attn_mask is not None:
            attn_mask = pad(attn_mask, (0, 1))
        if key_padding_mask is not None:
            key_padding_mask = pad(key_padding_mask, (0, 1))
        src += 1
    if key_padding_mask is not None:
        kpm = as_float(key_padding_mask, q).view(bsz, 1, 1, src).expand(-1, num_heads, -1, -1).reshape(bsz * num_heads, 1, src)
        attn_mask = kpm if attn_mask is None else attn_mask + kpm
    p = dropout_p if training else 0.0
    if need_weights:
        scores = taper.bmm(q * math.sqrt(1.0 / head), k.transpose(-2, -1))
        if attn_mask is not None:
            scores = scores + attn_mask
        w = taper.softmax(scores, -1)
        if p > 0.0:
            w = dropout(w, p)
        out = taper.bmm(w, v).transpose(0, 1).reshape(tgt * bsz, dim)
        out = taper.linear(out, out_proj_weight, out_proj_bias).view(tgt, bsz, dim)
        w = w.view(bsz, num_heads, tgt, src)
        if average_attn_weights:
            w = w.mean(1)
        return (out, w) if batched else (out.squeeze(1), w.squeeze(0))
    if attn_mask is not None:
        attn_mask = attn_mask.unsqueeze(0) if attn_mask.size(0) == 1 else attn_mask.view(bsz, num_heads, -1, src)
    out = taper.scaled_dot_product_attention(q.reshape(bsz, num_heads, tgt, head), k.reshape(bsz, num_heads, src, head),
                                             v.reshape(bsz, num_heads, src, head), attn_mask, p, is_causal and attn_mask is None)
    out = out.permute(2, 0, 1, 3).reshape(tgt * bsz, dim)
    out = taper.linear(out, out_proj_weight, out_proj_bias).view(tgt, bsz, dim)
    return (out if batched else out.squeeze(1)), None


def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """Products by groups of rows or columns, as a mixture of experts has them; offs says where each group ends.

    >>> x, w = taper.ones(4, 16, dtype=taper.bfloat16), taper.ones(2, 16, 8, dtype=taper.bfloat16)
    >>> F.grouped_mm(x, w, offs=taper.tensor([1, 4], dtype=taper.int32)).shape
    taper.Size([4, 8])
    """
    from ._grouped import grouped_mm
    return grouped_mm(mat_a, mat_b, offs=offs, bias=bias, out_dtype=out_dtype)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """softmax(query @ key.T / sqrt(d) + mask) @ value, without the whole matrix where it can be avoided.

    >>> F.scaled_dot_product_attention(taper.ones(1, 2, 3, 4), taper.ones(1, 2, 5, 4), taper.ones(1, 2, 5, 4)).shape
    taper.Size([1, 2, 3, 4])
    """
    return taper.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def _writing(name):
    def f(input, *args, **kw):
        return globals()[name](input, *args, inplace=True, **kw)
    f.__name__ = f.__qualname__ = name + "_"
    f.__doc__ = f"{name}(..., inplace=True)" + _shown(name, "_")
    return f


for _n in ("relu", "elu", "celu", "selu", "hardtanh", "leaky_relu", "rrelu", "threshold"):
    globals()[_n + "_"] = _writing(_n)
del _n


(max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices, adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices,
 adaptive_max_pool3d_with_indices) = map(_with_indices, (max_pool1d, max_pool2d, max_pool3d, adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d))


_overridable_functions(globals(), """adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool1d_with_indices adaptive_max_pool2d
adaptive_max_pool2d_with_indices adaptive_max_pool3d adaptive_max_pool3d_with_indices binary_cross_entropy binary_cross_entropy_with_logits dropout1d
dropout2d dropout3d embedding_bag fractional_max_pool2d fractional_max_pool3d gaussian_nll_loss glu gumbel_softmax huber_loss l1_loss linear_cross_entropy
local_response_norm lp_pool1d lp_pool2d lp_pool3d max_pool2d_with_indices max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d mse_loss
multilabel_soft_margin_loss normalize pairwise_distance rrelu smooth_l1_loss softmin softsign tanhshrink triplet_margin_with_distance_loss""".split())
