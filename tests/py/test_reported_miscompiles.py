"""Programs that users of another tensor compiler reported as silently wrong: each family over shapes, element types,
thread counts, fixed and dynamic sizes. Compiled equals eager; where both do the same operations in the same order, bit
for bit."""
import taper
import taper._dynamo as dynamo
from taper.nn import functional as F

TOL = {taper.float64: 1e-12, taper.float32: 2e-5, taper.float16: 4e-3, taper.bfloat16: 3e-2}


def same(want, got, exact, what, tol=0):
    """tol: of the coarsest type on the way; a fused kernel does not round between its steps."""
    if isinstance(want, (tuple, list)):
        assert len(want) == len(got), what
        for a, b in zip(want, got):
            same(a, b, exact, what, tol)
        return
    assert want.dtype == got.dtype and want.shape == got.shape, (what, want.dtype, got.dtype, want.shape, got.shape)
    want, got = want.detach(), got.detach()
    if exact or not want.is_floating_point():
        assert taper.equal(want, got), (what, (want.double() - got.double()).abs().max())
        return
    a, b = want.double(), got.double()
    bad = (a - b).abs() > max(tol, TOL[want.dtype]) * (1 + a.abs())
    assert not bad.any() and not (a.isnan() ^ b.isnan()).any(), (what, (a - b).abs().max())


def check(f, cases, exact=False):
    """cases: functions that make fresh arguments. One compiled function serves all of them, so later sizes find earlier
    kernels; results and what happened to the arguments must be eager's."""
    threads, limit = taper.get_num_threads(), dynamo.config.recompile_limit
    dynamo.config.recompile_limit = 1000
    try:
        for n in (1, 2, 3):
            taper.set_num_threads(n)
            for dynamic in (False, None, True):
                dynamo.reset()
                g = taper.compile(f, dynamic=dynamic, fullgraph=True)
                for i, make in enumerate(cases):
                    taper.manual_seed(i)
                    a = make()
                    b = [v.clone() for v in a]
                    what = (getattr(f, "__name__", "f"), i, n, dynamic)
                    tol = max(TOL.get(v.dtype, 0) for v in a)
                    same(f(*a), g(*b), exact, what, tol)
                    same(a, b, exact, what + ("arguments",), tol)
    finally:
        dynamo.config.recompile_limit = limit
        taper.set_num_threads(threads)


def floats(*shape, dtypes=(taper.float32, taper.float64, taper.bfloat16, taper.float16)):
    return [lambda d=d, s=s: [taper.randn(list(s)).to(d)] for s in shape for d in dtypes]


def test_pooling_then_sum():
    """Rows after the first were read with a stride that the pooled buffer did not have."""
    for k in (7, 1, (3, 5)):
        def f(x, k=k):
            return F.adaptive_avg_pool2d(x, k).flatten(1).sum(dim=-1)
        check(f, floats((4, 65, 8, 8), (3, 17, 7, 9), (2, 1, 5, 5), (1, 3, 16, 16), dtypes=(taper.float32, taper.float64)))

    def rest(x):
        a = F.avg_pool2d(x, 3, 2, 1, ceil_mode=True).sum((1, 2))
        b = F.max_pool2d(x, 2).flatten(1).sum(-1)
        c = F.adaptive_max_pool2d(x, 2).sum((2, 3))
        d = F.avg_pool2d(x, 2, count_include_pad=False, padding=1).amax((0, 3))
        return a, b, c, d
    check(rest, floats((2, 3, 8, 8), (1, 33, 7, 5), (5, 2, 4, 6), dtypes=(taper.float32, taper.float64)))


def test_layer_norm_then_reciprocal():
    """Division-like steps fused behind a normalisation used its statistics before they were finished. Results near the
    poles are as uncertain as their inputs, so the arguments keep away from them."""
    def f(x):
        n = x.shape[-1]
        y = F.layer_norm(x, [n])
        return taper.reciprocal(y.abs() + 0.5), taper.rsqrt(y.abs() + 0.5), 1 / taper.sqrt(y * y + 0.25), y

    def g(x, w, b):
        y = F.layer_norm(x, [x.shape[-1]], w, b, 1e-3)
        z = taper.reciprocal(F.group_norm(x, 1).abs() + 1)
        return taper.reciprocal(y.abs() + 0.5).sum(-1), z * y, taper.rsqrt(x.cummax(-1)[0].abs() + 1)

    check(f, floats((64, 128), (1, 17), (3, 5, 33), (2, 1000), (7, 2)))
    check(g, [lambda n=n, m=m, d=d: [taper.randn(n, m).to(d), taper.randn(m).to(d), taper.randn(m).to(d)]
              for n, m in ((64, 128), (3, 17), (9, 16), (1, 31)) for d in (taper.float32, taper.float64)])


def test_index_add_order():
    """Sums into one place are made in the order of the index, and are complete before anything reads them."""
    def f(x, i, src):
        y = x.index_add(0, i, src)
        return y, y[i], y.flip(0) + y, taper.index_select(y, 0, i) * 2

    def inplace(x, i, src):
        x.index_add_(0, i, src, alpha=2)
        x.add_(x.flip(0))
        return x * 1

    def one_row(x, i):  # a target of one row, gathered in the same graph
        r = taper.zeros(1, x.shape[1], dtype=x.dtype)
        r.scatter_add_(0, i.unsqueeze(-1).expand(-1, x.shape[1]) * 0, x)
        return taper.index_select(r, 0, i * 0)

    def broadcast(x, bias, i):
        src = x + bias
        return taper.zeros(1, 1, dtype=x.dtype).scatter_reduce(0, (i * 0).unsqueeze(-1).expand_as(src), src, "sum", include_self=True)

    def doubled(x, i):  # x[[0, 0]] += ... reads what was there before
        j = i * 0
        x[j] += x[j]
        return x.sum(0)

    types = (taper.float32, taper.float64, taper.int64, taper.bfloat16)
    sizes = ((1, 1, 1), (4, 8, 3), (5, 17, 16), (64, 100, 33), (3, 7, 1))
    make = [lambda n=n, k=k, m=m, d=d: [(taper.randn(n, m) * 8).to(d), taper.randint(0, n, [k]), (taper.randn(k, m) * 8).to(d)]
            for n, k, m in sizes for d in types]
    check(f, make, exact=True)
    check(inplace, make, exact=True)
    check(one_row, [lambda c=c: [c()[2], c()[1]] for c in make], exact=True)
    check(doubled, [lambda c=c: c()[:2] for c in make])
    check(broadcast, [lambda n=n, d=d: [taper.randn(n, 1).to(d), taper.tensor([0.25], dtype=d), taper.arange(n)]
                      for n in (1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64) for d in types[:2]], exact=True)


def test_pad_of_a_split_reduction():
    """The element that padding adds got the sum instead of the fill."""
    def lengths(mask):
        n = mask.sum(dim=-1, dtype=taper.int32)
        return F.pad(taper.cumsum(n, 0, dtype=taper.int32), (1, 0)), F.pad(n, (1, 0)), F.pad(n, (2, 1), value=7)

    def pads(x):
        s = x.sum(-1)
        return F.pad(s, (1, 0)), F.pad(s, (0, 3), value=2.5), F.pad(x.amax(0), (1, 1)).sum(), F.pad(s, (1, -1)), \
            taper.where(taper.arange(s.shape[0] + 1) > 0, F.pad(s, (1, 0)), -1.0)

    check(lengths, [lambda n=n, m=m: [taper.randint(0, 2, [n, m]).bool()]
                    for n, m in ((1, 16384), (2, 70000), (1, 1), (5, 17), (33, 100))])
    check(pads, floats((1, 16384), (2, 65537), (3, 5), (1, 1), (17, 16), dtypes=(taper.float32, taper.float64)))

    def shrink(x):  # a pad that cuts, behind a normalisation
        y = F.batch_norm(x, taper.zeros(x.shape[1]), taper.ones(x.shape[1])).flatten(1)
        return F.pad(y, (0, 50 - y.shape[-1]))
    check(shrink, [lambda n=n, c=c: [taper.randn(n, c, 3, 3)] for n, c in ((3, 50), (1, 7), (2, 6))])

    def twice(x):
        a = F.pad(x, (0, 1))
        b = F.pad(a, (0, 0, 0, 1), "reflect")
        b[0, 0, 0] = 0.5
        return b, F.pad(x, (10, 10)), F.pad(x, (0, -1)).sum(-1)
    check(twice, floats((1, 2, 1), (2, 3, 4), dtypes=(taper.float32,)))


def test_in_place_flip_then_sum():
    """A tensor was written while its mirror image was still to be read."""
    def f(x):
        x.add_(x.flip(0))
        return x.sum(-1), x.sum()

    def foreach(x):
        taper._foreach_add_([x], [x.flip(0)])
        return x.sum(0)

    def put(x):
        x.index_put_((taper.arange(x.size(0)),), x * 2.0)
        x.add_(x.flip(0))
        return x + 0

    def copied(x):
        x.copy_(x.flip(0))
        y = x.sum(1)
        x[1:] = x[:-1].clone()
        x.mul_(x.flip(-1) + x.roll(1, 0))
        return y, x.sum(0)

    def turned(x):
        y = x.clone()
        y.sin_()
        z = y.t()
        y.add_(y.flip(1))
        return z.argmin(0), z + 1

    shapes = ((8, 8), (1, 1), (2, 3), (17, 33), (300, 257), (4, 1))
    eighths = [lambda d=d, s=s: [(taper.randint(-32, 33, list(s)) / 8).to(d)]  # every step on them is exact
               for s in shapes for d in (taper.float32, taper.float64, taper.bfloat16, taper.float16)]
    for g in (f, foreach, put):
        check(g, eighths, exact=True)
    check(copied, floats(*shapes, dtypes=(taper.float32, taper.float64)))
    check(turned, floats(*shapes, dtypes=(taper.float64,)))


def test_bfloat16_embedding():
    """Rows of a narrow table, looked up, projected and normalised in one graph, under autocast and by hand."""
    def f(i, table, pos, w):
        x = F.embedding(i, table) + F.embedding(taper.arange(i.shape[-1]), pos)
        y = F.linear(x, w)
        return F.rms_norm(y, [y.shape[-1]]), x.float().mean(-1), x  # a mean: a sum would add up 128 roundings of x

    def cast(i, table, pos, w):  # what autocast does: a float32 table, products in bfloat16
        x = F.embedding(i, table) + F.embedding(taper.arange(i.shape[-1]), pos)
        y = F.linear(x.bfloat16(), w.bfloat16())
        return F.rms_norm(y.float(), [y.shape[-1]], eps=0.1), x

    def lookup(i, table, pos, w):
        x = F.embedding(i, table)
        return x * 2, x.float() + 1, F.embedding(i, table, padding_idx=0) - x, table[i] + x

    def case(b, t, n, m, d):
        return lambda: [taper.randint(0, n, [b, t]), taper.randn(n, m).to(d), taper.randn(t, m).to(d), (taper.randn(m, m) / m).to(d)]
    sizes = ((1, 1, 1, 1), (2, 5, 10, 16), (3, 7, 100, 33), (1, 64, 17, 128), (4, 3, 5, 15))
    for d in (taper.bfloat16, taper.float16, taper.float32):
        check(f, [case(*s, d) for s in sizes])
        check(lookup, [case(*s, d) for s in sizes], exact=True)
    check(cast, [lambda c=case(*s, taper.float32): [v.bfloat16() if v.is_floating_point() else v for v in c()] for s in sizes])


def test_gradients_of_the_same_programs():
    """The backward graphs meet the same patterns: scatters into tables, sums over broadcast sizes, padded sums."""
    def run(f, args):
        mine = [a.detach().clone().requires_grad_() if a.is_floating_point() else a for a in args]
        out = f(*mine)
        (out * out).sum().backward()
        return [a.grad for a in mine if a.is_floating_point()]

    programs = [
        (lambda x: F.adaptive_avg_pool2d(x, 3).flatten(1).sum(-1), [taper.randn(3, 5, 7, 8)]),
        (lambda x: taper.reciprocal(F.layer_norm(x, [17]).abs() + 0.5), [taper.randn(5, 17)]),
        (lambda x, s: x.index_add(0, taper.tensor([1, 1, 0, 1]), s).flip(0), [taper.randn(2, 33), taper.randn(4, 33)]),
        (lambda x: F.pad(x.sum(-1), (1, 0)).cumsum(0), [taper.randn(3, 5000)]),
        (lambda x: (x.clone().add_(x.flip(0))).sum(-1), [taper.randn(9, 16)]),
        (lambda w: F.embedding(taper.tensor([[0, 2, 2], [1, 0, 0]]), w).sum(1), [taper.randn(4, 17)]),
    ]
    for i, (f, args) in enumerate(programs):
        for dtype in (taper.float32, taper.float64):
            for dynamic in (False, True):
                dynamo.reset()
                a = [v.to(dtype) if v.is_floating_point() else v for v in args]
                same(run(f, a), run(taper.compile(f, dynamic=dynamic, fullgraph=True), a), False, (i, dtype, dynamic))
