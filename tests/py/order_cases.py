"""Sorting and selecting on a device against the CPU, bit for bit: what test_cuda_order.py runs on the interpreter and tests/gpu/order.py on a GPU."""
import random

import taper

TYPES = [taper.bool, taper.uint8, taper.int8, taper.int16, taper.int32, taper.int64, taper.float16, taper.bfloat16, taper.float32,
         taper.float64]
BITS = {2: taper.int16, 4: taper.int32, 8: taper.int64}


def stat(name):
    return taper._C._cuda_stats(0)[name]


def bits(t):
    """Every bit but those of a NaN: a GPU that converts one on its way writes its own."""
    t = t.contiguous()
    return taper.where(t.isnan(), -1, t.view(BITS[t.element_size()])) if t.dtype.is_floating_point else t


def same(want, got, where):
    """Types, layouts and every bit."""
    if isinstance(want, (tuple, list)):
        assert len(want) == len(got), where
        for a, b in zip(want, got):
            same(a, b, where)
        return
    assert got.device.type == "cuda", where
    assert (want.dtype, want.shape) == (got.dtype, got.shape), (where, want.dtype, got.dtype, want.shape, got.shape)
    assert all(p == q for p, q, n in zip(want.stride(), got.stride(), want.shape) if n > 1), (where, want.stride(), got.stride())
    a, b = bits(want), bits(got.cpu())
    assert taper.equal(a, b), (where, (a != b).nonzero()[:5].tolist(), want, got.cpu())


def sample(shape, dt, seed, ties=True):
    """Values with ties; floats with both zeros, infinities and NaN among them."""
    taper.manual_seed(seed)
    x = taper.randn(shape, dtype=taper.float64) * (20 if ties else 1e4)
    if dt is taper.bool:
        return x > 0
    if not dt.is_floating_point:
        if dt is taper.int64 and not ties:
            return (x * 1e14).to(dt)
        return x.abs().clamp(max=255).to(dt) if dt is taper.uint8 else x.clamp(-128, 127).to(dt)
    x = taper.where(x.abs() < 4, x.round() * 0.0, x) if ties else x
    pick = taper.rand(shape)
    for k, v in enumerate((float("nan"), float("inf"), float("-inf"), -float("nan"))):
        x = taper.where((pick > k * 0.02) & (pick < k * 0.02 + 0.02), taper.tensor(v, dtype=taper.float64), x)
    return x.to(dt)


def layouts(x):
    """The same kind of values, laid out in other ways."""
    yield "plain", x
    if x.ndim == 2 and x.numel():
        yield "turned", x.t().contiguous().t()
        yield "every second", taper.cat([x, x], 1)[:, ::2]
        yield "later", taper.cat([x[:1], x])[1:]


def check(f, x, where, own=1):
    """f of x on both devices; on the GPU by its own kernels, if own."""
    try:
        want = f(x)
    except (RuntimeError, IndexError, NotImplementedError):
        return
    n, h = stat("own"), stat("hosted")
    there = x.to("cuda")
    n, h = stat("own"), stat("hosted")
    got = f(there)
    same(want, got, where)
    if own and x.numel():
        assert stat("own") >= n + own and stat("hosted") == h, (where, stat("own") - n, stat("hosted") - h)


def long_rows(n, types):
    """Rows of several tiles."""
    for dt in types:
        x = sample((2, n), dt, n)
        check(lambda t: t.sort(stable=True), x, ("sort", dt, n))
        check(lambda t: t.argsort(descending=True), x, ("argsort", dt, n))
        check(lambda t: t.topk(5), x, ("topk", dt, n))
        check(lambda t: t.kthvalue(n // 2, keepdim=True), x, ("kthvalue", dt, n))


def sorts(sizes, types=TYPES):
    for dt in types:
        for shape in sizes:
            for how, x in layouts(sample(shape, dt, len(shape) + shape[-1])):
                for dim in {-1, 0}:
                    for d in (False, True):
                        where = (dt, shape, how, dim, d)
                        check(lambda t: t.sort(dim=dim, descending=d, stable=True), x, ("sort", where))
                        if how == "plain":
                            check(lambda t: t.argsort(dim=dim, descending=d), x, ("argsort", where))
                n = x.shape[-1] if x.ndim else 1
                for k in sorted({1, min(n, 3), n // 2, n}):
                    for largest in (True, False):
                        check(lambda t: t.topk(k, largest=largest), x, ("topk", dt, shape, how, k, largest), k > 0)
                    if k:
                        check(lambda t: t.kthvalue(k), x, ("kthvalue", dt, shape, how, k))
                        check(lambda t: t.kthvalue(k, 0, keepdim=True), x[:, :k], ("kthvalue of columns", dt, shape, how, k), k <= len(x)) \
                            if x.ndim == 2 and 0 < k <= len(x) else None


def compiled():
    for shape in ((7, 300), (2, 4500)):
        x = sample(shape, taper.float32, 5)
        def f(x):
            v, i = (x * 2).sort(dim=-1, descending=True, stable=True)
            t, j = x.topk(3)
            return v + 1, i, t * 2, j + i[:, :3]
        want, h = f(x), stat("hosted")
        got = taper.compile(f)(x.cuda())
        same([taper.nan_to_num(t) if t.dtype.is_floating_point else t for t in want],
             [taper.nan_to_num(t) if t.dtype.is_floating_point else t for t in got], ("compiled", shape))
        assert stat("hosted") == h
    x = sample((5, 33), taper.float32, 6).nan_to_num(0)
    a, b = x.clone().requires_grad_(), x.cuda().requires_grad_()
    for t in (a, b):
        (t.sort(0)[0] * taper.arange(33, device=t.device)).sum().backward()
    same(a.grad, b.grad, "gradient of sort")


def random_sorts(count, most, seed=0):
    r = random.Random(seed)
    for i in range(count):
        dt, n = r.choice(TYPES), int(most ** r.random())
        rows = r.choice([1, 2, 3, r.randint(1, max(1, min(200, 3 * most // n)))])
        x = sample((rows, n), dt, seed * 1000 + i, r.random() < 0.5)
        d = r.random() < 0.5
        check(lambda t: t.sort(descending=d, stable=True), x, ("random sort", dt, rows, n, d))
        k = r.randint(1, n)
        check(lambda t: t.topk(k, largest=d), x, ("random topk", dt, rows, n, k, d))


def selects(sizes, types=TYPES):
    for dt in types:
        for shape in sizes:
            for how, x in layouts(sample(shape, dt, len(shape) + shape[-1])):
                where = (dt, shape, how)
                check(lambda t: t.nonzero(), x, ("nonzero", where))
                if how == "plain":
                    check(lambda t: t.nonzero(as_tuple=True), x, ("nonzero as a tuple", where))
                    check(lambda t: taper.unique(t), x, ("unique", where))
                check(lambda t: taper.unique(t, return_inverse=True, return_counts=True), x, ("unique and more", where))
                check(lambda t: taper.unique_consecutive(t, return_inverse=True, return_counts=True), x, ("runs", where))


def masks():
    for shape in ((50,), (7, 9), (3, 4, 5)):
        x = sample(shape, taper.float32, 3)
        mask = sample(shape, taper.bool, 4)
        for name, f in (("masked_select", lambda t, m: t.masked_select(m)), ("index", lambda t, m: t[m]), ("rows", lambda t, m: t[m.reshape(-1)[:len(t)]])):
            n = stat("own")
            same(f(x, mask), f(x.cuda(), mask.cuda()), (name, shape))
            assert stat("own") > n, name
    x = sample((4, 6), taper.float32, 5)
    for t in (x, x.cuda()):
        t[t > 0] = 1
    y = x.cuda()
    y[y > 0] = 2
    x[x > 0] = 2
    same(x, y, "write by mask")
    check(lambda t: t.nonzero(), taper.zeros(10), "nothing found")
    check(lambda t: taper.argwhere(t), taper.ones(3, 5), "all found")
    check(lambda t: t.nonzero(), taper.tensor(2.0), "one element")
    check(lambda t: taper.unique(t), taper.zeros(9000, dtype=taper.int64), "one value")


def searches():
    kinds = ((taper.float32, taper.float32), (taper.float64, taper.float32), (taper.int64, taper.int32), (taper.int32, taper.float16))
    for bt, vt in kinds:
        for n in (1, 2, 33):
            bound, v = sample((n,), bt, n).sort()[0], sample((3, 50), vt, n + 1)
            for right in (False, True):
                for narrow in (False, True):
                    check(lambda t: taper.searchsorted(bound.to(t.device), t, right=right, out_int32=narrow), v, ("search", bt, vt, n, right))
                check(lambda t: taper.bucketize(t, bound.to(t.device), right=right), v, ("bucketize", bt, vt, n, right))
    bound, v = sample((3, 20), taper.float32, 1).sort()[0], sample((3, 7), taper.float32, 2)
    check(lambda t: taper.searchsorted(bound.to(t.device), t, side="right"), v, "lines of boundaries")
    check(lambda t: taper.searchsorted(bound.to(t.device), t), v[:, ::2], "every second value")


def medians(sizes, types):
    for dt in types:
        for shape in sizes:
            x = sample(shape, dt, 9)
            if dt.is_floating_point:
                x[:1] = float("nan")
                x[-1:] = x[-1:].nan_to_num(1.0)
            for f in (lambda t: t.median(-1), lambda t: t.median(0, keepdim=True), lambda t: taper.nanmedian(t, -1, keepdim=True), lambda t: t.nanmedian(0)):
                check(f, x, ("median", dt, shape))


def compiled_selects():
    x = sample((6, 50), taper.float32, 5)
    def f(x):
        y = (x + 1).nan_to_num(0)
        return y[y > 1] * 2, taper.searchsorted(y[0].sort()[0], y), taper.unique(y.round()).sum() + y.median(-1)[0]
    want, h = f(x), stat("hosted")
    got = taper.compile(f)(x.cuda())
    assert stat("hosted") == h, stat("hosted") - h
    same(want[:2], got[:2], "compiled selections")
    assert taper.allclose(want[2], got[2].cpu(), rtol=1e-5)
