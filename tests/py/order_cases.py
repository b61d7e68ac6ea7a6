"""Sorting and selecting on a device against the CPU, bit for bit: what test_cuda_order.py runs on the interpreter and tests/gpu/order.py on a GPU."""
import random

import taper

TYPES = [taper.bool, taper.uint8, taper.int8, taper.int16, taper.int32, taper.int64, taper.float16, taper.bfloat16, taper.float32,
         taper.float64]
BITS = {2: taper.int16, 4: taper.int32, 8: taper.int64}


def stat(name):
    return taper._C._cuda_stats(0)[name]


def bits(t):
    t = t.contiguous()
    return t.view(BITS[t.element_size()]) if t.dtype.is_floating_point else t


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
