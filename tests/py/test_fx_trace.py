"""taper.fx.symbolic_trace, make_fx and what goes with them."""
import copy

import taper
import taper.nn.functional as F
from taper import fx, nn
from taper.fx.experimental.proxy_tensor import make_fx
from taper.fx.experimental import symbolic_shapes as sizes


def raises(cls, fn):
    try:
        fn()
    except cls as e:
        return str(e)
    raise AssertionError(f"no {cls.__name__}")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.w = nn.Linear(4, 4), nn.Parameter(taper.ones(4))
        self.seq = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        self.register_buffer("b", taper.ones(4))

    def forward(self, x, k=2):
        a, b = taper.split(self.l(x) * self.w + self.b, 2, dim=-1)
        y = taper.cat([a, b], dim=-1).relu() + k
        return self.seq(y).view(x.shape[0], -1), F.gelu(y[:, 1:3]) - 1.5


def same(a, b):
    return all(taper.equal(x, y) for x, y in zip(a, b))


def test_a_module_is_traced_to_calls_of_its_leaves():
    m, x = Model(), taper.randn(5, 4)
    gm = fx.symbolic_trace(m)
    assert [(n.op, n.name) for n in gm.graph.nodes][:5] == [("placeholder", "x"), ("placeholder", "k"), ("call_module", "l"), ("get_attr", "w"), ("call_function", "mul")]
    assert [n.target for n in gm.graph.nodes if n.op == "call_module"] == ["l", "seq.0", "seq.1"]
    assert isinstance(gm, nn.Module) and {n for n, _ in gm.named_parameters()} == {"w", "l.weight", "l.bias", "seq.0.weight", "seq.0.bias"}
    assert gm.l.weight is m.l.weight and same(gm(x), m(x)) and same(gm(x, k=3), m(x, 3))
    assert "def forward(self, x, k = 2):" in gm.code and "getattr(self.seq, '0')" in gm.code
    assert "test_fx_trace.py" in [n for n in gm.graph.nodes if n.name == "relu"][0].meta["stack_trace"]


def test_a_traced_module_is_compiled_and_trained_like_any_other():
    m, x = Model(), taper.randn(5, 4)
    gm = fx.symbolic_trace(m)
    r = taper.compile(gm, fullgraph=True)(x)
    assert all(taper.allclose(a, b, atol=1e-6) for a, b in zip(r, m(x)))
    gm(x)[0].sum().backward()
    assert m.l.weight.grad is not None
    other = copy.deepcopy(gm)
    assert other.l is not gm.l and same(other(x), gm(x))


def test_edits_take_effect_after_recompile():
    gm = fx.symbolic_trace(lambda x: taper.add(x, 1) * 3)
    for n in gm.graph.nodes:
        if n.target is taper.add:
            n.target = taper.sub
    gm.recompile()
    assert gm(taper.ones(2)).tolist() == [0.0, 0.0]
    add = next(n for n in gm.graph.nodes if n.op == "call_function")
    with gm.graph.inserting_after(add):
        new = gm.graph.call_function(taper.neg, (add,))
    add.replace_all_uses_with(new, delete_user_cb=lambda u: u is not new)
    gm.recompile()
    assert gm(taper.full((1,), 3.0)).tolist() == [-6.0]


def test_transformers_and_interpreters():
    class Swap(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(taper.sub if target is taper.add else target, args, kwargs)

        def call_module(self, target, args, kwargs):
            return super().call_module(target, args, kwargs).neg()
    gm = fx.symbolic_trace(lambda x: taper.add(x, 1))
    assert "taper.sub(x, 1)" in Swap(gm).transform().code
    m = nn.Sequential(nn.ReLU())
    out = Swap(fx.symbolic_trace(m)).transform()
    assert out(taper.ones(2)).tolist() == [-1.0, -1.0]
    assert fx.Interpreter(fx.symbolic_trace(Model())).run(taper.ones(2, 4))[0].shape == (2, 3)


def outside(x):
    if x.sum() > 0:
        return x + 1
    return x


fx.wrap("outside")


def test_wrapped_functions_are_one_node():
    gm = fx.symbolic_trace(lambda x: outside(x) * 2)
    assert [n.target for n in gm.graph.nodes if n.op == "call_function"][0] is outside
    assert gm(taper.ones(2)).tolist() == [4.0, 4.0] and gm(-taper.ones(2)).tolist() == [-2.0, -2.0]
    assert "top level" in raises(NotImplementedError, lambda: fx.wrap("outside"))


def test_concrete_arguments_choose_the_way():
    def f(x, up):
        return x + 1 if up else x - 1
    assert fx.symbolic_trace(f, concrete_args={"up": True})(taper.ones(1)).item() == 2
    assert fx.symbolic_trace(f, concrete_args={"up": False})(taper.ones(1)).item() == 0
    assert "does not take" in raises(ValueError, lambda: fx.symbolic_trace(f, concrete_args={"down": 1}))


def test_what_a_trace_cannot_follow_is_said():
    def branch(x):
        return x if x.sum() > 0 else -x
    text = raises(fx.TraceError, lambda: fx.symbolic_trace(branch))
    assert "cannot be used as inputs to control flow" in text and "test_fx_trace.py:" in text and "taper.cond" in text
    assert "cannot be iterated" in raises(fx.TraceError, lambda: fx.symbolic_trace(lambda x: [y for y in x]))
    assert "*a" in raises(fx.TraceError, lambda: fx.symbolic_trace(lambda *a: a[0]))
    assert "'len' is not supported" in raises(RuntimeError, lambda: fx.symbolic_trace(lambda x: len(x)))
    assert "not int" in raises(TypeError, lambda: fx.symbolic_trace(3))
    assert "argument of type" in raises(NotImplementedError, lambda: fx.symbolic_trace(lambda x: taper.add(x, object())))
    m = Model()  # a failed trace leaves modules as they were
    assert m(taper.ones(1, 4))[0].shape == (1, 3) and not fx._symbolic_trace.is_fx_tracing()


def test_constants_and_tracing_state():
    c = taper.full((2,), 4.0)
    state = []

    def f(x):
        state.append(fx._symbolic_trace.is_fx_tracing())
        return x + c
    gm = fx.symbolic_trace(f)
    assert state == [True] and gm(taper.ones(2)).tolist() == [5.0, 5.0] and taper.equal(gm._tensor_constant0, c)


def test_leaves_are_chosen_by_the_tracer():
    class All(fx.Tracer):
        def is_leaf_module(self, m, name):
            return False
    m = nn.Linear(3, 2)
    graph = All().trace(m)
    gm = fx.GraphModule(m, graph)
    assert [n.op for n in graph.nodes].count("get_attr") == 2 and taper.equal(gm(taper.ones(1, 3)), m(taper.ones(1, 3)))


def test_immutable_collections():
    l = fx.immutable_collections.immutable_list([1, 2])
    assert l == [1, 2] and hash(l) == hash((1, 2))
    assert "does not support mutation" in raises(TypeError, lambda: l.append(3))
    d = fx.immutable_collections.immutable_dict(a=1)
    assert "does not support mutation" in raises(TypeError, lambda: d.update(b=2))


def test_make_fx_records_operators():
    def f(x, w):
        y = F.softmax(x @ w, dim=-1)
        a, b = y.split(2, -1)
        return {"s": a.sum() + b.mean() + taper.ones(1)}
    x, w = taper.randn(3, 4), taper.randn(4, 4)
    gm = make_fx(f)(x, w)
    assert [str(n.target) for n in gm.graph.nodes if n.op == "call_function"][:3] == ["aten.mm.default", "aten._softmax.default", "aten.split.Tensor"]
    x, w = taper.randn(3, 4), taper.randn(4, 4)
    assert taper.equal(gm(x, w)["s"], f(x, w)["s"])


def test_make_fx_records_gradients_and_writes():
    def grad(x, w):
        w = w.clone().requires_grad_()
        return taper.autograd.grad((x @ w).relu().tanh().sum(), w)[0]
    x, w = taper.randn(3, 4), taper.randn(4, 4)
    gm = make_fx(grad)(x, w)
    assert not [n for n in gm.graph.nodes if n.op == "get_attr"]
    x, w = taper.randn(3, 4), taper.randn(4, 4)
    assert taper.equal(gm(x, w), grad(x, w))

    def write(x):
        y = x.clone()
        y[0].add_(1)
        return y * 2
    gm = make_fx(write)(taper.ones(2, 2))
    assert gm(taper.zeros(2, 2)).tolist() == [[2.0, 2.0], [0.0, 0.0]]


def test_make_fx_without_data_and_with_decompositions():
    calls = []

    def silu(x):
        calls.append(1)
        return x * x.sigmoid()
    gm = make_fx(lambda x: F.silu(x), decomposition_table={taper.ops.aten.silu.default: silu}, tracing_mode="fake")(taper.ones(3))
    assert calls and [str(n.target) for n in gm.graph.nodes if n.op == "call_function"] == ["aten.sigmoid.default", "aten.mul.Tensor"]
    assert taper.allclose(gm(taper.full((3,), 2.0)), F.silu(taper.full((3,), 2.0)))
    assert "symbolic" in raises(NotImplementedError, lambda: make_fx(lambda x: x, tracing_mode="symbolic"))
    assert "tracing_mode" in raises(ValueError, lambda: make_fx(lambda x: x, tracing_mode="other"))


def test_questions_about_unbacked_sizes():
    def f(x):
        n = x.item()
        if sizes.guard_or_false(n == 0):
            return x + 1
        if sizes.guard_or_true(n > 3):
            return x + n
        return x
    with taper._dynamo.config.patch(capture_scalar_outputs=True):
        assert taper.compile(f, fullgraph=True, backend="eager")(taper.tensor(7)).item() == 14
    assert f(taper.tensor(0)).item() == 1 and f(taper.tensor(2)).item() == 2
    assert sizes.sym_and(True, False) is False and sizes.sym_or(False, True) is True and not sizes.is_symbolic(3)


def test_sources_listed_in_the_configuration_are_dynamic():
    def count(**cfg):
        c = taper._dynamo.testing.CompileCounter()
        f = taper.compile(lambda x, y: x * 2 + y.sum(), backend=c)
        with taper.compiler.config.patch(**cfg):
            for n in (3, 4, 5):
                f(taper.ones(n, 2), taper.ones(7))
        taper._dynamo.reset()
        return c.frame_count
    assert count() == 2 and count(dynamic_sources="L['x']") == 1 and count(dynamic_sources="L\\['.'\\]") == 1
    assert count(dynamic_sources="L['y']") == 2 and count(unbacked_sources="L['x']") == 1
    assert count(dynamic_sources="[") == 2


def test_control_flow_by_its_name_in_graphs():
    found = []

    def backend(gm, inputs):
        found.extend(n.target for n in gm.graph.nodes if n.op == "call_function")
        return gm.forward
    hop = taper.ops.higher_order
    f = taper.compile(lambda x: hop.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)), backend=backend)
    assert f(taper.ones(2)).tolist() == [2.0, 2.0] and f(-taper.ones(2)).tolist() == [-2.0, -2.0]
    assert hop.cond in found and hop.wrap(lambda x: x + 1, 2) == 3
    assert "has no attribute" in raises(AttributeError, lambda: hop.nothing)


def test_replace_pattern():
    """Parts that look like a pattern are replaced, but not where something inside is used outside."""
    def f(x, a, b):
        return x + taper.max(taper.cat([a, b]).sum()) + taper.max(taper.cat([b, a]).sum())
    gm = taper.fx.symbolic_trace(f)
    found = taper.fx.replace_pattern(gm, lambda a, b: taper.cat([a, b]).sum(), lambda a, b: taper.stack([a, b]).sum() * 2)
    x = taper.ones(3)
    assert len(found) == 2 and "cat" not in gm.code and taper.equal(gm(x, x, x * 2), x + 36)
    assert {p.op for m in found for p in m.nodes_map} == {"placeholder", "call_function", "call_method"}

    def g(x):
        y = taper.relu(x)
        return y.neg() + y
    gm = taper.fx.symbolic_trace(g)
    assert taper.fx.replace_pattern(gm, lambda x: taper.relu(x).neg(), lambda x: x) == [] and taper.equal(gm(x), x * 0)
    layers = taper.fx.symbolic_trace(taper.nn.Sequential(taper.nn.Linear(3, 3), taper.nn.ReLU()))
    assert not taper.fx.replace_pattern(layers, lambda x: x.sin(), lambda x: x.cos()) and layers(x).shape == (3,)


def test_functions_written_in_python_are_one_call():
    F = taper.nn.functional

    def target(f, *args):
        gm = taper.fx.symbolic_trace(f)
        calls = [n for n in gm.graph.nodes if n.op == "call_function"]
        assert len(calls) == 1, [n.target for n in calls]
        want, got = f(*args), gm(*args)
        assert taper.equal(want, got)
        return calls[0].target
    x, y = taper.arange(6.0).reshape(2, 3), taper.ones(2, 3)
    assert target(lambda x, y: taper.tensordot(x, y, dims=2), x, y) is taper.tensordot
    assert target(lambda x: taper.diff(x, dim=1), x) is taper.diff
    assert target(lambda x, y: taper.cdist(x, y), x, y) is taper.cdist
    assert target(lambda x, y: taper.cartesian_prod(x, y), x[0], y[0]) is taper.cartesian_prod
    assert target(lambda x, y: F.mse_loss(x, y), x, y) is F.mse_loss
    assert target(lambda x, y: F.smooth_l1_loss(input=x, target=y), x, y) is F.smooth_l1_loss
    assert target(lambda x: F.normalize(x, dim=0), x) is F.normalize
    assert target(lambda x: F.softsign(x), x) is F.softsign
    assert target(lambda x: F.adaptive_avg_pool2d(x, 1), x[None]) is F.adaptive_avg_pool2d
    assert target(lambda x: taper.fft.rfft(x), x) is taper.fft.rfft
    assert target(lambda x: taper.cov(x), x) is taper.cov
