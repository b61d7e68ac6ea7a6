"""Every row that has a kernel and a decomposition: both give the same values, gradients and types in float32 and
float64, and calls without data say the same shapes and strides. A row without an example is a failure. (A row without a
kernel is its decomposition.)"""
import taper
import test_grad_table as table
from taper import _C

COMP = table.COMP
gen = table.gen


def rnd(*shape, lo=-2.0, hi=2.0):
    return table.rnd(*shape, lo=lo, hi=hi)


def i64(*v, shape=None):
    return table.ints(*v, shape=shape)


def stats(x, dims, keep=True):
    """mean and 1/std of x over dims, as a forward call saved them"""
    x = x.detach()
    return x.mean(dims, keep), (x.var(dims, correction=0, keepdim=keep) + 1e-5).rsqrt()


def layer(*mask):
    x = rnd(4, 3, 5)
    return (rnd(4, 3, 5), x, [3, 5]) + tuple(stats(x, (1, 2))) + (rnd(3, 5), rnd(3, 5), list(mask))


def group(w, mask):
    x = rnd(2, 6, 4)
    return (rnd(2, 6, 4), x) + tuple(stats(x.reshape(2, 3, 8), 2, False)) + (rnd(6) if w else None, 2, 6, 4, 3, mask)


def batch(train, w, mask):
    x = rnd(5, 3, 4)
    m, inv = stats(x, (0, 2), False)
    return (rnd(5, 3, 4), x, rnd(3) if w else None, rnd(3).detach(), rnd(3, lo=0.5, hi=2).detach(), m if train else None, inv if train else None, train, 1e-5, mask)


def nll(red, w, ignore, ndim=2):
    shape, t = ((4, 3), i64(0, 2, 1, 2)) if ndim == 2 else ((2, 3, 2, 2), i64(0, 2, 1, 2, 1, 1, 0, 2, shape=(2, 2, 2))) if ndim == 4 else ((3,), i64(1, shape=()))
    g = rnd(*(t.shape if red == 0 and ndim > 1 else ()))
    return g, rnd(*shape), t, rnd(3, lo=0.5, hi=2).detach() if w else None, red, ignore, taper.tensor(2.5, dtype=table.F64)


def fwd(red, w, ignore, ndim=2):
    return nll(red, w, ignore, ndim)[1:6]


# sizes of the image and of the weight, results, then stride, padding, dilation, transposed, output padding, groups
CONVOLUTIONS = [((7, 6), (6, 4, 3, 3), 6, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
                ((7, 6), (6, 4, 3, 2), 6, [2, 1], [0, 2], [2, 1], False, [0, 0], 1),
                ((9, 30), (5, 4, 1, 1), 5, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
                ((7, 6), (5, 4, 1, 1), 5, [2, 2], [0, 0], [1, 1], False, [0, 0], 1),
                ((20, 19), (3, 4, 3, 3), 3, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
                ((7, 6), (4, 1, 3, 3), 4, [2, 2], [1, 1], [1, 1], False, [0, 0], 4),
                ((7, 6), (8, 1, 3, 3), 8, [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
                ((7, 6), (6, 2, 2, 2), 6, [1, 2], [0, 0], [1, 1], False, [0, 0], 2),
                ((7, 6), (4, 3, 2, 2), 3, [2, 2], [0, 0], [1, 1], True, [0, 0], 1),
                ((7, 6), (4, 3, 3, 3), 6, [2, 2], [1, 1], [1, 2], True, [1, 0], 2),
                ((4, 4), (4, 3, 1, 1), 3, [2, 1], [1, 0], [1, 1], True, [0, 0], 1),
                ((8,), (6, 4, 3), 6, [2], [3], [1], False, [0], 1),
                ((4, 5, 3), (6, 4, 2, 3, 1), 6, [1, 2, 1], [1, 0, 1], [1, 1, 1], False, [0, 0, 0], 1)]
MAX_POOLS = [([3, 3], [2, 2], [1, 1], [1, 1], False), ([3, 2], [2, 3], [1, 0], [2, 1], True), ([2, 2], [], [0, 0], [1, 1], False),
             ([3, 3], [1, 1], [0, 1], [1, 2], True)]
AVG_POOLS = [([3, 3], [2, 2], [1, 1], False, True, None), ([3, 2], [2, 3], [1, 0], True, False, None), ([2, 2], [], [0, 0], False, True, 3),
             ([3, 3], [2, 2], [1, 1], True, True, None)]


def with_nan(x):
    x[0, 0, 2, 3] = float("nan")
    x[1, 1] = float("-inf")
    return x


EXTRA = {
    "native_layer_norm_backward": [lambda: layer(True, True, True), lambda: layer(False, True, False), lambda: layer(True, False, False)],
    "native_group_norm_backward": [lambda: group(True, [True] * 3), lambda: group(False, [True, False, False])],
    "native_batch_norm_backward": [lambda: batch(True, True, [True] * 3), lambda: batch(False, True, [True] * 3), lambda: batch(True, False, [True, False, True])],
    "nll_loss_backward": [lambda: nll(r, w, i, d) for r in (0, 1, 2) for w in (False, True) for i in (-100, 2) for d in (2, 1)],
    "nll_loss2d_backward": [lambda: nll(r, w, i, 4) for r in (0, 1, 2) for w in (False, True) for i in (-100, 2)],
    "nll_loss_forward": [lambda: fwd(0, True, 2), lambda: fwd(1, False, -100), lambda: fwd(2, True, -100), lambda: fwd(1, True, 2, 1)],
    "nll_loss2d_forward": [lambda: fwd(0, True, 2, 4), lambda: fwd(1, True, -100, 4)],
    "binary_cross_entropy": [lambda r=r: (rnd(3, 2, lo=0.1, hi=0.9), rnd(3, 2, lo=0, hi=1).detach(), rnd(3, 2, lo=0.5, hi=2).detach(), r) for r in (0, 1, 2)],
    "binary_cross_entropy_backward": [lambda r=r: (rnd(*([3, 2] if r == 0 else [])), rnd(3, 2, lo=0.1, hi=0.9), rnd(3, 2, lo=0, hi=1).detach(), rnd(3, 2, lo=0.5, hi=2).detach(), r)
                                      for r in (0, 1, 2)],
    "select_backward": [lambda: (rnd(2, 4), [2, 3, 4], 1, 2), lambda: (rnd(), [3], 0, -1)],
    "slice_backward": [lambda: (rnd(2, 2, 4), [2, 5, 4], 1, 1, 5, 2), lambda: (rnd(0, 3), [2, 3], 0, 1, 1, 1)],
    "_max_pool2d_offsets_backward": [lambda: (rnd(2, 2, 3), i64(0, 1, 2, 3, 3, 2, 1, 0, 5, 4, 3, 2, shape=(2, 2, 3)).to(taper.int8), [2, 2, 48], [1, 16])],
    # those of devices: products, slices and sums in place of kernels of the CPU
    "convolution": [lambda a=a: (rnd(2, 4, *a[0]), rnd(*a[1]), rnd(a[2]), *a[3:]) for a in CONVOLUTIONS],
    "convolution_backward": [lambda a=a, m=m: (taper.convolution(rnd(2, 4, *a[0]), rnd(*a[1]), None, *a[3:]).detach(), rnd(2, 4, *a[0]), rnd(*a[1]),
                                               [a[2]], *a[3:], m) for a in CONVOLUTIONS for m in ([True] * 3, [False, True, False])],
    "max_pool2d_with_indices": [lambda a=a: (with_nan(rnd(2, 2, 7, 6).detach()), *a) for a in MAX_POOLS],
    "max_pool3d_with_indices": [lambda: (rnd(2, 5, 4, 6), [2, 3, 2], [2, 1, 2], [1, 1, 0], [1, 1, 2], False)],
    "_max_pool2d_with_offsets": [lambda a=a: (rnd(2, 2, 7, 6).detach(), *a) for a in MAX_POOLS],
    "max_pool2d_with_indices_backward": [lambda a=a: (lambda x, r: (r[0].detach() * 2, x, *a[:4], a[4], r[1]))(
        x := rnd(2, 2, 7, 6).detach(), taper._C._call("max_pool2d_with_indices", x, *a)) for a in MAX_POOLS],
    "max_pool3d_with_indices_backward": [lambda: (lambda x, r: (r[0].detach() * 2, x, [2, 3, 2], [2, 1, 2], [1, 1, 0], [1, 1, 1], False, r[1]))(
        x := rnd(2, 5, 4, 6).detach(), taper._C._call("max_pool3d_with_indices", x, [2, 3, 2], [2, 1, 2], [1, 1, 0], [1, 1, 1], False))],
    "avg_pool2d": [lambda a=a: (rnd(2, 2, 7, 6), *a) for a in AVG_POOLS],
    "avg_pool2d_backward": [lambda a=a: (taper._C._call("avg_pool2d", rnd(2, 2, 7, 6), *a).detach(), rnd(2, 2, 7, 6).detach(), *a) for a in AVG_POOLS],
    "_adaptive_avg_pool2d": [lambda o=o: (rnd(2, 3, 7, 6), o) for o in ([1, 1], [7, 3], [5, 4], [9, 8])],
    "_adaptive_avg_pool2d_backward": [lambda o=o: (rnd(2, 3, *o), rnd(2, 3, 7, 6).detach()) for o in ([1, 1], [7, 3], [5, 4], [9, 8])],
    "col2im": [lambda: (rnd(2, 12, 12), [5, 6], [2, 2], [2, 1], [0, 1], [1, 2]), lambda: (rnd(4, 6), [4, 3], [2, 2], [1, 1], [0, 0], [1, 1])],
    "im2col": [lambda: (rnd(2, 3, 5, 6), [2, 2], [2, 1], [0, 1], [1, 2]), lambda: (rnd(1, 4, 3), [2, 2], [1, 1], [0, 0], [1, 1])],
    "_softmax_backward_data": [lambda: (rnd(3, 4), rnd(3, 4).detach().softmax(1).requires_grad_(), 1, table.F64)],
    "_log_softmax_backward_data": [lambda: (rnd(3, 4), rnd(3, 4).detach().log_softmax(1).requires_grad_(), 1, table.F64)],
    "native_batch_norm": [lambda: (rnd(5, 3, 2), rnd(3), rnd(3), None, None, True, 0.1, 1e-5),
                          lambda: (rnd(5, 3), None, None, rnd(3).detach(), rnd(3, lo=0.5, hi=2).detach(), False, 0.1, 1e-5)],
    "_native_batch_norm_legit_functional": [lambda: (rnd(5, 3, 2), rnd(3), rnd(3), rnd(3).detach(), rnd(3, lo=0.5, hi=2).detach(), True, 0.1, 1e-5)],
    "count_nonzero": [lambda: (taper.tensor([0.0, 1.0, 2.0, 0.0], dtype=table.F64).view(2, 2),)],
    "count_nonzero.dim_IntList": [lambda: (taper.tensor([0.0, 1.0, 2.0, 0.0], dtype=table.F64).view(2, 2), [1])],
    "all": [lambda: (table.mask(2, 3),)],
    "all.dim": [lambda: (table.mask(2, 3), 1), lambda: (table.mask(2, 3), 0, True)],
    "all.dims": [lambda: (table.mask(2, 3), [0, 1]), lambda: (table.mask(2, 3), [1], True)],
    "native_group_norm": [lambda: (rnd(2, 6, 4), rnd(6), rnd(6), 2, 6, 4, 3, 1e-5)],
}


def rows():
    return [r for r in _C._schemas() if r[6] != "none" and not r[3] & COMP]


def cast(a, dt):
    if isinstance(a, taper.Tensor) and a.is_floating_point():
        t = a.detach().to(dt)
        return t.requires_grad_() if a.requires_grad else t
    if isinstance(a, (list, tuple)):
        return type(a)(cast(x, dt) for x in a)
    return dt if a is table.F64 else a


def meta(a):
    """The same without data."""
    if isinstance(a, taper.Tensor):
        return taper.empty_strided(a.shape, a.stride(), dtype=a.dtype, device="meta")
    return type(a)(meta(x) for x in a) if isinstance(a, (list, tuple)) else a


def run(call, args):
    """The results, and the gradients of their weighted sum."""
    out = call(*args)
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    xs = [x for x in table.flat(tuple(args))[0] if isinstance(x, taper.Tensor) and x.requires_grad]
    total = None
    for i, o in enumerate(outs):
        if i and "norm" in str(call.__name__):
            break  # saved statistics have no gradient of their own
        if o is not None and o.is_floating_point() and o.requires_grad and o.numel():
            w = (taper.arange(o.numel(), dtype=taper.float64).cos() + 1.5).to(o.dtype).view(o.shape)
            total = (o * w).sum() if total is None else total + (o * w).sum()
    grads = taper.autograd.grad(total, xs, allow_unused=True) if total is not None and xs else []
    return outs, list(grads)


def same(a, b, tol, what):
    assert (a is None) == (b is None), (what, a, b)
    if a is None:
        return
    assert a.dtype == b.dtype and a.shape == b.shape, (what, a.dtype, b.dtype, a.shape, b.shape)
    if a.numel():
        d = (a.double() - b.double()).nan_to_num(0.0).abs().max().item()
        assert taper.equal(a.isnan(), b.isnan()), (what, a, b)
        assert d <= tol * (1 + b.double().nan_to_num(0.0).abs().max().item()), (what, d)


def zero_or(a, b):
    """A gradient that one way does not reach is zero the other way."""
    return taper.zeros_like(b) if a is None and b is not None else a


def differentiable(row):
    return row[5] not in ("none", "constant")


def test_decompositions_and_kernels_agree():
    gen.manual_seed(11)
    bad, seen = [], 0
    for row in rows():
        name = row[0]
        cases = [c() for c in EXTRA[name]] if name in EXTRA else table.examples(row)
        if not cases:
            bad.append(f"{name}: no example")
            continue
        seen += 1
        for args in cases:
            for dt, tol in ((taper.float64, 1e-10), (taper.float32, 2e-5)):
                a = cast(tuple(args), dt)
                try:
                    kernel, parts = table.call_of(name, row[1]), table.call_of(name, row[1], _C._call_parts)
                    with taper.set_grad_enabled(differentiable(row)):
                        (o, g), (p, h) = run(kernel, a), run(parts, a)
                    assert len(o) == len(p)
                    for x, y in zip(p, o):
                        same(x, y, tol, "value")
                    for x, y in zip(g, h):
                        same(zero_or(x, y), zero_or(y, x), tol * 10, "gradient")
                    for call in (kernel, parts):
                        for f, y in zip(run(call, meta(a))[0], o):
                            assert (f is None) == (y is None), ("fake", f, y)
                            assert y is None or (f.dtype, f.shape, f.stride()) == (y.dtype, y.shape, y.stride()), ("fake", f.shape, f.stride(), y.shape, y.stride())
                except Exception as e:
                    bad.append(f"{name} {dt}: {type(e).__name__}: {str(e)[:300]}")
    assert not bad, f"{len(bad)}:\n" + "\n".join(bad)
    assert seen >= 37
