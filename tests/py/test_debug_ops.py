"""debug_print and debug_check_finite: in the graph, forward and backward, under every backend."""
import contextlib
import io

import taper

BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")


def shown(fn, *args):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        r = fn(*args)
    return out.getvalue(), r


def test_debug_print_does_not_break_and_prints_each_call():
    def fn(x):
        y = x * 2
        taper.debug_print(y, "y")
        return y + 1
    for backend in BACKENDS:
        taper._dynamo.reset()
        f = taper.compile(fn, backend=backend, fullgraph=True)
        for k in (1.0, 2.0):
            out, r = shown(f, taper.full((2,), k))
            assert out == f"y: tensor([{2 * k:g}., {2 * k:g}.])\n", (backend, out)
            assert taper.equal(r, taper.full((2,), 2 * k + 1)), backend
        assert taper._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert shown(fn, taper.ones(1))[0] == "y: tensor([2.])\n"


def test_debug_print_shows_the_gradient_where_its_result_is_used():
    def fn(x):
        y = taper.debug_print(x * 2, "y")
        return (y * 3).sum()
    for f in [fn] + [taper.compile(fn, backend=b, fullgraph=True) for b in BACKENDS]:
        x = taper.ones(2, requires_grad=True)
        out, loss = shown(f, x)
        assert out.startswith("y: tensor([2., 2."), out
        out, _ = shown(loss.backward)
        assert out.startswith("y grad: tensor([3., 3."), out
        assert x.grad.tolist() == [6.0, 6.0]


def test_debug_print_of_a_value_that_needs_a_gradient_but_is_not_used():
    def fn(x):
        taper.debug_print(x.exp(), "e")
        return (x * 3).sum()
    for backend in BACKENDS:
        taper._dynamo.reset()
        x = taper.zeros(1, requires_grad=True)
        out, loss = shown(taper.compile(fn, backend=backend, fullgraph=True), x)
        assert out.startswith("e: tensor([1."), (backend, out)
        loss.backward()
        assert x.grad.tolist() == [3.0]


def test_debug_check_finite_forward_and_gradient():
    def fn(x):
        y = taper.debug_check_finite(x.log(), "log x")
        return y.sum()

    def sq(x):
        return taper.debug_check_finite(x * 1, "x").sqrt().sum()
    for backend in (None,) + BACKENDS:
        taper._dynamo.reset()
        f, g = (fn, sq) if backend is None else [taper.compile(h, backend=backend, fullgraph=True) for h in (fn, sq)]
        assert f(taper.ones(3)).item() == 0
        for bad in ([1.0, 0.0], [1.0, -1.0]):
            try:
                f(taper.tensor(bad))
            except FloatingPointError as e:
                assert "'log x' has" in str(e) and "element 1" in str(e), (backend, e)
            else:
                raise AssertionError((backend, bad))
        x = taper.zeros(2, requires_grad=True)
        loss = g(x)
        try:
            loss.backward()
        except FloatingPointError as e:
            assert "the gradient of 'x' has 0 NaN and 2 infinite values" in str(e), (backend, e)
        else:
            raise AssertionError((backend, x.grad))
