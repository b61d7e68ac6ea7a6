import math

import taper
from .. import functional as F, init
from ..parameter import Parameter
from .module import Module


def _tuple(v, n):
    return (v,) * n if isinstance(v, int) else tuple(v)


class _ConvNd(Module):
    def __init__(self, nd, in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding, groups, bias, padding_mode,
                 device=None, dtype=None):
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}")
            if padding == "same" and any(s != 1 for s in _tuple(stride, nd)):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError(f"padding_mode must be one of {{'zeros', 'reflect', 'replicate', 'circular'}}, but got padding_mode='{padding_mode}'")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.dilation = _tuple(kernel_size, nd), _tuple(stride, nd), _tuple(dilation, nd)
        self.padding = padding if isinstance(padding, str) else _tuple(padding, nd)
        self.transposed, self.output_padding = transposed, _tuple(output_padding, nd)
        self.groups, self.padding_mode = groups, padding_mode
        if isinstance(padding, str):
            self._pads = []
            for d, k in zip(self.dilation[::-1], self.kernel_size[::-1]):
                total = d * (k - 1) if padding == "same" else 0
                self._pads += [total // 2, total - total // 2]
        else:
            self._pads = [p for p in self.padding[::-1] for _ in range(2)]
        shape = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(taper.empty(shape + self.kernel_size, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(taper.empty((out_channels,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self):
        s = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if isinstance(self.padding, str) or any(self.padding):
            s += f", padding={self.padding}"
        if any(d != 1 for d in self.dilation):
            s += f", dilation={self.dilation}"
        if any(self.output_padding):
            s += f", output_padding={self.output_padding}"
        if self.groups != 1:
            s += f", groups={self.groups}"
        if self.bias is None:
            s += ", bias=False"
        if self.padding_mode != "zeros":
            s += f", padding_mode={self.padding_mode}"
        return s

    def _conv(self, fn, input):
        if self.padding_mode != "zeros":
            input = F.pad(input, self._pads, mode=self.padding_mode)
            return fn(input, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)
        return fn(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def _output_padding(self, input, output_size, nd):
        if output_size is None:
            return self.output_padding
        size = output_size[-nd:]
        res = []
        for i in range(nd):
            low = (input.size(input.dim() - nd + i) - 1) * self.stride[i] - 2 * self.padding[i] + self.dilation[i] * (self.kernel_size[i] - 1) + 1
            if not low <= size[i] <= low + self.stride[i] - 1:
                raise ValueError(f"requested an output size of {tuple(size)}, but the valid size of dimension {i} ranges from {low} to {low + self.stride[i] - 1}")
            res.append(size[i] - low)
        return tuple(res)


class Conv1d(_ConvNd):
    """Convolution over one dimension: (batch, in_channels, length) to (batch, out_channels, new length).

    >>> nn.Conv1d(3, 8, kernel_size=3, padding=1)(taper.ones(2, 3, 10)).shape
    taper.Size([2, 8, 10])
    """
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, padding_mode="zeros", device=None, dtype=None):
        super().__init__(1, in_channels, out_channels, kernel_size, stride, padding, dilation, False, 0, groups, bias, padding_mode, device, dtype)

    def forward(self, input):
        return self._conv(F.conv1d, input)


class Conv2d(_ConvNd):
    """Convolution over images: (batch, in_channels, height, width) to (batch, out_channels, new height, new width).

    >>> nn.Conv2d(3, 8, kernel_size=3, stride=2)(taper.ones(1, 3, 9, 9)).shape
    taper.Size([1, 8, 4, 4])
    """
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, padding_mode="zeros", device=None, dtype=None):
        super().__init__(2, in_channels, out_channels, kernel_size, stride, padding, dilation, False, 0, groups, bias, padding_mode, device, dtype)

    def forward(self, input):
        return self._conv(F.conv2d, input)


class Conv3d(_ConvNd):
    """Convolution over three dimensions.

    >>> nn.Conv3d(1, 4, kernel_size=2)(taper.ones(1, 1, 4, 4, 4)).shape
    taper.Size([1, 4, 3, 3, 3])
    """
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, padding_mode="zeros", device=None, dtype=None):
        super().__init__(3, in_channels, out_channels, kernel_size, stride, padding, dilation, False, 0, groups, bias, padding_mode, device, dtype)

    def forward(self, input):
        return self._conv(F.conv3d, input)


class ConvTranspose1d(_ConvNd):
    """The gradient of Conv1d with regard to its input, as a layer: makes signals longer.

    >>> nn.ConvTranspose1d(3, 8, kernel_size=2, stride=2)(taper.ones(1, 3, 5)).shape
    taper.Size([1, 8, 10])
    """
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True, dilation=1, padding_mode="zeros", device=None, dtype=None):
        super().__init__(1, in_channels, out_channels, kernel_size, stride, padding, dilation, True, output_padding, groups, bias, padding_mode, device, dtype)

    def forward(self, input, output_size=None):
        op = self._output_padding(input, output_size, 1)
        return F.conv_transpose1d(input, self.weight, self.bias, self.stride, self.padding, op, self.groups, self.dilation)


class ConvTranspose2d(_ConvNd):
    """The gradient of Conv2d with regard to its input, as a layer: makes images larger.

    >>> nn.ConvTranspose2d(3, 8, kernel_size=2, stride=2)(taper.ones(1, 3, 5, 5)).shape
    taper.Size([1, 8, 10, 10])
    """
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True, dilation=1, padding_mode="zeros", device=None, dtype=None):
        super().__init__(2, in_channels, out_channels, kernel_size, stride, padding, dilation, True, output_padding, groups, bias, padding_mode, device, dtype)

    def forward(self, input, output_size=None):
        op = self._output_padding(input, output_size, 2)
        return F.conv_transpose2d(input, self.weight, self.bias, self.stride, self.padding, op, self.groups, self.dilation)


class ConvTranspose3d(_ConvNd):
    """The gradient of Conv3d with regard to its input, as a layer.

    >>> nn.ConvTranspose3d(1, 2, kernel_size=2, stride=2)(taper.ones(1, 1, 2, 2, 2)).shape
    taper.Size([1, 2, 4, 4, 4])
    """
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True, dilation=1, padding_mode="zeros", device=None, dtype=None):
        super().__init__(3, in_channels, out_channels, kernel_size, stride, padding, dilation, True, output_padding, groups, bias, padding_mode, device, dtype)

    def forward(self, input, output_size=None):
        op = self._output_padding(input, output_size, 3)
        return F.conv_transpose3d(input, self.weight, self.bias, self.stride, self.padding, op, self.groups, self.dilation)


class _Pool(Module):
    names = ()

    def extra_repr(self):
        return ", ".join(f"{n}={getattr(self, n)}" for n in self.names)


class _MaxPool(_Pool):
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride if stride is not None else kernel_size
        self.padding, self.dilation, self.return_indices, self.ceil_mode = padding, dilation, return_indices, ceil_mode

    def forward(self, input):
        return self.fn(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)


class MaxPool1d(_MaxPool):
    """Maxima of windows of kernel_size elements.

    >>> nn.MaxPool1d(2)(taper.arange(4.0).view(1, 1, 4))
    tensor([[[1., 3.]]])
    """
    fn = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """Maxima of windows of kernel_size rows and columns.

    >>> nn.MaxPool2d(2)(taper.arange(4.0).view(1, 1, 2, 2))
    tensor([[[[3.]]]])
    """
    fn = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """Maxima of windows of kernel_size elements in each of three dimensions.

    >>> nn.MaxPool3d(2)(taper.ones(1, 1, 2, 2, 2)).shape
    taper.Size([1, 1, 1, 1, 1])
    """
    fn = staticmethod(F.max_pool3d)


class AvgPool1d(_Pool):
    """Means of windows of kernel_size elements.

    >>> nn.AvgPool1d(2)(taper.arange(4.0).view(1, 1, 4))
    tensor([[[0.5000, 2.5000]]])
    """
    names = ("kernel_size", "stride", "padding")

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        super().__init__()
        self.kernel_size, self.stride = _tuple(kernel_size, 1), _tuple(stride if stride is not None else kernel_size, 1)
        self.padding, self.ceil_mode, self.count_include_pad = _tuple(padding, 1), ceil_mode, count_include_pad

    def forward(self, input):
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPool(_Pool):
    names = ("kernel_size", "stride", "padding")

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride if stride is not None else kernel_size
        self.padding, self.ceil_mode, self.count_include_pad, self.divisor_override = padding, ceil_mode, count_include_pad, divisor_override

    def forward(self, input):
        return self.fn(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor_override)


class AvgPool2d(_AvgPool):
    """Means of windows of kernel_size rows and columns.

    >>> nn.AvgPool2d(2)(taper.arange(4.0).view(1, 1, 2, 2))
    tensor([[[[1.5000]]]])
    """
    fn = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPool):
    """Means of windows of kernel_size elements in each of three dimensions.

    >>> nn.AvgPool3d(2)(taper.ones(1, 1, 2, 2, 2)).shape
    taper.Size([1, 1, 1, 1, 1])
    """
    fn = staticmethod(F.avg_pool3d)


class _AdaptivePool(Module):
    def __init__(self, output_size, return_indices=False):
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def extra_repr(self):
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptivePool):
    """Averages over windows chosen so that the result has output_size elements.

    >>> nn.AdaptiveAvgPool1d(2)(taper.arange(4.0).view(1, 1, 4))
    tensor([[[0.5000, 2.5000]]])
    """
    def forward(self, input):
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptivePool):
    """Averages over windows chosen so that the result has output_size rows and columns.

    >>> nn.AdaptiveAvgPool2d(1)(taper.arange(4.0).view(1, 1, 2, 2))
    tensor([[[[1.5000]]]])
    """
    def forward(self, input):
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveMaxPool1d(_AdaptivePool):
    """Maxima of windows chosen so that the result has output_size elements.

    >>> nn.AdaptiveMaxPool1d(2)(taper.arange(4.0).view(1, 1, 4))
    tensor([[[1., 3.]]])
    """
    def forward(self, input):
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptivePool):
    """Maxima of windows chosen so that the result has output_size rows and columns.

    >>> nn.AdaptiveMaxPool2d(1)(taper.arange(4.0).view(1, 1, 2, 2))
    tensor([[[[3.]]]])
    """
    def forward(self, input):
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveAvgPool3d(_AdaptivePool):
    """Averages over windows chosen so that the result has output_size elements in each of three dimensions.

    >>> nn.AdaptiveAvgPool3d(1)(taper.ones(1, 1, 2, 2, 2)).shape
    taper.Size([1, 1, 1, 1, 1])
    """
    def forward(self, input):
        return F.adaptive_avg_pool3d(input, self.output_size)


class AdaptiveMaxPool3d(_AdaptivePool):
    """Maxima of windows chosen so that the result has output_size elements in each of three dimensions.

    >>> nn.AdaptiveMaxPool3d(1)(taper.ones(1, 1, 2, 2, 2)).shape
    taper.Size([1, 1, 1, 1, 1])
    """
    def forward(self, input):
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _MaxUnpool(Module):
    """Puts values back where max pooling found them."""

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        self.kernel_size = _tuple(kernel_size, self.nd)
        self.stride, self.padding = _tuple(stride if stride is not None else kernel_size, self.nd), _tuple(padding, self.nd)

    def forward(self, input, indices, output_size=None):
        return self.fn(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Puts maxima back where MaxPool1d(return_indices=True) found them, zeros elsewhere.

    >>> nn.MaxUnpool1d(2)(*nn.MaxPool1d(2, return_indices=True)(taper.arange(4.0).view(1, 1, 4)))
    tensor([[[0., 1., 0., 3.]]])
    """
    nd, fn = 1, staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpool):
    """Puts maxima back where MaxPool2d(return_indices=True) found them, zeros elsewhere.

    >>> nn.MaxUnpool2d(2)(*nn.MaxPool2d(2, return_indices=True)(taper.arange(4.0).view(1, 1, 2, 2)))
    tensor([[[[0., 0.],
              [0., 3.]]]])
    """
    nd, fn = 2, staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """Puts maxima back where MaxPool3d(return_indices=True) found them, zeros elsewhere.

    >>> nn.MaxUnpool3d(2)(*nn.MaxPool3d(2, return_indices=True)(taper.ones(1, 1, 2, 2, 2))).shape
    taper.Size([1, 1, 2, 2, 2])
    """
    nd, fn = 3, staticmethod(F.max_unpool3d)


class _FractionalMaxPool(Module):
    def __init__(self, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        super().__init__()
        self.kernel_size, self.return_indices = _tuple(kernel_size, self.nd), return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = _tuple(output_size, self.nd) if output_size is not None else None
        self.output_ratio = _tuple(output_ratio, self.nd) if isinstance(output_ratio, tuple) else \
            (output_ratio,) * self.nd if output_ratio is not None else None
        if output_size is None and output_ratio is None:
            raise ValueError("FractionalMaxPool requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input):
        return self.fn(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
                       _random_samples=self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maxima of windows whose places are drawn, so that the size shrinks by a ratio that is no integer.

    >>> nn.FractionalMaxPool2d(2, output_size=3)(taper.ones(1, 1, 5, 5)).shape
    taper.Size([1, 1, 3, 3])
    """
    nd, fn = 2, staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPool):
    """The same as FractionalMaxPool2d in three dimensions.

    >>> nn.FractionalMaxPool3d(2, output_size=3)(taper.ones(1, 1, 5, 5, 5)).shape
    taper.Size([1, 1, 3, 3, 3])
    """
    nd, fn = 3, staticmethod(F.fractional_max_pool3d)


class _LPPool(Module):
    def __init__(self, norm_type, kernel_size, stride=None, ceil_mode=False):
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input):
        return self.fn(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self):
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPool):
    """The p-norm of windows: (sum of x**p)**(1/p).

    >>> nn.LPPool1d(2, 2)(taper.tensor([[[3.0, 4.0]]]))
    tensor([[[5.]]])
    """
    fn = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """The p-norm of windows of rows and columns.

    >>> nn.LPPool2d(2, 2)(taper.ones(1, 1, 2, 2))
    tensor([[[[2.]]]])
    """
    fn = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """The p-norm of windows in three dimensions.

    >>> nn.LPPool3d(1, 2)(taper.ones(1, 1, 2, 2, 2)).shape
    taper.Size([1, 1, 1, 1, 1])
    """
    fn = staticmethod(F.lp_pool3d)


def _pad_class(name, nd, mode):
    class P(Module):
        def __init__(self, padding, value=0.0):
            super().__init__()
            self.padding = (padding,) * (2 * nd) if isinstance(padding, int) else tuple(padding)
            self.value = value

        def forward(self, input):
            return F.pad(input, self.padding, mode, self.value if mode == "constant" else None)

        def extra_repr(self):
            return f"padding={self.padding}, value={self.value}" if name.startswith("Constant") else f"{self.padding}"

    P.__name__ = P.__qualname__ = name
    how = {"reflect": "the mirror image, edges not repeated", "replicate": "the value at the edge", "circular": "what is at the other end",
           "constant": "a value" if name.startswith("Constant") else "zeros"}[mode]
    P.__doc__ = f"""Pads the last {nd} dimension{"s" * (nd > 1)} with {how}: (left, right) of the last, then of the one before.

    >>> nn.{name}(1{", 5.0" * name.startswith("Constant")})(taper.ones(1, 1, {", ".join("3" * nd)})).shape
    taper.Size([1, 1, {", ".join("5" * nd)}])
    """
    return P


ConstantPad1d, ConstantPad2d, ConstantPad3d = (_pad_class(f"ConstantPad{n}d", n, "constant") for n in (1, 2, 3))
ZeroPad1d, ZeroPad2d, ZeroPad3d = (_pad_class(f"ZeroPad{n}d", n, "constant") for n in (1, 2, 3))
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = (_pad_class(f"ReflectionPad{n}d", n, "reflect") for n in (1, 2, 3))
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = (_pad_class(f"ReplicationPad{n}d", n, "replicate") for n in (1, 2, 3))
CircularPad1d, CircularPad2d, CircularPad3d = (_pad_class(f"CircularPad{n}d", n, "circular") for n in (1, 2, 3))
