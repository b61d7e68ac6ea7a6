"""out= inside a compiled function: part of the graph where the tensor has the result's type and size."""
import taper
taper._C._counted_draws(True)  # eager operators draw what kernels draw
from taper._dynamo.utils import counters


def check(f, *make, breaks=0):
    def run(fn):
        taper.manual_seed(0)
        args = [m() for m in make]
        r = fn(*args)
        flat = [t for a in [r, *args] for t in (a if isinstance(a, tuple) else (a,))]
        return flat, r is args[-1]
    want, is_out = run(f)
    for b in ("eager", "aot_eager", "inductor"):
        taper._dynamo.reset()
        c = taper.compile(f, backend=b)
        for _ in range(2):
            got, same = run(c)
            assert same == is_out, b
            assert all(x.dtype == y.dtype and x.shape == y.shape and taper.allclose(x, y) for x, y in zip(got, want)), (b, got, want)
        assert len(counters["graph_break"]) == breaks, (b, counters)


def vec(*shape, dtype=taper.float32):
    return lambda: taper.randn(shape).to(dtype)


def test_in_the_graph():
    check(lambda a, o: taper.sum(a, dim=0, out=o), vec(2, 3), vec(3))
    check(lambda a, o: taper.mul(a, o, out=o), vec(3), vec(3))
    check(lambda a, o: taper.mul(a, 2, out=o.t()), vec(2, 3), vec(3, 2))
    check(lambda a, o: taper.mul(o[1:], 2, out=o[:-1]), vec(3), vec(4))
    check(lambda o: taper.randn(3, out=o), vec(3))

    def several(a, b, o):
        taper.add(a, b, out=o)
        c = taper.empty(3)
        taper.sin(o, out=c)
        return taper.mul(c, 2, out=o)
    check(several, vec(3), vec(3), vec(3))


def test_where_more_happens_than_a_copy_the_graph_ends():
    check(lambda a, o: taper.add(a, 1, out=o), vec(3), vec(3, dtype=taper.float64), breaks=1)
    check(lambda a, o: taper.add(a, 1, out=o) * 1, vec(3), vec(0), breaks=1)
    check(lambda a, o: taper.max(a, dim=0, out=o), vec(3, 2), lambda: (taper.zeros(2), taper.zeros(2, dtype=taper.int64)), breaks=1)


def test_out_records_no_gradient():
    """A call with out= that would need a gradient is refused; comparisons, factories and calls under no_grad are not."""
    x = taper.ones(2, requires_grad=True) * 1
    plain = lambda: taper.zeros(2)
    for fn, *args in ((lambda a, o: taper.add(a, 1, out=o), x, plain()), (lambda a, o: taper.add(a, 1, out=o), plain(), x), (lambda a, o: taper.cat([a, a], out=o), x, taper.zeros(4)),
                      (lambda a, o: taper.sum(a, 0, out=o), x, taper.zeros(()))):
        for g in (fn, taper.compile(fn, backend="eager"), taper.compile(fn)):
            try:
                g(*args)
            except RuntimeError as e:
                assert "don't support automatic differentiation" in str(e), e
            else:
                assert False, "out= took a tensor that requires grad"
    assert taper.eq(x, 1, out=taper.zeros(2, dtype=taper.bool)).all()
    taper.zeros(2, out=x)
    with taper.no_grad():
        assert taper.add(taper.ones(2, requires_grad=True), 1, out=plain()).tolist() == [2, 2]
