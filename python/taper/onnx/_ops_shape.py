"""Operators of ONNX that move, select, repeat and make elements."""
import math

from ._known import FEW, Known, number, numbers, one, row, tensor
from ._wire import OnnxError


def _taper():
    import taper
    return taper


def _ints(v):
    return [v if not isinstance(v, float) else int(v) for v in numbers(v)]


# ---- sizes ----
def Shape(x, *, start=0, end=None):
    sizes = list(x.shape)[start:end]
    return row(sizes, _taper().int64)


def Size(x):
    return one(math.prod(x.shape), _taper().int64)


def Reshape(x, shape, *, allowzero=0):
    shape = _ints(shape)
    if isinstance(x, Known):
        if len(shape) == 1:
            return Known(x.data, (len(x.data),), x.dtype)
        if not shape:
            return Known(x.data[:1], (), x.dtype)
        x = tensor(x)
    if not allowzero:
        shape = [x.shape[i] if isinstance(d, int) and d == 0 else d for i, d in enumerate(shape)]
    return x.reshape(shape)


def Flatten(x, *, axis=1):
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def Squeeze(x, axes=None, *, axes_=None):
    axes = numbers(axes_ if axes is None else axes)
    if isinstance(x, Known):
        return Known(x.data, (), x.dtype) if len(x.data) == 1 else x
    if axes is None:
        return x.squeeze()
    axes = [int(a) % x.dim() for a in axes]
    for a in axes:
        if x.shape[a] != 1:
            raise OnnxError(f"Squeeze: axis {a} has {x.shape[a]} elements, not 1")
    return x.reshape([n for i, n in enumerate(x.shape) if i not in axes])


def Unsqueeze(x, axes=None, *, axes_=None):
    axes = numbers(axes_ if axes is None else axes)
    if isinstance(x, Known):
        if not x.shape and len(axes) == 1:
            return Known(x.data, (1,), x.dtype)
        x = tensor(x)
    rank = x.dim() + len(axes)
    for a in sorted(int(a) % rank for a in axes):
        x = x.unsqueeze(a)
    return x


def Transpose(x, *, perm=None):
    x = tensor(x)
    return x.permute(list(range(x.dim()))[::-1] if perm is None else list(perm))


def Expand(x, shape):
    shape = _ints(shape)
    if isinstance(x, Known) and len(shape) <= 1 and len(x.data) == 1 and all(isinstance(n, int) and n <= FEW for n in shape):
        return Known(x.data * (shape[0] if shape else 1), (shape[0],) if shape else x.shape, x.dtype)
    x = tensor(x)
    more = len(shape) - x.dim()
    own = [1] * more + list(x.shape)
    shape = [1] * -more + shape
    return x.expand([n if isinstance(d, int) and d == 1 else d for n, d in zip(own, shape)])


def Tile(x, repeats):
    return tensor(x).repeat(_ints(repeats))


# ---- several in, several out ----
def Concat(*values, axis):
    if all(isinstance(v, Known) and v.shape for v in values):
        return row([n for v in values for n in v.data], values[0].dtype)
    some = next((v for v in values if not isinstance(v, Known)), None)
    return _taper().cat([tensor(v, some) for v in values], axis)


def Split(x, split=None, *, axis=0, split_=None, num_outputs=None, outputs=1):
    sizes = numbers(split_ if split is None else split)
    n = len(x.data) if isinstance(x, Known) else x.shape[axis]
    if sizes is None:
        count = num_outputs or outputs
        each = -(-n // count)
        sizes = [each] * (count - 1) + [n - each * (count - 1)]
    if isinstance(x, Known):
        at = [sum(sizes[:i]) for i in range(len(sizes))]
        return tuple(row(x.data[i:i + k], x.dtype) for i, k in zip(at, sizes))
    return tuple(_taper().split(x, [int(s) if isinstance(s, float) else s for s in sizes], axis))


def Slice(x, starts=None, ends=None, axes=None, steps=None, *, starts_=None, ends_=None, axes_=None):
    starts, ends = _ints(starts_ if starts is None else starts), _ints(ends_ if ends is None else ends)
    axes = numbers(axes_ if axes is None else axes)
    axes = list(range(len(starts))) if axes is None else [int(a) for a in axes]
    steps = [1] * len(starts) if steps is None else _ints(steps)
    if isinstance(x, Known):
        if steps[0] < 0 and ends[0] < -len(x.data):
            return row(x.data[starts[0]::steps[0]], x.dtype)
        return row(x.data[starts[0]:ends[0]:steps[0]], x.dtype)
    for start, end, axis, step in zip(starts, ends, axes, steps):
        axis %= x.dim()
        at = [slice(None)] * x.dim()
        if isinstance(step, int) and step < 0:  # the same elements, counted from the other end
            n = x.shape[axis]
            first = min(start + n if start < 0 else start, n - 1)
            last = max(end + n if end < 0 else end, -1)
            x = x.flip(axis)
            start, end, step = n - 1 - first, n - 1 - last, -step
            start = max(start, 0)
        at[axis] = slice(start, end, step)
        x = x[tuple(at)]
    return x


# ---- by index ----
def _wrapped(places, n):
    """Indices counted from the end where they are negative."""
    return _taper().where(places < 0, places + n, places)


def Gather(x, places, *, axis=0):
    if isinstance(places, Known):
        at = [p if not isinstance(p, float) else int(p) for p in places.data]
        if isinstance(x, Known):
            return Known([x.data[p] for p in at], places.shape, x.dtype)
        if not places.shape:
            return x.select(axis, at[0])
        places = tensor(places, x)
    x = tensor(x, places)
    axis %= x.dim()
    flat = _wrapped(places, x.shape[axis]).reshape(-1).long()
    return x.index_select(axis, flat).reshape(list(x.shape[:axis]) + list(places.shape) + list(x.shape[axis + 1:]))


def GatherElements(x, places, *, axis=0):
    return _taper().gather(x, axis, _wrapped(tensor(places, x).long(), x.shape[axis]))


def ReverseSequence(x, lengths, *, batch_axis=1, time_axis=0):
    x = tensor(x)
    y = x.movedim((time_axis, batch_axis), (0, 1))
    step, n = _taper().arange(y.shape[0], device=x.device).unsqueeze(1), tensor(lengths, x).long().unsqueeze(0)
    at = _taper().where(step < n, n - 1 - step, step)  # what lies behind the end of a sequence stays
    at = at.reshape(list(at.shape) + [1] * (y.dim() - 2)).expand(y.shape)
    return y.gather(0, at).movedim((0, 1), (time_axis, batch_axis))


def GatherND(x, places, *, batch_dims=0):
    x, places = tensor(x), tensor(places, x).long()
    k, b = places.shape[-1], batch_dims
    at = [_wrapped(places[..., i], x.shape[b + i]) for i in range(k)]
    rank = places.dim() - 1
    batch = [_taper().arange(x.shape[i], device=x.device).reshape([-1 if j == i else 1 for j in range(rank)]) for i in range(b)]
    return x[tuple(batch + at)]


def _joined(x, at, updates, how):
    taper = _taper()
    if how in ("none", None):
        return taper.index_put(x, at, updates)
    if how == "add":
        return taper.index_put(x, at, updates, accumulate=True)
    shape = [n for n in x.shape[len(at):]]
    places, step = None, 1
    for i in range(len(at) - 1, -1, -1):
        places = at[i] * step if places is None else places + at[i] * step
        step = step * x.shape[i]
    flat = x.reshape([-1] + shape)
    upd = updates.reshape([-1] + shape)
    spread = places.reshape([-1] + [1] * len(shape)).expand(upd.shape)
    return flat.scatter_reduce(0, spread, upd, {"mul": "prod", "max": "amax", "min": "amin"}[how]).reshape(x.shape)


def ScatterND(x, places, updates, *, reduction="none"):
    x = tensor(x, updates)
    places, updates = tensor(places, x).long(), tensor(updates, x)
    at = [_wrapped(places[..., i], x.shape[i]) for i in range(places.shape[-1])]
    return _joined(x, at, updates, reduction)


def ScatterElements(x, places, updates, *, axis=0, reduction="none"):
    x = tensor(x, updates)
    places = _wrapped(tensor(places, x).long(), x.shape[axis])
    updates = tensor(updates, x)
    if reduction in ("none", None):
        return x.scatter(axis, places, updates)
    how = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[reduction]
    return x.scatter_reduce(axis, places, updates, how)


Scatter = ScatterElements


def NonZero(x):
    return _taper().nonzero(tensor(x)).t()


def OneHot(places, depth, values, *, axis=-1):
    taper = _taper()
    depth = int(number(depth))
    values = tensor(values)
    places = tensor(places, values)
    at = _wrapped(places.long(), depth).unsqueeze(axis)
    rank = at.dim()
    axis %= rank
    line = taper.arange(depth, device=at.device).reshape([-1 if i == axis else 1 for i in range(rank)])
    return taper.where(line == at, values[1], values[0])


def Compress(x, condition, *, axis=None):
    keep = _taper().nonzero(tensor(condition, x)).reshape(-1)
    return x.reshape(-1).index_select(0, keep) if axis is None else x.index_select(axis, keep)


def Unique(x, *, axis=None, sorted=1):
    taper = _taper()
    values, back, counts = taper.unique(x, sorted=True, return_inverse=True, return_counts=True, dim=axis)
    back = back.reshape(-1)
    n = back.shape[0]
    first = taper.full((counts.shape[0],), n, dtype=taper.int64).scatter_reduce(0, back, taper.arange(n), "amin")
    if not sorted:
        order = first.argsort()
        values = values.index_select(0 if axis is None else axis, order)
        back = order.argsort()[back]
        counts, first = counts[order], first[order]
    return values, first, back, counts


# ---- making ----
def ConstantOfShape(shape, *, value=None):
    taper = _taper()
    fill = one(0.0, taper.float32) if value is None else value
    sizes = _ints(shape)
    if len(sizes) == 1 and isinstance(sizes[0], int) and sizes[0] <= FEW and isinstance(fill, Known):
        return row(fill.data[:1] * sizes[0], fill.dtype)
    return taper.full(sizes, number(fill), dtype=fill.dtype)


def Range(start, limit, delta):
    taper = _taper()
    a, b, c = number(start), number(limit), number(delta)
    return taper.arange(a, b, c, dtype=start.dtype)


def EyeLike(x, *, dtype=None, k=0):
    from ._tensors import dtype_of
    taper = _taper()
    rows = taper.arange(x.shape[0], device=x.device).unsqueeze(1)
    return (rows + k == taper.arange(x.shape[1], device=x.device)).to(x.dtype if dtype is None else dtype_of(dtype))


def Trilu(x, k=None, *, upper=1):
    k = 0 if k is None else int(number(k))
    return _taper().triu(x, k) if upper else _taper().tril(x, k)


def RandomNormalLike(x, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    return _taper().randn(x.shape, dtype=x.dtype, device=x.device) * scale + mean


def RandomUniformLike(x, *, dtype=None, high=1.0, low=0.0, seed=None):
    return _taper().rand(x.shape, dtype=x.dtype, device=x.device) * (high - low) + low


# ---- other arrangements ----
def DepthToSpace(x, *, blocksize, mode="DCR"):
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        y = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(n, c // (b * b), h * b, w * b)


def SpaceToDepth(x, *, blocksize):
    n, c, h, w = x.shape
    b = blocksize
    return x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)


def Pad(x, pads=None, value=None, axes=None, *, pads_=None, value_=0.0, mode="constant"):
    pads = [int(p) if isinstance(p, float) else p for p in numbers(pads_ if pads is None else pads)]
    axes = list(range(x.dim())) if axes is None else [int(a) % x.dim() for a in numbers(axes)]
    before, after = [0] * x.dim(), [0] * x.dim()
    for i, a in enumerate(axes):
        before[a], after[a] = pads[i], pads[i + len(axes)]
    fill = value_ if value is None else number(value)
    if mode == "constant":
        flat = [p for a in range(x.dim() - 1, -1, -1) for p in (before[a], after[a])]
        return _taper().nn.functional.pad(x, flat, "constant", fill)
    for a in range(x.dim()):
        if before[a] or after[a]:
            x = _extended(x, a, before[a], after[a], mode)
    return x


def _extended(x, axis, before, after, mode):
    """One axis longer by elements that are there already."""
    taper = _taper()
    n = x.shape[axis]
    at = taper.arange(-before, n + after, device=x.device)
    if mode == "edge":
        at = at.clamp(0, n - 1)
    elif mode == "wrap":
        at = at.remainder(n)
    else:
        at = (n - 1 - (at.remainder(2 * n - 2) - (n - 1)).abs()) if n > 1 else at * 0
    return x.index_select(axis, at)


# ---- sequences ----
def SequenceConstruct(*values):
    return list(values)


def SequenceEmpty(*, dtype=1):
    return []


def SequenceInsert(seq, value, place=None):
    at = len(seq) if place is None else int(number(place))
    return seq[:at] + [value] + seq[at:]


def SequenceAt(seq, place):
    return seq[int(number(place))]


def SequenceLength(seq):
    return one(len(seq), _taper().int64)


def ConcatFromSequence(seq, *, axis, new_axis=0):
    seq = [tensor(v) for v in seq]
    return _taper().stack(seq, axis) if new_axis else _taper().cat(seq, axis)


def SplitToSequence(x, split=None, *, axis=0, keepdims=1):
    taper = _taper()
    if split is None:
        parts = taper.split(x, 1, axis)
        return list(parts) if keepdims else [p.squeeze(axis) for p in parts]
    sizes = numbers(split)
    return list(taper.split(x, int(sizes[0]) if not split.shape else [int(s) for s in sizes], axis))
