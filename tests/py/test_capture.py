"""taper.compile: counts of compiles, switches, backends, marks, reports."""
import collections
import operator
import threading

import taper
import taper._dynamo as dynamo
from taper._dynamo.utils import counters


def raises(cls, fn, text=""):
    try:
        fn()
    except cls as e:
        assert text in str(e), str(e)
        return e
    raise AssertionError(f"{cls.__name__} was expected")


def counting(graphs=None):
    graphs = graphs if graphs is not None else []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward
    backend.graphs = graphs
    return backend


def compiles(dynamic, sizes, fn=lambda x: x + 1, **kw):
    dynamo.reset()
    b = counting()
    c = taper.compile(fn, backend=b, dynamic=dynamic, **kw)
    for s in sizes:
        s = s if isinstance(s, tuple) else (s,)
        x = taper.arange(1, 1 + taper.ones(*s).numel(), dtype=taper.float32).reshape(*s)
        assert c(x).tolist() == fn(x).tolist()
    return len(b.graphs)


def test_sizes_3_4_5():
    assert compiles(None, [3, 4, 5]) == 2
    assert compiles(True, [3, 4, 5]) == 1
    assert compiles(False, [3, 4, 5]) == 3


def test_zero_and_one_are_special():
    assert compiles(True, [3, 1, 0, 4]) == 3
    assert compiles(None, [3, 4, 1, 7, 9]) == 3


def test_duck_sizing():
    assert compiles(True, [(3, 3), (4, 4), (5, 5)]) == 1
    assert compiles(True, [(3, 3), (4, 5)]) == 2


def test_only_the_dimension_that_changed_becomes_dynamic():
    assert compiles(None, [(3, 2), (4, 2), (5, 2), (6, 2)]) == 2
    assert compiles(None, [(3, 2), (4, 2), (4, 3), (7, 8)]) == 3


def test_rank_is_never_dynamic():
    assert compiles(True, [(3,), (3, 3), (3, 3, 3)]) == 3


def test_a_branch_on_a_size_is_guarded():
    def fn(x):
        return x * 2 if x.shape[0] > 4 else x * 3
    assert compiles(True, [3, 4, 5, 9, 2], fn) == 2


def test_ints_become_dynamic():
    b = counting()
    dynamo.reset()
    c = taper.compile(lambda x, n: x * n, backend=b)
    for n in (2, 3, 4, 5):
        assert c(taper.ones(2), n).tolist() == [float(n)] * 2
    assert len(b.graphs) == 2


def test_mark_dynamic_and_static():
    dynamo.reset()
    b = counting()
    c = taper.compile(lambda x: x + 1, backend=b)
    for n in (3, 4, 5):
        x = taper.ones(n, 2)
        dynamo.mark_dynamic(x, 0)
        c(x)
    assert len(b.graphs) == 1
    dynamo.reset()
    b = counting()
    c = taper.compile(lambda x: x + 1, backend=b)
    for n in (3, 4, 5):
        x = taper.ones(n)
        dynamo.mark_static(x, 0)
        c(x)
    assert len(b.graphs) == 3
    x = taper.ones(3)
    dynamo.mark_dynamic(x, 0)
    raises(Exception, lambda: taper.compile(lambda x: x.reshape(3) if x.shape[0] == 3 else x, backend="eager")(x), "")


def test_recompile_limit_keeps_the_entries():
    dynamo.reset()
    b = counting()
    c = taper.compile(lambda x: x + 1, backend=b, dynamic=False)
    with dynamo.config.patch(cache_size_limit=3):
        for n in range(2, 8):
            assert c(taper.ones(n)).tolist() == [2.0] * n
        assert len(b.graphs) == 3
        c(taper.ones(2))
    rows = [r for r in taper.compiler.ledger() if r.frame_id >= 0 and r.function == "<lambda>"]
    assert sum(r.runs for r in rows) == 4, rows


def test_fullgraph():
    def fn(x):
        print("hello")
        return x + 1
    dynamo.reset()
    e = raises(dynamo.exc.Unsupported, lambda: taper.compile(fn, fullgraph=True, backend="eager")(taper.ones(2)), "print")
    assert "TB0005" in str(e) and "Hint:" in str(e) and "from user code" in str(e) and "test_capture.py" in str(e)
    assert taper.compile(lambda x: x * 2, fullgraph=True, backend="eager")(taper.ones(2)).tolist() == [2.0, 2.0]
    raises(dynamo.exc.Unsupported, lambda: taper.compile(lambda x: x if x.sum() > 0 else -x, fullgraph=True)(taper.ones(2)), "Data-dependent jump")


def test_fullgraph_limit_is_an_error():
    dynamo.reset()
    c = taper.compile(lambda x: x + 1, backend="eager", dynamic=False, fullgraph=True)
    with dynamo.config.patch(cache_size_limit=2):
        c(taper.ones(2)), c(taper.ones(3))
        raises(dynamo.exc.FailOnRecompileLimitHit, lambda: c(taper.ones(4)), "fullgraph=True")


def test_error_on_recompile():
    dynamo.reset()
    c = taper.compile(lambda x: x + 1, backend="eager")
    with dynamo.config.patch(error_on_recompile=True):
        c(taper.ones(2))
        raises(dynamo.exc.RecompileError, lambda: c(taper.ones(3)), "size mismatch at index 0. expected 2, actual 3")


def test_guard_fail_fn():
    seen = []
    dynamo.reset()
    c = dynamo.optimize("eager", guard_fail_fn=seen.append)(lambda x: x + 1)
    c(taper.ones(2)), c(taper.ones(2)), c(taper.ones(3))
    assert len(seen) == 1 and "size mismatch" in str(seen[0]), seen


# ---- what can be compiled
class Model(taper.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = taper.nn.Linear(3, 4)
        self.b = taper.nn.Linear(4, 2)
        self.calls = 0

    def forward(self, x, scale=1):
        self.calls += 1
        return self.b(taper.relu(self.a(x))) * scale


def test_modules():
    dynamo.reset()
    taper.manual_seed(0)
    m = Model()
    c = taper.compile(m, backend=counting(g := []), fullgraph=True)
    x = taper.randn(2, 3)
    want = m(x).tolist()
    assert c(x).tolist() == want and c(x).tolist() == want and m.calls == 3
    assert c(x, scale=2).tolist() == (m(x) * 2).tolist()
    assert isinstance(c, taper.nn.Module) and c._orig_mod is m and c.a is m.a
    assert list(c.state_dict()) == ["_orig_mod." + k for k in m.state_dict()] or list(c.state_dict()) == list(m.state_dict())
    c.eval()
    assert not m.training and not c.training
    c.extra = 5
    assert m.extra == 5
    out = c(x).sum()
    out.backward()
    assert m.a.weight.grad is not None and g[0].graph.nodes


def test_changing_a_module_is_noticed():
    dynamo.reset()
    m = Model()
    c = taper.compile(m, backend="eager")
    x = taper.ones(2, 3)
    assert c(x).tolist() == m(x).tolist()
    with taper.no_grad():
        m.a.weight.fill_(2.0)
    assert c(x).tolist() == m(x).tolist()
    m.b = taper.nn.Linear(4, 3)
    assert c(x).tolist() == m(x).tolist() and c(x).shape == (2, 3)
    m.a.bias = None
    assert c(x).tolist() == m(x).tolist()


def test_methods_bind():
    class A:
        def __init__(self):
            self.k = 3

        @taper.compile(backend="eager")
        def f(self, x):
            return x * self.k
    a = A()
    assert a.f(taper.ones(2)).tolist() == [3.0, 3.0]
    a.k = 4
    assert a.f(taper.ones(2)).tolist() == [4.0, 4.0]
    assert taper.compile(a.f, backend="eager")(taper.ones(1)).tolist() == [4.0]


def test_callables_classes_and_odd_inputs():
    class C:
        def __call__(self, x):
            return x + 5
    assert taper.compile(C(), backend="eager")(taper.ones(1)).tolist() == [6.0]
    assert taper.compile(taper.sin, backend="eager")(taper.zeros(1)).tolist() == [0.0]

    def gen(x):
        yield x + 1
    assert [t.tolist() for t in taper.compile(gen, backend="eager")(taper.ones(1))] == [[2.0]]

    async def co(x):
        return x
    raises(RuntimeError, lambda: taper.compile(co), "coroutine")
    raises(RuntimeError, lambda: taper.compile(5), "cannot be called")
    raises(TypeError, lambda: taper.compile(lambda x: x, dynamic=3), "dynamic")
    raises(RuntimeError, lambda: taper.compile(lambda x: x, mode="a", options={}), "both")
    raises(dynamo.exc.InvalidBackend, lambda: taper.compile(lambda x: x, backend="nope"), "nope")
    f = lambda x: x  # noqa: E731
    assert taper.compile(f, disable=True) is f
    e = raises(TypeError, lambda: taper.compile(lambda a: a, backend="eager")(1, 2), "takes 1 positional argument but 2 were given")


def test_attributes_of_the_wrapper():
    def fn(x):
        "doc"
        return x
    c = taper.compile(fn)
    assert c.__name__ == "fn" and c.__doc__ == "doc" and c.__wrapped__ is fn and c._torchdynamo_orig_callable is fn


def test_compiled_inside_compiled():
    inner = taper.compile(lambda x: x + 1, backend="eager")
    b = counting()
    assert taper.compile(lambda x: inner(x) * 2, backend=b)(taper.ones(1)).tolist() == [4.0] and len(b.graphs) == 1


def test_recursion():
    def fact(x, n):
        return x if n == 0 else fact(x * n, n - 1)
    dynamo.reset()
    assert taper.compile(fact, backend="eager")(taper.ones(1), 5).tolist() == [120.0]

    def deep(x, n):
        return x if n == 0 else deep(x + 1, n - 1)
    assert taper.compile(deep, backend="eager")(taper.ones(1), 200).tolist() == [201.0]

    def forever(x):
        return forever(x + 1)
    raises(RecursionError, lambda: taper.compile(forever, backend="eager")(taper.ones(1)))


def test_threads():
    dynamo.reset()
    c = taper.compile(lambda x: taper.sin(x) * 2, backend="eager")
    bad = []

    def work(k):
        for i in range(50):
            x = taper.ones(2 + (i + k) % 3)
            if c(x).tolist() != (taper.sin(x) * 2).tolist():
                bad.append(k)
    ts = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    assert not bad


# ---- graph breaks
def test_explain():
    def fn(x):
        x = x + 1
        print("", end="")
        return x * 2
    e = dynamo.explain(fn)(taper.ones(2))
    assert (e.graph_count, e.graph_break_count, e.op_count) == (2, 1, 2), str(e)
    assert "print" in e.break_reasons[0].reason and "Graph Count: 2" in str(e)


def test_counters():
    dynamo.reset()
    taper.compile(lambda x: x + 1 + 2, backend="eager")(taper.ones(1))
    assert counters["stats"]["unique_graphs"] == 1 and counters["stats"]["calls_captured"] == 2


def test_resume_inside_loop_with_and_try():
    class Ctx:
        def __enter__(self):
            return self

        def __exit__(self, *a):
            return False

    def fn(x):
        for i in range(4):
            with Ctx():
                try:
                    x = taper.sin(x) + i
                    print("", end="")
                    x = x * 2
                finally:
                    x = x + 1
        return x
    dynamo.reset()
    b = counting()
    x = taper.ones(3)
    assert taper.compile(fn, backend=b)(x).tolist() == fn(x).tolist()
    ops = [n for g in b.graphs for n in g.graph.nodes if n.op == "call_function"]
    assert len(b.graphs) >= 2 and len(ops) >= 6, len(b.graphs)


def test_disable_and_marks():
    dynamo.reset()
    seen = []

    def inner(x):
        seen.append(taper.compiler.is_compiling())
        return x + 1

    @taper.compiler.disable
    def off(x):
        return inner(x)
    b = counting()
    c = taper.compile(lambda x: off(x * 2) - 1, backend=b)
    assert c(taper.ones(1)).tolist() == [2.0] and len(b.graphs) == 2 and seen == [False]

    @taper.compiler.disable(recursive=False)
    def half(x):
        return taper.compiler.is_compiling(), plus(x)

    def plus(x):
        return x + 1
    dynamo.reset()
    b = counting()
    r = taper.compile(lambda x: half(x * 2), backend=b)(taper.ones(1))
    assert r[0] is False and r[1].tolist() == [3.0] and len(b.graphs) == 2

    @dynamo.allow_in_graph
    def whole(x):
        return x.sin().cos()
    assert taper.compile(lambda x: whole(x), backend="eager", fullgraph=True)(taper.ones(1)).tolist() == taper.ones(1).sin().cos().tolist()

    @dynamo.assume_constant_result
    def const():
        return len(seen)
    assert taper.compile(lambda x: x + const(), backend="eager", fullgraph=True)(taper.zeros(1)).tolist() == [1.0]


def test_is_compiling():
    def fn(x):
        return x + 1 if taper.compiler.is_compiling() else x - 1
    assert fn(taper.ones(1)).tolist() == [0.0]
    assert taper.compile(fn, backend="eager")(taper.ones(1)).tolist() == [2.0]


def test_optimize_context():
    dynamo.reset()
    b = counting()

    def some_fun(x):
        return x * 2 + 1
    with dynamo.optimize(b):
        assert some_fun(taper.ones(1)).tolist() == [3.0]
    some_fun(taper.ones(1))
    assert len(b.graphs) == 1


def test_callbacks_from_c_are_captured():
    dynamo.reset()
    b = counting()

    def key(t):
        return (t * 2).sum().item()
    c = taper.compile(lambda x: sorted([x, x + 1], key=key)[0] + 1, backend=b)
    assert c(taper.ones(2)).tolist() == [2.0, 2.0]
    assert any(n.op == "call_function" and n.target is taper.sum for g in b.graphs for n in g.graph.nodes)


# ---- errors
def test_backend_errors():
    def broken(gm, inputs):
        raise KeyError("inside")
    dynamo.reset()
    c = taper.compile(lambda x: x + 1, backend=broken)
    e = raises(dynamo.exc.BackendCompilerFailed, lambda: c(taper.ones(1)), "backend='broken' raised:\nKeyError: 'inside'")
    assert isinstance(e.__cause__, KeyError)
    with dynamo.config.patch(suppress_errors=True):
        assert c(taper.ones(1)).tolist() == [2.0]


def test_user_errors_keep_their_traceback():
    def inner(x):
        return x + taper.ones(7)

    def fn(x):
        y = x * 2
        return inner(y)
    dynamo.reset()
    try:
        taper.compile(fn, backend="eager")(taper.ones(3))
    except RuntimeError as e:
        names = []
        tb = e.__traceback__
        while tb:
            names.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))
            tb = tb.tb_next
        assert [n for n, _ in names][-2:] == ["fn", "inner"], names
        assert names[-1][1] == inner.__code__.co_firstlineno + 1, names
    else:
        raise AssertionError


def test_config():
    c = dynamo.config
    assert c.cache_size_limit == 8 and c.recompile_limit == 8
    with c.patch(cache_size_limit=2):
        assert c.recompile_limit == 2
    with c.patch("cache_size_limit", 3), c.patch({"verbose": True}):
        assert c.cache_size_limit == 3 and c.verbose
    assert c.cache_size_limit == 8 and not c.verbose

    @c.patch(cache_size_limit=5)
    def f():
        return c.cache_size_limit
    assert f() == 5
    raises(AttributeError, lambda: setattr(c, "no_such_thing", 1), "no_such_thing")
    raises(AttributeError, lambda: c.patch(no_such_thing=1), "no_such_thing")


def test_stance():
    b = counting()
    dynamo.reset()
    c = taper.compile(lambda x: x + 1, backend=b)
    with taper.compiler.set_stance("force_eager"):
        c(taper.ones(1))
    assert not b.graphs
    c(taper.ones(1))
    assert len(b.graphs) == 1


# ---- the graph that backends see
def test_graph_module_view():
    dynamo.reset()
    seen = []

    def backend(gm, inputs):
        seen.append((gm, inputs))
        return gm
    c = taper.compile(lambda x, y: taper.sin(x) + y, backend=backend)
    x, y = taper.ones(2), taper.ones(2)
    assert c(x, y).tolist() == (taper.sin(x) + y).tolist()
    gm, inputs = seen[0]
    nodes = list(gm.graph.nodes)
    assert [n.op for n in nodes] == ["placeholder", "placeholder", "call_function", "call_function", "output"]
    assert nodes[2].target is taper.sin and nodes[2].args == (nodes[0],) and list(nodes[0].users) == [nodes[2]]
    assert nodes[2].meta["example_value"].shape == (2,) and "test_capture.py" in nodes[2].meta["stack_trace"]
    assert inputs[0] is x and "forward" in gm.code and "sin" in gm.print_readable(print_output=False)
    gm.graph.lint()


def test_graph_edits():
    def swap(gm, inputs):
        for n in list(gm.graph.nodes):
            if n.op == "call_function" and n.target is taper.sin:
                with gm.graph.inserting_after(n):
                    new = gm.graph.call_function(taper.cos, (n.args[0],))
                n.replace_all_uses_with(new)
                gm.graph.erase_node(n)
        gm.graph.lint()
        gm.recompile()
        return gm.forward
    dynamo.reset()
    x = taper.ones(2)
    assert taper.compile(lambda x: taper.sin(x) * 2, backend=swap)(x).tolist() == (taper.cos(x) * 2).tolist()
    g = taper.fx.Graph()
    a = g.placeholder("a")
    b = g.call_function(operator.add, (a, 1))
    g.output((b,))
    assert taper.fx.GraphModule({}, g)(taper.ones(1))[0].tolist() == [2.0]
    raises(RuntimeError, lambda: g.erase_node(a), "still had 1 users")


def test_unused_inputs_are_no_placeholders():
    dynamo.reset()
    b = counting()
    taper.compile(lambda x, y: x + 1, backend=b)(taper.ones(1), taper.ones(2))
    assert [n.name for n in b.graphs[0].graph.nodes if n.op == "placeholder"] == ["l_x_"]


def test_registered_backend():
    @dynamo.register_backend
    def my_backend(gm, inputs):
        return gm.forward
    assert "my_backend" in dynamo.list_backends()
    assert taper.compile(lambda x: x + 1, backend="my_backend")(taper.ones(1)).tolist() == [2.0]


def test_break_table():
    from taper import _C
    rows = _C._capture_break_rows()
    codes = [r[1] for r in rows]
    assert len(set(codes)) == len(codes) and all(r[3] and r[4] for r in rows)
    assert codes == [f"TB{i + 1:04d}" for i in range(len(rows))]


def test_grad_mode_is_guarded():
    dynamo.reset()
    b = counting()
    c = taper.compile(lambda x: x * 2, backend=b)
    x = taper.ones(2, requires_grad=True)
    assert c(x).requires_grad
    with taper.no_grad():
        assert not c(x).requires_grad
    assert len(b.graphs) == 2


def test_training_matches_eager():
    import copy
    taper.manual_seed(0)
    m = Model()
    n = copy.deepcopy(m)
    c = taper.compile(n, backend="eager")
    x = taper.randn(4, 3)
    for _ in range(3):
        for mod, call in ((m, m), (n, c)):
            loss = (call(x) ** 2).sum()
            loss.backward()
            with taper.no_grad():
                for p in mod.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
    assert [p.tolist() for p in m.parameters()] == [p.tolist() for p in n.parameters()]


def test_random_numbers_are_those_of_eager():
    F = taper.nn.functional

    def fn(x):
        return F.dropout(x, 0.5) + taper.rand(4)
    dynamo.reset()
    x = taper.ones(4)
    c = taper.compile(fn, backend="eager")
    for _ in range(2):
        taper.manual_seed(7)
        want = [fn(x).tolist() for _ in range(3)]
        taper.manual_seed(7)
        assert [c(x).tolist() for _ in range(3)] == want


def test_models_capture_as_one_graph():
    import os
    import sys
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench"))
    import copy
    import models
    for name in ("mlp", "convnet", "resnet", "gpt", "lstm", "autoencoder", "unet"):
        m, args, _, _ = models.build(name, taper, small=True)
        n = copy.deepcopy(m)
        dynamo.reset()
        c = taper.compile(n, backend="eager", fullgraph=True)
        for _ in range(2):
            taper.manual_seed(1)
            want = m(*args)
            taper.manual_seed(1)
            assert repr(c(*args).tolist()) == repr(want.tolist()), name
        assert [repr(b.tolist()) for b in m.buffers()] == [repr(b.tolist()) for b in n.buffers()], name


def test_unchanged_modules_take_the_short_way_and_changes_are_seen():
    class Net(taper.nn.Module):
        def __init__(self):
            super().__init__()
            self.l = taper.nn.ModuleList([taper.nn.Linear(2, 2) for _ in range(6)])
            self.sizes = [1, 2]
            self.k = 1.0

        def forward(self, x):
            for m in self.l:
                x = m(x)
            return x * self.k + len(self.sizes) + (5 if hasattr(self.l[0], "odd") else 0)
    dynamo.reset()
    m = Net()
    c = taper.compile(m, backend="eager")
    x = taper.ones(1, 2)

    def agree():
        for _ in range(3):
            assert c(x).tolist() == m(x).tolist()
    agree()
    m.k = 2.0
    agree()
    m.sizes.append(3)
    agree()
    m.sizes = [1]
    agree()
    m.l[0].odd = True
    agree()
    del m.l[0].odd
    agree()
    m.l[2].weight = taper.nn.Parameter(taper.ones(2, 2))
    agree()
    m.l[3] = taper.nn.Linear(2, 2)
    agree()
    m.l[1].weight.requires_grad_(False)
    agree()
    m.l[4].register_forward_hook(lambda mod, a, out: out * 10)
    agree()
    m.l[5].forward = lambda x: x + 100
    agree()
    Net.forward = lambda self, x: x * 7
    agree()


def test_a_whole_training_step_matches_eager():
    import copy
    for make in (lambda p: taper.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: taper.optim.Adam(p, lr=0.01), lambda p: taper.optim.AdamW(p, lr=0.01)):
        taper.manual_seed(0)
        m = Model()
        n = copy.deepcopy(m)
        a, b = make(m.parameters()), make(n.parameters())
        x, y = taper.randn(4, 3), taper.randn(4, 2)

        def step(mod, opt):
            opt.zero_grad(True)
            loss = ((mod(x) - y) ** 2).mean()
            loss.backward()
            opt.step()
            return loss
        dynamo.reset()
        c = taper.compile(step, backend="eager")
        for _ in range(4):
            assert abs(step(m, a).item() - c(n, b).item()) < 1e-5
        for p, q in zip(m.parameters(), n.parameters()):
            assert taper.allclose(p, q, atol=1e-5)
