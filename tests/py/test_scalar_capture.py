"""Numbers and sizes that only the running program knows stay in the graph: capture_scalar_outputs,
capture_dynamic_output_shape_ops, taper._check, mark_unbacked, mark_dynamic."""
import os
import subprocess
import sys

import taper
from taper._dynamo import config
from taper._dynamo.utils import counters

BACKENDS = ["eager", "aot_eager", "aot_eager_decomp_partition", "inductor"]


def fresh():
    taper._dynamo.reset()
    counters.clear()


def one_graph(f, *inputs, grad=None):
    """f compiled is one graph for all inputs and gives what f gives, on every backend."""
    for b in BACKENDS:
        fresh()
        with config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
            c = taper.compile(f, backend=b)
            for x in inputs:
                grads = []
                for g in (f, c):
                    if grad is not None:
                        grad.grad = None
                    out = g(x)
                    if grad is not None:
                        out.backward()
                    grads.append((out, None if grad is None else grad.grad))
                (w, wg), (o, og) = grads
                assert grad is not None or repr(o) == repr(w), (b, f.__name__, o, w)
                if grad is not None:
                    assert taper.allclose(wg, og), (b, wg, og)
        assert not counters["graph_break"] and counters["stats"]["unique_graphs"] == 1, (b, f.__name__, dict(counters))


def ints(*v):
    return taper.tensor(v)


def test_item_of_an_integer():
    def f(x):
        n = x.sum().item()
        return x * n, n, n * 2 + 1, n > 3

    one_graph(f, ints(1, 2, 3), ints(0, 2, 1))


def test_item_of_a_float():
    def f(x):
        a = x.mean().item()
        return a, a * 2 + 1, x - a, 1 - a, -a, abs(a), x / a, float(x.max()), x.long() * a

    one_graph(f, taper.tensor([1.0, 2.5]), taper.tensor([-3.0, 1.0]))


def test_item_of_a_bool():
    def f(x):
        b = (x > 0).all().item()
        return b, x + 1

    one_graph(f, ints(1, 2), ints(0, 2))


def test_int_cuts_a_float_off():
    one_graph(lambda x: (int(x), int(x) + 1), taper.tensor(2.7), taper.tensor(-2.7))


def test_sizes_from_numbers():
    def f(x):
        n = x.max().item()
        taper._check_is_size(n)
        return taper.zeros(n, 2) + 1

    one_graph(f, ints(1, 3), ints(2, 5))


def test_bounded_number_narrows():
    def f(x):
        n = int(x)
        taper._check(n >= 0)
        taper._check(n <= 4)
        return taper.arange(4).narrow(0, 0, n) * 2, n + 1

    one_graph(f, taper.tensor(2), taper.tensor(4))


def test_nonzero_masks_and_unique():
    one_graph(lambda x: x.nonzero().float().sum(0), ints(0, 1, 2), ints(1, 0, 0))
    one_graph(lambda x: x[x > 1] * 2, ints(0, 1, 2), ints(5, 2, 3))
    one_graph(lambda x: (x.masked_select(x > 1).shape[0], x.masked_select(x > 1).sum()), ints(0, 1, 2), ints(5, 2, 3))
    one_graph(taper.unique, ints(3, 1, 3), ints(1, 2, 3))


def test_gradients_through_masks():
    w = taper.tensor([0.5, -1.0, 2.0, 0.1], requires_grad=True)
    one_graph(lambda x: (w * x)[x > 0].sin().sum(), taper.tensor([1.0, -1.0, 2.0, 0.0]), taper.tensor([1.0, 1.0, 2.0, 3.0]), grad=w)

    def f(x):
        i = x.nonzero().squeeze(1)
        y = (w[i] * 2).view(i.shape[0], 1)
        return (y * y).sum()

    one_graph(f, ints(0, 1, 1, 1), ints(1, 0, 0, 1), grad=w)


def test_without_the_switch_item_breaks():
    fresh()
    f = taper.compile(lambda x: x * x.sum().item(), backend="eager")
    assert f(ints(1, 2)).tolist() == [3, 6]
    assert list(counters["graph_break"]) == ["Tensor.item"]


def test_fullgraph_captures_numbers_too():
    fresh()
    f = taper.compile(lambda x: x * x.sum().item(), backend="aot_eager", fullgraph=True)
    assert f(ints(1, 2)).tolist() == [3, 6]


def test_the_variable_switches_it_on():
    code = ("import taper\nf = taper.compile(lambda x: x * x.sum().item(), backend='eager')\nf(taper.ones(2).long())\n"
            "print(dict(taper._dynamo.utils.counters['graph_break']))\n")
    for name in ("TAPER_CAPTURE_SCALAR_OUTPUTS", "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS"):
        out = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, **{name: "1"}), capture_output=True, text=True)
        assert out.stdout.strip() == "{}", out


def test_a_branch_on_an_unknown_number_breaks_with_a_hint():
    def f(x):
        if x.sum().item() > 3:
            return x + 1
        return x - 1

    for b in BACKENDS:
        fresh()
        with config.patch(capture_scalar_outputs=True):
            c = taper.compile(f, backend=b)
            for x in (ints(1, 2), ints(3, 2)):
                assert c(x).tolist() == f(x).tolist()
        reason, = counters["graph_break"]
        assert reason.startswith("Could not guard on data-dependent expression u0 >= 4") and "taper._check(" in reason, reason
    fresh()
    try:
        taper.compile(f, backend="eager", fullgraph=True)(ints(1))
    except taper._dynamo.exc.Unsupported as e:
        assert "Could not guard on data-dependent expression" in str(e) and "TB0023" in str(e)
    else:
        raise AssertionError("fullgraph accepted a data-dependent branch")


def test_checks_hold_when_the_graph_runs():
    cases = [(taper._check, RuntimeError), (taper._check_value, ValueError), (taper._check_index, IndexError),
             (taper._check_type, TypeError), (taper._check_not_implemented, NotImplementedError)]
    for check, cls in cases:
        def f(x):
            n = x.item()
            check(n < 10, lambda: "ten is too much")
            return taper.ones(3) * n

        for b in BACKENDS:
            fresh()
            with config.patch(capture_scalar_outputs=True):
                c = taper.compile(f, backend=b)
                assert c(taper.tensor(3)).tolist() == [3, 3, 3]
                try:
                    c(taper.tensor(30))
                except cls as e:
                    assert str(e) == "ten is too much", e
                else:
                    raise AssertionError(f"{b}: {cls.__name__} expected")
            assert counters["stats"]["unique_graphs"] == 1


def test_division_by_a_number_that_turns_out_zero():
    fresh()
    with config.patch(capture_scalar_outputs=True):
        c = taper.compile(lambda x: 1 / x.item(), backend="aot_eager")
        assert c(taper.tensor(2.0)) == 0.5
        try:
            c(taper.tensor(0.0))
        except ZeroDivisionError as e:
            assert str(e) in ("float division by zero", "division by zero")  # the second: since CPython 3.14
        else:
            raise AssertionError("ZeroDivisionError expected")


def marked(mark, n, **kw):
    x = taper.ones(n, 2)
    mark(x, 0, **kw)
    return x


def test_mark_dynamic_with_bounds():
    for b in BACKENDS:
        fresh()
        f = taper.compile(lambda x: x.sum(0) + x.shape[0], backend=b)
        d = taper._dynamo.mark_dynamic
        for n in (5, 3, 10):
            assert f(marked(d, n, min=3, max=10)).tolist() == [2.0 * n] * 2
        assert counters["stats"]["unique_graphs"] == 1
        f(marked(d, 11))
        assert counters["stats"]["unique_graphs"] == 2  # outside the range that the first was compiled for
    try:
        marked(taper._dynamo.mark_dynamic, 5, min=4, max=3)
    except ValueError as e:
        assert "min=4 is above max=3" in str(e)
    else:
        raise AssertionError


def test_mark_dynamic_that_ends_up_constant_is_an_error():
    fresh()
    f = taper.compile(lambda x: x + taper.ones(5, 1), backend="eager")
    try:
        f(marked(taper._dynamo.mark_dynamic, 5))
    except taper._dynamo.exc.ConstraintViolationError as e:
        assert "L['x'].size()[0] was marked dynamic" in str(e), e
    else:
        raise AssertionError
    f(marked(taper._dynamo.maybe_mark_dynamic, 5))


def test_mark_unbacked_asks_no_question():
    for b in BACKENDS:
        fresh()
        f = taper.compile(lambda x: (x * 2 + x.shape[0], x.shape[0]), backend=b)
        for n in (5, 1, 0, 2):
            y, k = f(marked(taper._dynamo.mark_unbacked, n))
            assert y.shape == (n, 2) and k == n
        assert counters["stats"]["unique_graphs"] == 1, (b, counters)
    fresh()

    @taper.compile(backend="eager", fullgraph=True)
    def g(x):
        return x if x.shape[0] == 5 else x * 2

    try:
        g(marked(taper._dynamo.mark_unbacked, 5))
    except taper._dynamo.exc.Unsupported as e:
        assert "mark_dynamic instead of mark_unbacked" in str(e), e
    else:
        raise AssertionError


def test_a_symbolic_size_kept_by_a_backend_is_refused_on_real_data_and_outlives_its_graph():
    kept = []

    def backend(gm, inputs):
        for n in gm.graph.nodes:
            v = n.meta.get("val", n.meta.get("example_value"))
            if hasattr(v, "shape"):
                kept.append(v.shape[0])
        return gm
    taper.compile(lambda x: x.sin(), backend=backend, dynamic=True)(taper.ones(5, 3))
    s = kept[0]
    for call in (lambda: taper.ones(5, 3).view(s, 3), lambda: taper.ones(4).expand(s, 4), lambda: taper.ones(7)[:s],
                 lambda: taper.ones(3) * s, lambda: taper.ones(3).add_(s), lambda: taper.ones(5).reshape(s, -1)):
        try:
            call()
        except RuntimeError as e:
            assert "symbolic" in str(e), e
        else:
            raise AssertionError("accepted")
    taper._dynamo.reset()
    assert repr(s) == "s0" and repr(s * 2 + 1) == "2*s0 + 1"

