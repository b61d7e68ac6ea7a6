"""taper.cond, while_loop, scan and map: eager, captured in one graph, under every backend, with gradients."""
import os
import subprocess
import tempfile

import taper
from taper._higher_order_ops import cond, map as tmap, scan, while_loop

BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")


def graphs_of(fn, *args, **kw):
    seen = []

    def keep(gm, inputs):
        seen.append(gm)
        return gm.forward
    taper._dynamo.reset()
    taper.compile(fn, backend=keep, fullgraph=True, **kw)(*args)
    return seen


def grads(fn, args, params=()):
    args = [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, taper.Tensor) else a for a in args]
    for p in params:
        p.grad = None
    out = fn(*args)
    flat = []

    def walk(o):
        if isinstance(o, taper.Tensor):
            flat.append(o)
        elif isinstance(o, (tuple, list)):
            for v in o:
                walk(v)
        elif isinstance(o, dict):
            for v in o.values():
                walk(v)
    walk(out)
    loss = sum((o * (i + 1)).sum() for i, o in enumerate(flat) if o.is_floating_point())
    if loss.requires_grad:
        loss.backward()
    got = [a.grad for a in args if isinstance(a, taper.Tensor)] + [p.grad for p in params]
    return [o.detach() for o in flat], got


def check(fn, cases, params=(), dynamic=None, compiles=None):
    """Compiled in one graph and alike under every backend, values and gradients."""
    for backend in BACKENDS:
        taper._dynamo.reset()
        f = taper.compile(fn, backend=backend, fullgraph=True, dynamic=dynamic)
        for args in cases:
            want, wg = grads(fn, args, params)
            got, gg = grads(f, args, params)
            assert len(want) == len(got)
            for a, b in zip(want, got):
                assert a.shape == b.shape and a.dtype == b.dtype, (backend, a, b)
                assert taper.allclose(a, b, atol=1e-5), (backend, a, b)
            for a, b in zip(wg, gg):
                if a is None:
                    assert b is None or not b.any(), (backend, b)
                else:
                    assert taper.allclose(a, b, atol=1e-4), (backend, a, b)
        if compiles is not None:
            assert taper._dynamo.utils.counters["stats"]["unique_graphs"] == compiles, (backend, taper._dynamo.utils.counters["stats"])


def x33(v=1.0, grad=True):
    return (taper.arange(9).reshape(3, 3) / 7 * v + 0.1 * v).requires_grad_(grad)


def test_the_guides_cond_program_is_one_graph_with_both_branches():
    def fn(x):
        return taper.cond(
            x.sum() > 0,
            lambda x: x + 1,
            lambda x: x - 1,
            (x,),
        )
    assert taper.allclose(fn(taper.ones(3, 3)), taper.full((3, 3), 2.0))
    graphs = graphs_of(fn, taper.ones(3, 3))
    assert len(graphs) == 1
    text = graphs[0].print_readable(print_output=False)
    assert "true_graph_0" in text and "false_graph_0" in text and "+ 1" in text and "- 1" in text, text
    check(fn, [(x33(1),), (x33(-1),)], compiles=1)


def test_cond_closures_become_operands_and_get_gradients():
    w, b = taper.randn(3, 3, requires_grad=True), taper.randn(3, requires_grad=True)

    def fn(x):
        y = x * 2
        return taper.cond(x.sum() > 0, lambda: y @ w + b, lambda: y.sin() - x, ())
    check(fn, [(x33(1),), (x33(-1),)], params=(w, b), compiles=1)


def test_cond_on_a_module_with_parameters():
    class Net(taper.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = taper.nn.Linear(3, 4), taper.nn.Linear(3, 4)

        def forward(self, x):
            return taper.cond(x.mean() > 0, self.a, self.b, (x,))
    net = Net()
    check(lambda x: net(x), [(x33(1),), (x33(-1),)], params=tuple(net.parameters()))


def test_cond_nested_three_deep():
    def fn(x):
        def inner(x):
            return taper.cond(x.max() > 1, lambda v: v * 2, lambda v: taper.cond(v.min() > 0, lambda u: u.exp(), lambda u: u * u, (v,)), (x,))
        return taper.cond(x.sum() > 0, inner, lambda x: x.cos(), (x,))
    check(fn, [(x33(1),), (x33(-1),), (x33(0.3),), (x33(0.3) - 0.2,)], compiles=None)


def test_cond_results_may_be_tuples_lists_and_dicts():
    def fn(x):
        r = taper.cond(x.sum() > 0, lambda x: {"a": x + 1, "b": (x.sum(), [x * x])}, lambda x: {"a": x - 1, "b": (x.mean(), [x])}, (x,))
        return r["a"], r["b"][0], r["b"][1][0]
    check(fn, [(x33(1),), (x33(-1),)])


def test_cond_branches_with_different_strides():
    def fn(x):
        return taper.cond(x.sum() > 0, lambda x: x.t(), lambda x: x + 1, (x,)) * 2
    check(fn, [(x33(1),), (x33(-1),)])


def test_cond_integer_results_and_operands_without_gradient():
    def fn(x, k):
        a, b = taper.cond(k.sum() > 2, lambda x, k: (x * k, k + 1), lambda x, k: (x, k - 1), (x, k))
        return a, b
    check(fn, [(x33(1), taper.tensor([1, 2, 3])), (x33(1), taper.tensor([0, 0, 1]))])


def test_cond_with_dynamic_sizes():
    def fn(x):
        return taper.cond(x.sum() > 0, lambda x: x.reshape(-1) * x.shape[0], lambda x: (x - 1).reshape(-1), (x,)).sum()
    check(fn, [(taper.ones(n, 3, requires_grad=True),) for n in (2, 3, 5)] + [(-taper.ones(4, 3),)], dynamic=True)


def test_cond_on_a_python_bool_takes_one_branch():
    def fn(x, flag):
        return taper.cond(flag, lambda x: x + 1, lambda x: x - 1, (x,))
    (g,) = graphs_of(fn, taper.ones(3), True)
    assert "cond" not in str(g)
    check(fn, [(x33(), True), (x33(), False)])


def test_cond_refuses_different_shapes_naming_both():
    def fn(x):
        return taper.cond(x.sum() > 0, lambda x: x[:2], lambda x: x, (x,))
    try:
        taper.compile(fn)(taper.ones(3, 3))
    except taper._dynamo.exc.UncapturedHigherOrderOpError as e:
        assert "f32[2, 3]" in str(e) and "f32[3, 3]" in str(e) and "true_fn" in str(e) and "false_fn" in str(e), e
        assert "test_control_flow.py" in str(e)
    else:
        raise AssertionError("not refused")
    for bad, word in ((lambda x: (x, x), "structures"), (lambda x: x.to(taper.float64), "f64[3, 3]")):
        try:
            taper.compile(lambda x: taper.cond(x.sum() > 0, bad, lambda x: x, (x,)))(taper.ones(3, 3))
        except taper._dynamo.exc.UncapturedHigherOrderOpError as e:
            assert word in str(e), e
        else:
            raise AssertionError("not refused")


def test_suppress_errors_does_not_hide_a_refused_cond():
    with taper._dynamo.config.patch(suppress_errors=True):
        try:
            taper.compile(lambda x: taper.cond(x.sum() > 0, lambda x: x[:2], lambda x: x, (x,)))(taper.ones(3, 3))
        except taper._dynamo.exc.UncapturedHigherOrderOpError:
            return
    raise AssertionError("hidden")


def test_cond_wrong_arguments():
    x = taper.ones(3)
    for call in (lambda: taper.cond(x > 0, lambda v: v, lambda v: v, (x,)), lambda: taper.cond("yes", lambda v: v, lambda v: v, (x,)),
                 lambda: taper.cond(True, 1, 2), lambda: taper.cond(True, lambda v: v, lambda v: v, x)):
        try:
            call()
        except RuntimeError as e:
            assert "cond" in str(e), e
        else:
            raise AssertionError("accepted")


def test_cond_that_writes_to_its_operand_runs_eagerly_and_right():
    def fn(x):
        y = x * 1
        taper.cond(x.sum() > 0, lambda v: v.add_(1), lambda v: v.sub_(1), (y,))
        return y
    for s in (1.0, -1.0):
        x = taper.full((3,), s)
        assert taper.equal(taper.compile(fn)(x), fn(x))
    try:
        taper.compile(fn, fullgraph=True)(taper.ones(3))
    except taper._dynamo.exc.Unsupported as e:
        assert "writes to a tensor from outside" in str(e), e
    else:
        raise AssertionError("captured a write")


def test_cond_that_changes_python_objects_runs_eagerly_and_right():
    log = []

    def fn(x):
        def yes(v):
            log.append("yes")
            return v + 1

        def no(v):
            log.append("no")
            return v - 1
        return taper.cond(x.sum() > 0, yes, no, (x,))
    f = taper.compile(fn)
    f(taper.ones(3)), f(-taper.ones(3))
    assert log == ["yes", "no"], log


def test_a_tensor_of_a_branch_does_not_leak():
    def fn(x):
        out = []

        def yes(v):
            out.append(v * 3)
            return v + 1
        r = taper.cond(x.sum() > 0, yes, lambda v: v - 1, (x,))
        return r + out[0] if out else r
    f = taper.compile(fn)
    assert taper.equal(f(taper.ones(3)), fn(taper.ones(3)))


def test_while_loop():
    def fn(x, n):
        return while_loop(lambda i, v: i < n, lambda i, v: (i + 1, v * 1.5 + 1), (taper.tensor(0), x))
    for backend in BACKENDS:
        taper._dynamo.reset()
        f = taper.compile(fn, backend=backend, fullgraph=True)
        for n in (0, 1, 5):
            i, v = f(taper.ones(3), taper.tensor(n))
            wi, wv = fn(taper.ones(3), taper.tensor(n))
            assert taper.equal(i, wi) and taper.allclose(v, wv), backend
        assert taper._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_while_loop_gradient():
    check(lambda x: while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * v), (taper.tensor(0), x)), [(x33(0.5),)])


def test_while_loop_refuses_a_changing_shape():
    try:
        taper.compile(lambda x: while_loop(lambda v: v.sum() < 9, lambda v: (taper.cat([v, v]),), (x,)))(taper.ones(2))
    except taper._dynamo.exc.UncapturedHigherOrderOpError as e:
        assert "f32[2]" in str(e) and "f32[4]" in str(e), e
    else:
        raise AssertionError("accepted")


def test_scan_is_a_cumulative_sum():
    def fn(x):
        return scan(lambda c, v: (c + v, c * v), taper.zeros(3), x)
    carry, ys = fn(x33(1, False))
    assert taper.allclose(carry, x33(1, False).sum(0)) and ys.shape == (3, 3)
    check(fn, [(x33(),)], compiles=1)


def test_scan_gradients_of_carry_inputs_and_closures():
    w, h = taper.randn(4, 4, requires_grad=True), taper.randn(2, 4, requires_grad=True)
    u = taper.randn(3, 4, requires_grad=True)

    def rnn(x):
        return scan(lambda c, v: ((c @ w + v @ u).tanh(), c.sum(-1)), h, x)
    check(rnn, [(taper.randn(5, 2, 3, requires_grad=True),), (taper.randn(5, 2, 3),)], params=(w, h, u))


def test_scan_reverse_and_dim_and_trees():
    def fn(x):
        init = {"s": taper.zeros(3), "n": taper.tensor(0)}

        def step(c, v):
            return {"s": c["s"] + v["a"] * v["b"], "n": c["n"] + 1}, (v["a"] - c["s"], c["n"])
        return scan(step, init, {"a": x, "b": x.cos()}, dim=1, reverse=True)
    check(fn, [(x33(),)])


def test_scan_with_a_dynamic_length():
    def fn(x):
        return scan(lambda c, v: (c + v, c), taper.zeros(2), x)
    check(fn, [(taper.ones(n, 2, requires_grad=True),) for n in (3, 4, 6)], dynamic=True)


def test_scan_refusals():
    for f, words in ((lambda c, v: (c[:1], v), ("f32[3]", "f32[1]")), (lambda c, v: c, ("carry, output",))):
        try:
            taper.compile(lambda x: scan(f, taper.zeros(3), x))(taper.ones(2, 3))
        except taper._dynamo.exc.UncapturedHigherOrderOpError as e:
            assert all(w in str(e) for w in words), e
        else:
            raise AssertionError("accepted")


def test_map_with_closures_extra_arguments_and_gradients():
    w = taper.randn(3, 3, requires_grad=True)

    def fn(x, b):
        return tmap(lambda v, b: (v @ w + b, v.sum()), x, b)
    check(fn, [(x33(), taper.randn(3, requires_grad=True)), (x33(grad=False), taper.randn(3))], params=(w,))


def test_cond_inside_scan():
    def fn(x):
        return scan(lambda c, v: taper.cond(v.sum() > 0, lambda c, v: (c + v, v * 2), lambda c, v: (c - v, c * 3), (c, v)), taper.zeros(3), x)
    check(fn, [(x33() - 0.5,)])


def test_graphs_with_nested_graphs_print_and_parse():
    def fn(x):
        return scan(lambda c, v: (taper.cond(v.sum() > 0, lambda: c + v, lambda: c * 1), v), taper.zeros(3), x)
    (g,) = graphs_of(fn, x33(grad=False))
    text = g.print_readable(print_output=False)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "g.graph")
        with open(path, "w") as f:
            f.write(text)
        root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
        exe = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(root, "build")), "taper")
        again = subprocess.run([exe, "graph", "print", path], check=True, capture_output=True, text=True).stdout
        assert "def combine_graph_0(self, " in again and "def true_graph_0(self, " in again, again
        ran = subprocess.run([exe, "graph", "run", path], check=True, capture_output=True, text=True).stdout
        assert ran


def test_python_backends_see_nested_graphs_and_can_run_them():
    def fn(x):
        return scan(lambda c, v: (taper.cond(v.sum() > 0, lambda: c + v, lambda: c * 1), v), taper.zeros(3), x)

    def interpret(gm, inputs):
        node = next(n for n in gm.graph.nodes if getattr(n.target, "__name__", "") == "scan")
        assert isinstance(node.args[0], taper.fx.GraphModule)
        assert any(getattr(n.target, "__name__", "") == "cond" for n in node.args[0].graph.nodes)
        return taper.fx.Interpreter(gm).run
    taper._dynamo.reset()
    x = x33(grad=False) - 0.5
    got, want = taper.compile(fn, backend=interpret)(x), fn(x)
    assert taper.allclose(got[0], want[0]) and taper.allclose(got[1], want[1])


def test_cond_on_a_symbolic_predicate():
    """A number that only the running program knows decides; both branches are in the graph."""
    def fn(x):
        return taper.cond(x.sum().item() > 3, lambda x: x + 1, lambda x: x - 1, (x,))
    with taper._dynamo.config.patch(capture_scalar_outputs=True):
        for backend in BACKENDS:
            taper._dynamo.reset()
            f = taper.compile(fn, backend=backend, fullgraph=True)
            for v in ([1, 2], [5, 5], [0, 0]):
                assert taper.equal(f(taper.tensor(v)), fn(taper.tensor(v))), (backend, v)
            assert taper._dynamo.utils.counters["stats"]["unique_graphs"] == 1, backend


def test_cond_on_a_symbolic_size_is_one_graph_with_both_branches():
    def fn(x):
        n = x.shape[0]
        return taper.cond(n > 4, lambda x: x.sin(), lambda x: x.cos(), (x,))
    for backend in BACKENDS:
        taper._dynamo.reset()
        f = taper.compile(fn, backend=backend, dynamic=True, fullgraph=True)
        for n in (3, 5, 8, 2):
            x = taper.randn(n, 7, requires_grad=True)
            y = x.detach().clone().requires_grad_()
            a, b = f(x), fn(y)
            a.sum().backward()
            b.sum().backward()
            assert taper.allclose(a, b) and taper.allclose(x.grad, y.grad), (backend, n)
        assert taper._dynamo.utils.counters["stats"]["unique_graphs"] == 1, backend


def test_a_comparison_of_sizes_beside_cond_stays_a_bool():
    def fn(x):
        big = x.shape[0] > 4
        y = taper.cond(big, lambda x: x + 1, lambda x: x - 1, (x,))
        y = y * (big + 1) + int(big) + taper.cond(big == True, lambda x: x, lambda x: -x, (x,))  # noqa: E712
        y = y + x.sum(0, keepdim=big)
        return (y if not big else y * 2), big, isinstance(big, bool), type(big) is bool, f"{big}"
    f = taper.compile(fn, dynamic=True, fullgraph=True)
    for n in (5, 3, 9):
        got, want = f(taper.ones(n)), fn(taper.ones(n))
        assert taper.equal(got[0], want[0]) and got[1:] == want[1:] and got[1] is want[1], (n, got)


def test_cond_on_a_float_read_from_a_tensor():
    def fn(x):
        return taper.cond(x.mean().item() * 2 > 3.5, lambda x: x + 1, lambda x: x - 1, (x,))
    with taper._dynamo.config.patch(capture_scalar_outputs=True):
        for backend in BACKENDS:
            taper._dynamo.reset()
            f = taper.compile(fn, backend=backend, fullgraph=True)
            for v in ([1.0, 2.0], [5.0, 5.0], [0.0, 0.0]):
                assert taper.equal(f(taper.tensor(v)), fn(taper.tensor(v))), (backend, v)
            assert taper._dynamo.utils.counters["stats"]["unique_graphs"] == 1, backend


def test_a_python_branch_on_a_float_read_from_a_tensor_breaks_the_graph():
    def fn(x):
        return x + 1 if x.sum().item() > 3.5 else x - 1
    with taper._dynamo.config.patch(capture_scalar_outputs=True):
        f = taper.compile(fn)
        for v in ([1.0, 2.0], [5.0, 5.0]):
            assert taper.equal(f(taper.tensor(v)), fn(taper.tensor(v)))
        try:
            taper.compile(fn, fullgraph=True)(taper.ones(2))
        except taper._dynamo.exc.Unsupported as e:
            assert "taper.cond" in str(e)
        else:
            raise AssertionError("accepted")


def test_while_loop_that_carries_an_int_breaks_the_graph_and_is_right():
    def fn(x):
        return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), (0, x.sin()))
    for got in (fn(taper.ones(2)), taper.compile(fn)(taper.ones(2))):
        assert got[0] == 3 and taper.allclose(got[1], 8 * taper.ones(2).sin())


def test_while_loop_gradients_are_compiled():
    """The number of steps is the data's: none, few, many; closures and carried values get gradients."""
    w = taper.tensor([0.9, 1.2], requires_grad=True)

    def count(x):
        return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * v * w), (taper.tensor(0), x))[1]

    def until(x):
        return while_loop(lambda v: v.sum() < 9, lambda v: (v * w.exp() + 1,), (x,))[0].sin()

    def inside(x):
        return taper.cond(x.sum() > 1, until, lambda x: x * w, (x,))

    def grads(fn, v):
        x = taper.tensor(v, requires_grad=True)
        w.grad = None
        y = fn(x)
        y.sum().backward()
        return y.detach(), x.grad, w.grad if w.grad is not None else taper.zeros(2)
    for fn in (count, until, inside):
        for backend in BACKENDS:
            taper._dynamo.reset()
            f = taper.compile(fn, backend=backend, dynamic=True, fullgraph=True)
            for v in ([[1.1, 0.7], [0.2, 0.3], [1, 1]], [[11.0, 2.0]] * 4, [[0.1, 0.1]] * 6):
                assert all(taper.allclose(p, q) for p, q in zip(grads(f, v), grads(fn, v))), (fn, backend, v)
            assert taper._dynamo.utils.counters["stats"]["unique_graphs"] == 1, (fn, backend)


def test_associative_scan():
    from taper._higher_order_ops.associative_scan import associative_scan
    for n in (1, 2, 5, 8):
        x = taper.arange(float(2 * n)).view(n, 2) * 0.3 + 0.1
        for f, want in ((lambda x: associative_scan(taper.add, x, 0), x.cumsum(0)), (lambda x: associative_scan(taper.mul, x, 0, combine_mode="generic"), x.cumprod(0)),
                        (lambda x: associative_scan(taper.add, x, 0, reverse=True), x.flip(0).cumsum(0).flip(0))):
            for g in (f, taper.compile(f, backend="eager", fullgraph=True), taper.compile(f, fullgraph=True)):
                assert taper.allclose(g(x), want), (n, g(x), want)

    def linear(a, b):  # x[t] = a[t] * x[t - 1] + b[t]
        return {"a": a["a"] * b["a"], "b": b["a"] * a["b"] + b["b"]}
    a, b = taper.arange(12.0).view(2, 6) * 0.1, taper.ones(2, 6)
    state, rows = taper.zeros(2), []
    for t in range(6):
        state = a[:, t] * state + b[:, t]
        rows.append(state)
    assert taper.allclose(associative_scan(linear, {"a": a, "b": b}, 1)["b"], taper.stack(rows, 1))
    y = a.clone().requires_grad_()
    associative_scan(taper.mul, y + 1, 1).sum().backward()
    z = a.clone().requires_grad_()
    (z + 1).cumprod(1).sum().backward()
    assert taper.allclose(y.grad, z.grad, atol=1e-4)
    for call, words in ((lambda: associative_scan(1, a, 0), "takes a function"), (lambda: associative_scan(taper.add, {}, 0), "no tensor"),
                        (lambda: associative_scan(taper.add, a, 0, combine_mode="x"), "combine_mode"),
                        (lambda: associative_scan(lambda p, q: (p[0], p[1], q[0]), (a, b), 0), "must return what it takes"),
                        (lambda: associative_scan(lambda p, q: p, (a, b[:1]), 0), "same length")):
        try:
            call()
        except (RuntimeError, ValueError) as e:
            assert words in str(e), e
        else:
            raise AssertionError(words)


def test_modules_named_after_their_functions():
    import importlib
    import taper._higher_order_ops as h
    for name in ("cond", "while_loop", "scan", "map", "associative_scan", "wrap"):
        m = importlib.import_module("taper._higher_order_ops." + name)
        assert getattr(m, name) is getattr(h, name) and callable(getattr(h, name))
