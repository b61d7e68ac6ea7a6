"""Operators of ONNX for networks: products, convolutions, pools, normalisations, resizing, recurrent layers."""
import math

from ._known import Known, number, numbers, tensor
from ._wire import OnnxError


def _taper():
    import taper
    return taper


def _f():
    return _taper().nn.functional


# ---- products ----
def MatMul(a, b):
    return _taper().matmul(tensor(a, b), tensor(b, a))


def Gemm(a, b, c=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    if alpha == beta == 1 and not transA and transB and c is not None and not isinstance(c, Known) and c.dim() == 1:
        return _f().linear(a, b, c)
    a, b = a.t() if transA else a, b.t() if transB else b
    y = a @ b
    if alpha != 1:
        y = y * alpha
    if c is None:
        return y
    c = tensor(c, y)
    return y + (c if beta == 1 else c * beta)


def Einsum(*values, equation):
    return _taper().einsum(equation, *[tensor(v) for v in values])


# ---- windows ----
def _window(x, kernel, strides, dilations, pads, auto_pad, outputs=None):
    """Strides, dilations and padding before and behind each axis."""
    n = len(kernel)
    strides = list(strides or [1] * n)
    dilations = list(dilations or [1] * n)
    pads = list(pads or [0] * (2 * n))
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        for i in range(n):
            size, k = x.shape[2 + i], (kernel[i] - 1) * dilations[i] + 1
            total = max((-(-size // strides[i]) - 1) * strides[i] + k - size, 0)
            small, big = total // 2, total - total // 2
            pads[i], pads[n + i] = (small, big) if auto_pad == "SAME_UPPER" else (big, small)
    elif auto_pad == "VALID":
        pads = [0] * (2 * n)
    return strides, dilations, pads[:n], pads[n:]


def _padded(x, before, after, fill=0.0):
    flat = [p for a, b in zip(reversed(before), reversed(after)) for p in (a, b)]
    return _f().pad(x, flat, "constant", fill)


def Conv(x, w, b=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    n = x.dim() - 2
    strides, dilations, before, after = _window(x, list(w.shape[2:]), strides, dilations, pads, auto_pad)
    if before != after:
        x, before = _padded(x, before, after), [0] * n
    if n not in (1, 2, 3):
        raise OnnxError(f"Conv of {n} dimensions: Taper has those of 1, 2 and 3")
    return getattr(_f(), f"conv{n}d")(x, w, b, strides, before, dilations, group)


def ConvTranspose(x, w, b=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, output_padding=None,
                  output_shape=None, pads=None, strides=None):
    n = x.dim() - 2
    strides, dilations, before, after = _window(x, list(w.shape[2:]), strides, dilations, pads, "NOTSET" if output_shape else auto_pad)
    more = list(output_padding or [0] * n)
    if output_shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = output_shape or [x.shape[2 + i] * strides[i] for i in range(n)]
        for i in range(n):
            total = strides[i] * (x.shape[2 + i] - 1) + more[i] + (w.shape[2 + i] - 1) * dilations[i] + 1 - wanted[i]
            if total < 0:  # larger than the windows reach
                more[i], total = more[i] - total, 0
            small, big = total // 2, total - total // 2
            before[i], after[i] = (small, big) if auto_pad == "SAME_UPPER" else (big, small)
    call = getattr(_f(), f"conv_transpose{n}d", None)
    if call is None:
        raise OnnxError(f"ConvTranspose of {n} dimensions: Taper has those of 1, 2 and 3")
    same = [min(p, q) for p, q in zip(before, after)]
    if same == before == after and all(m < max(s, d) for m, s, d in zip(more, strides, dilations)):
        return call(x, w, b, strides, before, more, group, dilations)
    y = call(x, w, b, strides, [0] * n, [0] * n, group, dilations)
    cut = [slice(None), slice(None)] + [slice(p, y.shape[2 + i] - q if q else None) for i, (p, q) in enumerate(zip(before, after))]
    y = y[tuple(cut)]
    if any(more):
        y = _padded(y, [0] * n, more)
        if b is not None:
            raise OnnxError("ConvTranspose: output_padding that reaches behind the windows, with a bias")
    return y


def _ceil_pads(x, kernel, strides, dilations, before, after):
    """More padding behind, so that the last window that begins inside is whole."""
    out = list(after)
    for i, k in enumerate(kernel):
        size, reach = x.shape[2 + i], (k - 1) * dilations[i] + 1
        space = size + before[i] + after[i] - reach
        count = -(-space // strides[i]) + 1
        if (count - 1) * strides[i] >= size + before[i]:
            count -= 1
        out[i] = max((count - 1) * strides[i] + reach - size - before[i], after[i])
    return out


def MaxPool(x, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, pads=None, storage_order=0, strides=None, outputs=1):
    n = len(kernel_shape)
    strides, dilations, before, after = _window(x, kernel_shape, strides, dilations, pads, auto_pad)
    call = getattr(_f(), f"max_pool{n}d")
    simple = before == after and all(2 * p <= k for p, k in zip(before, kernel_shape))
    if outputs > 1:
        if not simple or storage_order:
            raise OnnxError("MaxPool: places of the largest with unequal padding or in another order")
        y, at = call(x, kernel_shape, strides, before, dilations, bool(ceil_mode), return_indices=True)
        rows = _taper().arange(math.prod(x.shape[:2]), device=x.device) * math.prod(x.shape[2:])
        return y, at + rows.reshape(list(x.shape[:2]) + [1] * n)
    if simple:
        return call(x, kernel_shape, strides, before, dilations, bool(ceil_mode))
    if ceil_mode:
        after = _ceil_pads(x, kernel_shape, strides, dilations, before, after)
    low = -math.inf if x.dtype.is_floating_point else _taper().iinfo(x.dtype).min
    return call(_padded(x, before, after, low), kernel_shape, strides, [0] * n, dilations)


def AveragePool(x, *, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, dilations=None, kernel_shape, pads=None, strides=None):
    n = len(kernel_shape)
    strides, dilations, before, after = _window(x, kernel_shape, strides, dilations, pads, auto_pad)
    call = getattr(_f(), f"avg_pool{n}d")
    plain = all(d == 1 for d in dilations)
    if plain and before == after and all(2 * p <= k for p, k in zip(before, kernel_shape)):
        return call(x, kernel_shape, strides, before, bool(ceil_mode), bool(count_include_pad))
    more = _ceil_pads(x, kernel_shape, strides, dilations, before, after) if ceil_mode else after
    taper = _taper()
    inside = taper.ones([1, 1] + list(x.shape[2:]), dtype=x.dtype, device=x.device)
    if count_include_pad:
        inside = _padded(inside, before, after, 1.0)
        inside = _padded(inside, [0] * n, [m - a for m, a in zip(more, after)])
    else:
        inside = _padded(inside, before, more)
    weight = taper.ones([1, 1] + list(kernel_shape), dtype=x.dtype, device=x.device)
    conv = getattr(_f(), f"conv{n}d")
    y = _padded(x, before, more)
    flat = y.reshape([-1, 1] + list(y.shape[2:]))
    total = conv(flat, weight, None, strides, 0, dilations)
    total = total.reshape(list(x.shape[:2]) + list(total.shape[2:]))
    return total / conv(inside, weight, None, strides, 0, dilations)


def LpPool(x, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, p=2, pads=None, strides=None):
    y = AveragePool(x.abs() ** p, auto_pad=auto_pad, ceil_mode=ceil_mode, count_include_pad=1, dilations=dilations,
                    kernel_shape=kernel_shape, pads=pads, strides=strides)
    return (y * math.prod(kernel_shape)) ** (1.0 / p)


def GlobalAveragePool(x):
    return x.mean(list(range(2, x.dim())), keepdim=True)


def GlobalMaxPool(x):
    return _taper().amax(x, list(range(2, x.dim())), keepdim=True)


def GlobalLpPool(x, *, p=2):
    return (x.abs() ** p).sum(list(range(2, x.dim())), keepdim=True) ** (1.0 / p)


# ---- normalisations ----
def BatchNormalization(x, scale, bias, mean, var, *, epsilon=1e-5, momentum=0.9, training_mode=0, spatial=1, outputs=1):
    taper = _taper()
    scale, bias, mean, var = (tensor(v, x) for v in (scale, bias, mean, var))
    if not training_mode:
        return _f().batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)
    axes = [0] + list(range(2, x.dim()))
    own_mean, own_var = x.mean(axes), x.var(axes, correction=0)
    y = _f().batch_norm(x, None, None, scale, bias, True, 0.0, epsilon)
    if outputs == 1:
        return y
    return y, mean * momentum + own_mean * (1 - momentum), var * momentum + own_var * (1 - momentum)


def InstanceNormalization(x, scale, bias, *, epsilon=1e-5):
    return _f().instance_norm(x, None, None, tensor(scale, x), tensor(bias, x), True, 0.0, epsilon)


def GroupNormalization(x, scale, bias, *, epsilon=1e-5, num_groups, stash_type=1):
    scale, bias = tensor(scale, x), tensor(bias, x)
    if scale.shape[0] != x.shape[1]:  # before opset 21: one a group
        each = x.shape[1] // num_groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return _f().group_norm(x, num_groups, scale, bias, epsilon)


def LayerNormalization(x, scale, bias=None, *, axis=-1, epsilon=1e-5, stash_type=1, outputs=1):
    axis %= x.dim()
    shape = list(x.shape[axis:])
    scale = tensor(scale, x)
    bias = None if bias is None else tensor(bias, x)
    if list(scale.shape) == shape and (bias is None or list(bias.shape) == shape):
        y = _f().layer_norm(x, shape, scale, bias, epsilon)
    else:
        y = _f().layer_norm(x, shape, None, None, epsilon) * scale
        y = y if bias is None else y + bias
    if outputs == 1:
        return y
    axes = list(range(axis, x.dim()))
    return y, x.mean(axes, keepdim=True), (x.var(axes, correction=0, keepdim=True) + epsilon).rsqrt()


def RMSNormalization(x, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    axes = list(range(axis % x.dim(), x.dim()))
    return x * ((x * x).mean(axes, keepdim=True) + epsilon).rsqrt() * scale


def LRN(x, *, alpha=1e-4, beta=0.75, bias=1.0, size):
    return _f().local_response_norm(x, size, alpha, beta, bias)


def LpNormalization(x, *, axis=-1, p=2):
    size = x.abs().sum(axis, keepdim=True) if p == 1 else (x * x).sum(axis, keepdim=True).sqrt()
    return x / _taper().where(size == 0, _taper().ones_like(size), size)


def MeanVarianceNormalization(x, *, axes=(0, 2, 3)):
    axes = list(axes)
    y = x - x.mean(axes, keepdim=True)
    return y / ((y * y).mean(axes, keepdim=True).sqrt() + 1e-9)


def Dropout(x, ratio=None, training=None, *, ratio_=0.5, seed=None, outputs=1):
    p = ratio_ if ratio is None else number(ratio)
    on = training is not None and bool(number(training))
    taper = _taper()
    if not on:
        return x if outputs == 1 else (x, taper.ones(x.shape, dtype=taper.bool, device=x.device))
    mask = taper.rand(x.shape, device=x.device) >= p
    y = x * mask / (1 - p)
    return y if outputs == 1 else (y, mask)


# ---- resizing ----
def Upsample(x, scales=None, *, mode="nearest", scales_=None):
    return Resize(x, None, scales_ if scales is None else scales, None, mode=mode, coordinate_transformation_mode="asymmetric",
                  nearest_mode="floor")


def Resize(x, roi=None, scales=None, sizes=None, *, antialias=0, axes=None, coordinate_transformation_mode="half_pixel",
           cubic_coeff_a=-0.75, exclude_outside=0, extrapolation_value=0.0, keep_aspect_ratio_policy="stretch", mode="nearest",
           nearest_mode="round_prefer_floor"):
    if antialias or exclude_outside or coordinate_transformation_mode == "tf_crop_and_resize":
        raise OnnxError("Resize: antialias, exclude_outside and tf_crop_and_resize are not supported")
    axes = list(range(x.dim())) if axes is None else [a % x.dim() for a in axes]
    scales, sizes = numbers(scales), numbers(sizes)
    if sizes:
        sizes = [int(s) if isinstance(s, float) else s for s in sizes]
        scales = [s / x.shape[a] for s, a in zip(sizes, axes)]
        if keep_aspect_ratio_policy != "stretch":
            one = min(scales) if keep_aspect_ratio_policy == "not_larger" else max(scales)
            scales = [one] * len(axes)
            sizes = [int(math.floor(x.shape[a] * one + 0.5)) for a in axes]
    else:
        sizes = [int(math.floor(x.shape[a] * s)) for a, s in zip(axes, scales)]
    for a, scale, size in zip(axes, scales, sizes):
        if size != x.shape[a] or scale != 1:
            x = _resized(x, a, scale, size, mode, coordinate_transformation_mode, cubic_coeff_a, nearest_mode)
    return x


def _resized(x, axis, scale, size, mode, where, cubic, nearest):
    """One axis with `size` elements: where each comes from, then those around it with their weights."""
    taper = _taper()
    n = x.shape[axis]
    out = taper.arange(size, dtype=taper.float32, device=x.device)
    if where == "align_corners":
        at = out * ((n - 1) / (scale * n - 1)) if scale * n != 1 else out * 0
    elif where == "asymmetric":
        at = out / scale
    elif where == "pytorch_half_pixel":
        at = (out + 0.5) / scale - 0.5 if size > 1 else out * 0
    elif where == "half_pixel_symmetric":
        adjust = size / (scale * n)
        at = n / 2 * (1 - adjust) + (out + 0.5) / scale - 0.5
    else:
        at = (out + 0.5) / scale - 0.5
    if mode == "nearest":
        near = {"floor": taper.floor(at), "ceil": taper.ceil(at), "round_prefer_floor": taper.ceil(at - 0.5),
                "round_prefer_ceil": taper.floor(at + 0.5)}[nearest]
        return x.index_select(axis, near.clamp(0, n - 1).long())
    base = taper.floor(at)
    part = (at - base).to(x.dtype)
    if mode == "linear":
        around = [(0, 1 - part), (1, part)]
    else:
        d, a = part, cubic
        around = [(-1, ((a * (d + 1) - 5 * a) * (d + 1) + 8 * a) * (d + 1) - 4 * a), (0, ((a + 2) * d - (a + 3)) * d * d + 1),
                  (1, ((a + 2) * (1 - d) - (a + 3)) * (1 - d) * (1 - d) + 1),
                  (2, ((a * (2 - d) - 5 * a) * (2 - d) + 8 * a) * (2 - d) - 4 * a)]
    shape = [-1 if i == axis else 1 for i in range(x.dim())]
    y = None
    for step, weight in around:
        part = x.index_select(axis, (base + step).clamp(0, n - 1).long()) * weight.reshape(shape)
        y = part if y is None else y + part
    return y


def GridSample(x, grid, *, align_corners=0, mode="bilinear", padding_mode="zeros"):
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return _f().grid_sample(x, grid, mode, padding_mode, bool(align_corners))


# ---- recurrent layers ----
_ACTIVATIONS = {"relu": "relu", "tanh": "tanh", "sigmoid": "sigmoid"}


def _activations(kind, given, directions, each):
    names = [a.lower() for a in given] if given else each * directions
    for a in names:
        if a not in _ACTIVATIONS:
            raise OnnxError(f"{kind}: activation {a!r} is not supported")
    n = len(each)
    return [[getattr(_taper(), _ACTIVATIONS[a]) for a in names[i * n:i * n + n]] for i in range(directions)]


def _layer(kind, step, states, each, x, w, r, b, lens, first, direction, activations, layout, hidden_size):
    """Runs one layer in its directions: step(input part, states, d, activations) -> states; the first state is the output."""
    taper = _taper()
    if layout:
        x = x.transpose(0, 1)
        first = [None if s is None else s.transpose(0, 1) for s in first]
    steps, batch = x.shape[0], x.shape[1]
    directions = w.shape[0]
    acts = _activations(kind, activations, directions, each)
    outs, lasts = [], []
    lengths = None if lens is None else tensor(lens, x)
    for d in range(directions):
        back = direction == "reverse" or d == 1
        h = [x.new_zeros((batch, hidden_size)) if s is None else s[d] for s in first]
        wb = rb = None
        if b is not None:
            half = b.shape[1] // 2
            wb, rb = b[d, :half], b[d, half:]
        gates = _f().linear(x, w[d], wb)
        ys = [None] * steps
        for t in (range(steps - 1, -1, -1) if back else range(steps)):
            new = step(gates[t], h, r[d], rb, acts[d], d)
            if lengths is not None:
                alive = (lengths > t).unsqueeze(1)
                ys[t] = taper.where(alive, new[0], taper.zeros_like(new[0]))
                new = [taper.where(alive, a, o) for a, o in zip(new, h)]
            else:
                ys[t] = new[0]
            h = new
        outs.append(taper.stack(ys))
        lasts.append(h)
    y = taper.stack(outs, 1)
    ends = [taper.stack([h[i] for h in lasts]) for i in range(states)]
    if layout:
        y, ends = y.permute(2, 0, 1, 3), [e.transpose(0, 1) for e in ends]
    return (y, *ends)


def LSTM(x, w, r, b=None, lens=None, h0=None, c0=None, p=None, *, activation_alpha=None, activation_beta=None, activations=None,
         clip=None, direction="forward", hidden_size=None, input_forget=0, layout=0, outputs=1):
    if clip or input_forget:
        raise OnnxError("LSTM: clip and input_forget are not supported")
    taper, n = _taper(), r.shape[-1]

    def step(gate, state, rec, rb, acts, d):
        h, c = state
        i, o, f, g = taper.chunk(gate + _f().linear(h, rec, rb), 4, 1)
        if p is not None:
            pi, po, pf = taper.chunk(p[d], 3)
            i, f = i + pi * c, f + pf * c
        c = acts[0](f) * c + acts[0](i) * acts[1](g)
        if p is not None:
            o = o + po * c
        return [acts[0](o) * acts[2](c), c]
    return _layer("LSTM", step, 2, ["sigmoid", "tanh", "tanh"], x, w, r, b, lens, [h0, c0], direction, activations, layout, n)


def GRU(x, w, r, b=None, lens=None, h0=None, *, activation_alpha=None, activation_beta=None, activations=None, clip=None,
        direction="forward", hidden_size=None, layout=0, linear_before_reset=0, outputs=1):
    if clip:
        raise OnnxError("GRU: clip is not supported")
    taper, n = _taper(), r.shape[-1]

    def step(gate, state, rec, rb, acts, d):
        h, = state
        gz, gr, gh = taper.chunk(gate, 3, 1)
        bias = (None, None) if rb is None else (rb[:2 * n], rb[2 * n:])
        z, q = taper.chunk(_f().linear(h, rec[:2 * n], bias[0]), 2, 1)
        z, q = acts[0](gz + z), acts[0](gr + q)
        if linear_before_reset:
            new = acts[1](gh + q * _f().linear(h, rec[2 * n:], bias[1]))
        else:
            new = acts[1](gh + _f().linear(q * h, rec[2 * n:], bias[1]))
        return [(1 - z) * new + z * h]
    return _layer("GRU", step, 1, ["sigmoid", "tanh"], x, w, r, b, lens, [h0], direction, activations, layout, n)


def RNN(x, w, r, b=None, lens=None, h0=None, *, activation_alpha=None, activation_beta=None, activations=None, clip=None,
        direction="forward", hidden_size=None, layout=0, outputs=1):
    if clip:
        raise OnnxError("RNN: clip is not supported")

    def step(gate, state, rec, rb, acts, d):
        return [acts[0](gate + _f().linear(state[0], rec, rb))]
    return _layer("RNN", step, 1, ["tanh"], x, w, r, b, lens, [h0], direction, activations, layout, r.shape[-1])


# ---- quantised values ----
def _along(v, x, axis):
    v = tensor(v, x)
    return v.reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())]) if v.dim() == 1 and v.numel() > 1 else v


def DequantizeLinear(x, scale, zero=None, *, axis=1, block_size=0, output_dtype=None):
    if block_size:
        raise OnnxError("DequantizeLinear: block_size is not supported")
    s = _along(scale, x, axis)
    y = x.to(s.dtype)
    return (y if zero is None else y - _along(zero, x, axis).to(s.dtype)) * s


def QuantizeLinear(x, scale, zero=None, *, axis=1, block_size=0, output_dtype=None, saturate=1, precision=None):
    if block_size:
        raise OnnxError("QuantizeLinear: block_size is not supported")
    taper = _taper()
    dtype = taper.uint8 if zero is None else zero.dtype
    y = taper.round(x / _along(scale, x, axis))
    if zero is not None:
        y = y + _along(zero, x, axis).to(y.dtype)
    limits = taper.iinfo(dtype)
    return y.clamp(limits.min, limits.max).to(dtype)


def DynamicQuantizeLinear(x):
    taper = _taper()
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = (high - low) / 255
    zero = taper.round(-low / scale).clamp(0, 255)
    return (taper.round(x / scale) + zero).clamp(0, 255).to(taper.uint8), scale, zero.to(taper.uint8)


def MatMulInteger(a, b, a_zero=None, b_zero=None):
    taper = _taper()
    a, b = a.to(taper.int32), b.to(taper.int32)
    a = a if a_zero is None else a - tensor(a_zero, a).to(taper.int32)
    b = b if b_zero is None else b - tensor(b_zero, b).to(taper.int32)
    return taper.matmul(a, b)
