"""taper._dynamo.export: the graph is called as the function is."""
import taper
from taper._dynamo import export
from taper.utils import _pytree as pytree

W, LAYER = taper.full((2,), 5.0), taper.nn.Linear(2, 2)


def same(x, y):
    (a, s), (b, t) = pytree.tree_flatten(x), pytree.tree_flatten(y)
    return s == t and all(taper.equal(p, q) if isinstance(p, taper.Tensor) else p == q for p, q in zip(a, b))


def check(f, *args, **kwargs):
    gm, guards = export(f)(*args, **kwargs)
    for scale in (1, 3):
        new, kw = pytree.tree_map(lambda t: t * scale if isinstance(t, taper.Tensor) else t, (args, kwargs))
        assert same(gm(*new, **kw), f(*new, **kw)), f
    leaves = pytree.tree_flatten((args, kwargs))[0]
    assert sum(n.op == "placeholder" for n in gm.graph.nodes) >= len(leaves)
    return gm


def named(x, *, y, z=None):
    return x - y if z is None else x - z


def with_default(x, y=W):
    return y - x


def test_arguments_and_results():
    a, b = taper.ones(2), taper.full((2,), 3.0)
    check(lambda x, y: y.sin() - 2 * x, a, b)
    check(lambda x, y: {"out": x + 1, "l": [y, 3]}, a, b)
    check(lambda x, y: x, a, b)
    check(lambda x, y: (y, x + 1, x, None), a, b)
    check(lambda x, y: x + W, a, b)
    check(lambda x, n: x * n, a, 3)
    check(lambda *t: t[1] - t[0], a, b)
    check(lambda d: d["k"][0] - d["j"], {"j": a, "k": [b, a]})
    check(lambda x: (x.view(1, 2), x[0]), a)
    check(named, a, y=b)
    check(named, a, y=b, z=a)
    check(lambda x, **k: x - k["q"], a, q=b)
    gm = check(with_default, a)
    assert taper.equal(gm(x=a), with_default(a))
    check(LAYER, taper.ones(1, 2))
    check(lambda x: LAYER(x) + 1, taper.ones(1, 2))


def test_wrong_structure_is_refused():
    gm, _ = export(lambda x, y: x + y)(taper.ones(2), taper.ones(2))
    for bad in ((taper.ones(2),), (taper.ones(2), [taper.ones(2)]), (taper.ones(2),) * 3):
        try:
            gm(*bad)
        except TypeError:
            continue
        raise AssertionError(bad)


def test_operators_of_an_aten_graph():
    gm, _ = export(lambda x, y: y.sin() - 2 * x, aten_graph=True)(taper.ones(2), taper.ones(2))
    assert {n.target for n in gm.graph.nodes if n.op == "call_function"} == {taper.ops.aten.sin.default, taper.ops.aten.mul.Tensor, taper.ops.aten.sub.Tensor}


def test_edits_take_effect():
    gm, _ = export(lambda x: taper.sin(x) + 1)(taper.zeros(2))
    for n in gm.graph.nodes:
        if n.target is taper.sin:
            n.target = taper.cos
    gm.recompile()
    assert gm(taper.zeros(2)).tolist() == [2.0, 2.0]
