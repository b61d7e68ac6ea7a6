"""Inputs that share memory which a compiled function writes: what one write does shows in the others, compiled as in eager."""
import taper
import taper._dynamo
from same_results import check
from taper._dynamo.utils import counters

BACKENDS = ("aot_eager", "aot_eager_decomp_partition", "aot_eager_decomp_partition_crossref", "inductor")


def overlapping():
    b = taper.arange(12.0)
    return b, [b[0:8], b[4:12]]


def whole_and_part():
    b = taper.arange(12.0)
    return b, [b, b[3:7]]


def matrix_and_columns():
    b = taper.arange(12.0).view(3, 4)
    return b, [b.t(), b[:, 1]]


def far_into_it():
    b = taper.arange(40.0)
    return b, [b[20:28], b[24:32]]


def three():
    b = taper.arange(12.0)
    return b, [b[::2], b[1::2], b[2:6]]


def same_place():
    b = taper.arange(6.0)
    return b, [b.view(2, 3), b.view(3, 2)]


def apart():
    b = taper.arange(12.0)
    return b, [b[0:4], b[8:12]]


LAYOUTS = [overlapping, whole_and_part, matrix_and_columns, far_into_it, three, same_place, apart]


def write_first(*x):
    x[0].mul_(2)
    return x[1] + 1, x[0].sum()


def write_last(*x):
    y = x[0] * 3
    x[-1].add_(1)
    return y + x[0], x[-1] * 2


def write_both(*x):
    x[0].add_(1)
    x[1].mul_(3)
    x[0].sub_(x[1].sum())
    return x[0] * 1, x[1] * 1


def return_inputs(*x):
    x[1].fill_(7)
    return x[0], x[1], x[0].view(-1) if x[0].is_contiguous() else x[0].t()


def fill_part(*x):
    x[0][..., 0] = 5
    return x[1].exp()


PROGRAMS = [write_first, write_last, write_both, return_inputs, fill_part]


def test_like_eager():
    for layout in LAYOUTS:
        for f in PROGRAMS:
            b, xs = layout()
            want = [t.tolist() for t in f(*xs)]
            after = b.tolist()
            for backend in BACKENDS:
                taper._dynamo.reset()
                counters.clear()
                c = taper.compile(f, backend=backend, dynamic=False)
                for _ in range(2):
                    b, xs = layout()
                    got = c(*xs)
                    if f is return_inputs:
                        assert got[0] is xs[0] and got[1] is xs[1]
                        assert got[2].data_ptr() == xs[0].data_ptr()
                    seen = [t.tolist() for t in got]
                    close = all(abs(p - q) <= 1e-5 * max(1, abs(q)) for p, q in zip(flat(seen), flat(want)))
                    assert close, (layout.__name__, f.__name__, backend, seen, want)
                    assert b.tolist() == after, (layout.__name__, f.__name__, backend, b.tolist(), after)
                assert not counters["aot_fallback"], (layout.__name__, f.__name__, dict(counters["aot_fallback"]))


def flat(x):
    return [z for y in x for z in flat(y)] if isinstance(x, list) else [x]


def test_they_may_lie_elsewhere_but_not_at_another_distance():
    taper._dynamo.reset()
    n = 0

    def backend(g, inputs):
        nonlocal n
        n += 1
        return g.forward

    def f(x, y):
        x.mul_(2)
        return y + 1
    c, k = taper.compile(f, backend="inductor", dynamic=False), taper.compile(f, backend=backend, dynamic=False)
    for run in (c, k):
        for at, apart in ((0, 2), (5, 2), (5, 3), (0, 3)):
            b = taper.arange(20.0)
            want = taper.arange(20.0)
            want[at:at + 4] *= 2
            r = run(b[at:at + 4], b[at + apart:at + apart + 4])
            assert b.tolist() == want.tolist()
            assert r.tolist() == (want[at + apart:at + apart + 4] + 1).tolist()
    assert n == 2


def test_versions_count():
    taper._dynamo.reset()
    c = taper.compile(lambda x, y: (x.mul_(2), y + 1)[1], backend="inductor")
    b, w = taper.arange(8.0), taper.ones(4, requires_grad=True)
    saved = (w * b[0:4]).sum()
    c(b[0:4], b[2:6])
    try:
        saved.backward()
        assert False
    except RuntimeError as e:
        assert "modified by an inplace operation" in str(e)


def test_where_it_runs_eagerly_it_says_so():
    def f(x, y, w):
        x.mul_(2)
        return (y * w).sum()
    for why, args, dynamic in (
            ("gradients are wanted", lambda b: (b[0:4], b[2:6], taper.ones(4, requires_grad=True)), False),
            ("symbolic", lambda b: (b[0:4], b[2:6], taper.ones(4)), True)):
        taper._dynamo.reset()
        counters.clear()
        b, e = taper.arange(8.0), taper.arange(8.0)
        got, want = taper.compile(f, backend="inductor", dynamic=dynamic)(*args(b)), f(*args(e))
        assert got.item() == want.item() and b.tolist() == e.tolist()
        assert why in " ".join(counters["aot_fallback"]), dict(counters["aot_fallback"])


def test_one_that_is_only_looked_at():
    """The graph has one of two inputs in one storage: it begins inside, its new value does not."""
    def part(x, y):
        x.narrow(0, 0, 2).add_(1)
        return y.dim()

    def strided(x, y):
        x.as_strided((2,), (2,)).mul_(3)
        return y.dim(), x[1:] * 2

    def of_a_view(x, y):
        if x._base is not None:
            x.chunk(2)[1].add_(1)
        return x * 1
    for f in (part, strided, of_a_view):
        check(f, lambda: (lambda b: [b[3:9], b])(taper.arange(12.0)))
        check(f, lambda: (lambda b: [b[3:9], b[1:]])(taper.arange(12.0)))


def test_writes_to_parts_count():
    def f(x, y):
        x.chunk(1)[0].add_(1)
        x.split(2)[0].mul_(2)
        return taper.matmul(x, y)
    check(f, lambda: (lambda b: [b, b.mT])(taper.arange(9).reshape(3, 3)))


def test_inputs_without_elements_reach_no_memory():
    """A view of nothing may begin anywhere: the memory that inputs share is that of the others."""
    def f(x, y):
        x.add_(1)
        return y * 1, x * 2
    check(f, lambda: (lambda b: [b, b[1]])(taper.zeros(2, 0)))
    check(f, lambda: (lambda b: [b[5:], b[2:]])(taper.arange(5.0)))
    check(f, lambda: (lambda b: [b[2:], b[5:]])(taper.arange(5.0)))
    check(f, lambda: (lambda b: [b[:0], b[2:4]])(taper.arange(5.0)))
