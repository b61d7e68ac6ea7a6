"""Activations and dropout as modules."""
import taper
from .. import functional as F, init
from ..parameter import Parameter
from .linear import Linear
from .module import Module


def _simple(name, fn, doc, printed):
    class A(Module):
        def forward(self, input):
            return fn(input)

    A.__name__ = A.__qualname__ = name
    A.__doc__ = f"""{doc}

    >>> nn.{name}()(taper.tensor([-1.0, 2.0]))
    {printed}
    """
    return A


Sigmoid = _simple("Sigmoid", lambda x: x.sigmoid(), "1 / (1 + exp(-x))", "tensor([0.2689, 0.8808])")
Tanh = _simple("Tanh", lambda x: x.tanh(), "tanh(x)", "tensor([-0.7616,  0.9640])")
Softsign = _simple("Softsign", F.softsign, "x / (1 + |x|)", "tensor([-0.5000,  0.6667])")
LogSigmoid = _simple("LogSigmoid", F.logsigmoid, "log(sigmoid(x))", "tensor([-1.3133, -0.1269])")
Tanhshrink = _simple("Tanhshrink", F.tanhshrink, "x - tanh(x)", "tensor([-0.2384,  1.0360])")


class _Inplace(Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""


class ReLU(_Inplace):
    """max(0, x)

    >>> nn.ReLU()(taper.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    def forward(self, input):
        return F.relu(input, inplace=self.inplace)


class ReLU6(_Inplace):
    """min(max(0, x), 6)

    >>> nn.ReLU6()(taper.tensor([-1.0, 2.0, 8.0]))
    tensor([0., 2., 6.])
    """
    def forward(self, input):
        return F.relu6(input, inplace=self.inplace)


class SELU(_Inplace):
    """scale * (max(0, x) + min(0, alpha * (exp(x) - 1))), which keeps mean 0 and variance 1.

    >>> nn.SELU()(taper.tensor([-1.0, 2.0]))
    tensor([-1.1113,  2.1014])
    """
    def forward(self, input):
        return F.selu(input, inplace=self.inplace)


class SiLU(_Inplace):
    """x * sigmoid(x)

    >>> nn.SiLU()(taper.tensor([-1.0, 2.0]))
    tensor([-0.2689,  1.7616])
    """
    def forward(self, input):
        return F.silu(input, inplace=self.inplace)


class Mish(_Inplace):
    """x * tanh(softplus(x))

    >>> nn.Mish()(taper.tensor([-1.0, 2.0]))
    tensor([-0.3034,  1.9440])
    """
    def forward(self, input):
        return F.mish(input, inplace=self.inplace)


class Hardswish(_Inplace):
    """x * hardsigmoid(x)

    >>> nn.Hardswish()(taper.tensor([-4.0, 0.0, 4.0]))
    tensor([-0., 0., 4.])
    """
    def forward(self, input):
        return F.hardswish(input, inplace=self.inplace)


class Hardsigmoid(_Inplace):
    """clamp(x / 6 + 1 / 2, 0, 1)

    >>> nn.Hardsigmoid()(taper.tensor([-4.0, 0.0, 4.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    def forward(self, input):
        return F.hardsigmoid(input, inplace=self.inplace)


class LeakyReLU(Module):
    """x where x > 0, else negative_slope * x

    >>> nn.LeakyReLU(0.1)(taper.tensor([-1.0, 2.0]))
    tensor([-0.1000,  2.0000])
    """
    def __init__(self, negative_slope=1e-2, inplace=False):
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input):
        return F.leaky_relu(input, self.negative_slope, inplace=self.inplace)

    def extra_repr(self):
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(Module):
    """x where x > 0, else alpha * (exp(x) - 1)

    >>> nn.ELU()(taper.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """
    def __init__(self, alpha=1.0, inplace=False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input):
        return F.elu(input, self.alpha, inplace=self.inplace)

    def extra_repr(self):
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(Module):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))

    >>> nn.CELU()(taper.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """
    def __init__(self, alpha=1.0, inplace=False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input):
        return F.celu(input, self.alpha, inplace=self.inplace)

    def extra_repr(self):
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class RReLU(Module):
    """LeakyReLU with a slope that is drawn in training, and the mean of its bounds in evaluation.

    >>> nn.RReLU(0.1, 0.3).eval()(taper.tensor([-1.0, 2.0]))
    tensor([-0.2000,  2.0000])
    """
    def __init__(self, lower=1.0 / 8, upper=1.0 / 3, inplace=False):
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input):
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self):
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class GELU(Module):
    """x * Phi(x), Phi the distribution function of the normal distribution.

    >>> nn.GELU()(taper.tensor([-1.0, 2.0]))
    tensor([-0.1587,  1.9545])
    """
    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input):
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta

    >>> nn.Softplus()(taper.tensor([0.0, 2.0]))
    tensor([0.6931, 2.1269])
    """
    def __init__(self, beta=1.0, threshold=20.0):
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input):
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self):
        return f"beta={self.beta}, threshold={self.threshold}"


class Hardtanh(Module):
    """clamp(x, min_val, max_val)

    >>> nn.Hardtanh()(taper.tensor([-4.0, 0.5, 4.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """
    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False):
        super().__init__()
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace
        assert self.max_val > self.min_val

    def forward(self, input):
        return F.hardtanh(input, self.min_val, self.max_val, inplace=self.inplace)

    def extra_repr(self):
        return f"min_val={self.min_val}, max_val={self.max_val}" + (", inplace=True" if self.inplace else "")


class Hardshrink(Module):
    """x where abs(x) > lambd, else 0

    >>> nn.Hardshrink()(taper.tensor([-1.0, 0.2, 2.0]))
    tensor([-1.,  0.,  2.])
    """
    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input):
        return taper.hardshrink(input, self.lambd)

    def extra_repr(self):
        return f"{self.lambd}"


class Softshrink(Module):
    """x moved towards 0 by lambd, and 0 where it would change its sign.

    >>> nn.Softshrink()(taper.tensor([-1.0, 0.2, 2.0]))
    tensor([-0.5000,  0.0000,  1.5000])
    """
    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input):
        return F.softshrink(input, self.lambd)

    def extra_repr(self):
        return str(self.lambd)


class Threshold(Module):
    """x where x > threshold, else value

    >>> nn.Threshold(0.5, 9.0)(taper.tensor([0.2, 2.0]))
    tensor([9., 2.])
    """
    def __init__(self, threshold, value, inplace=False):
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input):
        return F.threshold(input, self.threshold, self.value, inplace=self.inplace)

    def extra_repr(self):
        return f"threshold={self.threshold}, value={self.value}" + (", inplace=True" if self.inplace else "")


class PReLU(Module):
    """x where x > 0, else weight * x; weight is learned.

    >>> nn.PReLU()(taper.tensor([-1.0, 2.0])).detach()
    tensor([-0.2500,  2.0000])
    """
    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = Parameter(taper.full((num_parameters,), init, device=device, dtype=dtype))

    def forward(self, input):
        return taper.prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"


class GLU(Module):
    """a * sigmoid(b), where a and b are the halves of the input along dim.

    >>> nn.GLU()(taper.tensor([1.0, 2.0, 0.0, 0.0]))
    tensor([0.5000, 1.0000])
    """
    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.glu(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class Softmax(Module):
    """exp(x) divided by its sum along dim

    >>> nn.Softmax(dim=0)(taper.tensor([0.0, 0.0]))
    tensor([0.5000, 0.5000])
    """
    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.softmax(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """log(softmax(x)) along dim

    >>> nn.LogSoftmax(dim=0)(taper.tensor([0.0, 0.0]))
    tensor([-0.6931, -0.6931])
    """
    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.log_softmax(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class Softmin(Module):
    """softmax(-x) along dim

    >>> nn.Softmin(dim=0)(taper.tensor([0.0, 0.0]))
    tensor([0.5000, 0.5000])
    """
    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.softmin(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class Softmax2d(Module):
    """Softmax over the channels of each pixel.

    >>> nn.Softmax2d()(taper.zeros(1, 2, 1, 1)).flatten()
    tensor([0.5000, 0.5000])
    """
    def forward(self, input):
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3)


class _DropoutNd(Module):
    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training zeros elements with probability p and divides the others by 1 - p; in evaluation the input itself.

    >>> nn.Dropout(0.5).eval()(taper.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    def forward(self, input):
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Dropout of whole channels: (batch, channels, length).

    >>> nn.Dropout1d(0.5).eval()(taper.ones(1, 2, 3)).shape
    taper.Size([1, 2, 3])
    """
    def forward(self, input):
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Dropout of whole channels: (batch, channels, height, width).

    >>> nn.Dropout2d(0.5).eval()(taper.ones(1, 2, 3, 3)).shape
    taper.Size([1, 2, 3, 3])
    """
    def forward(self, input):
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Dropout of whole channels: (batch, channels, depth, height, width).

    >>> nn.Dropout3d(0.5).eval()(taper.ones(1, 2, 3, 3, 3)).shape
    taper.Size([1, 2, 3, 3, 3])
    """
    def forward(self, input):
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance of what SELU makes.

    >>> nn.AlphaDropout(0.5).eval()(taper.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    def forward(self, input):
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels.

    >>> nn.FeatureAlphaDropout(0.5).eval()(taper.ones(1, 2, 3)).shape
    taper.Size([1, 2, 3])
    """
    def forward(self, input):
        return F.feature_alpha_dropout(input, self.p, self.training)


class NonDynamicallyQuantizableLinear(Linear):
    """Linear under the name that state dicts and printouts of attention use.

    >>> nn.NonDynamicallyQuantizableLinear(3, 4)(taper.ones(2, 3)).shape
    taper.Size([2, 4])
    """


class MultiheadAttention(Module):
    """Attention of several heads between projections of query, key and value; returns the result and the weights.

    >>> nn.MultiheadAttention(8, num_heads=2, batch_first=True)(*[taper.ones(1, 3, 8)] * 3)[0].shape
    taper.Size([1, 3, 8])
    """
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None, vdim=None, batch_first=False,
                 device=None, dtype=None):
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} instead")
        kw = {"device": device, "dtype": dtype}
        self.embed_dim = embed_dim
        self.kdim, self.vdim = kdim if kdim is not None else embed_dim, vdim if vdim is not None else embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads, self.dropout, self.batch_first = num_heads, dropout, batch_first
        self.head_dim = embed_dim // num_heads
        assert self.head_dim * num_heads == embed_dim, "embed_dim must be divisible by num_heads"
        if self._qkv_same_embed_dim:
            self.in_proj_weight = Parameter(taper.empty((3 * embed_dim, embed_dim), **kw))
            self.register_parameter("q_proj_weight", None)
            self.register_parameter("k_proj_weight", None)
            self.register_parameter("v_proj_weight", None)
        else:
            self.q_proj_weight = Parameter(taper.empty((embed_dim, embed_dim), **kw))
            self.k_proj_weight = Parameter(taper.empty((embed_dim, self.kdim), **kw))
            self.v_proj_weight = Parameter(taper.empty((embed_dim, self.vdim), **kw))
            self.register_parameter("in_proj_weight", None)
        if bias:
            self.in_proj_bias = Parameter(taper.empty((3 * embed_dim,), **kw))
        else:
            self.register_parameter("in_proj_bias", None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **kw)
        if add_bias_kv:
            self.bias_k = Parameter(taper.empty((1, 1, embed_dim), **kw))
            self.bias_v = Parameter(taper.empty((1, 1, embed_dim), **kw))
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self):
        if self._qkv_same_embed_dim:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            init.xavier_uniform_(self.q_proj_weight)
            init.xavier_uniform_(self.k_proj_weight)
            init.xavier_uniform_(self.v_proj_weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        if self.bias_k is not None:
            init.xavier_normal_(self.bias_k)
            init.xavier_normal_(self.bias_v)

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True, is_causal=False):
        batched = query.dim() == 3
        plain = self._plain(query, key, value, key_padding_mask, attn_mask)
        if self.batch_first and batched:
            if query is key and key is value:
                query = key = value = query.transpose(1, 0)
            else:
                query, key, value = query.transpose(1, 0), key.transpose(1, 0), value.transpose(1, 0)
        out, w = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v,
            self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, training=self.training,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim, q_proj_weight=self.q_proj_weight, k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight, average_attn_weights=average_attn_weights, is_causal=is_causal)
        if self.batch_first and batched:
            out = out.transpose(1, 0)
        return out.contiguous() if plain else out, w

    def _plain(self, query, key, value, key_padding_mask, attn_mask):
        """Self-attention in evaluation without gradients: PyTorch has a kernel for it, whose result is contiguous."""
        if self.training or not self.batch_first or query.dim() != 3 or not (query is key and key is value):
            return False
        if not self._qkv_same_embed_dim or self.in_proj_bias is None or self.bias_k is not None or self.bias_v is not None or self.add_zero_attn:
            return False
        if self.num_heads % 2 or query.dtype != self.in_proj_weight.dtype or (key_padding_mask is not None and attn_mask is not None):
            return False
        return not taper.is_grad_enabled() or not any(
            t.requires_grad for t in (query, self.in_proj_weight, self.in_proj_bias, self.out_proj.weight, self.out_proj.bias))
