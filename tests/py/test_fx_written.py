"""Nodes of captured graphs are what their programs wrote, and graphs may be edited while they are walked."""
import operator

import taper
import taper.nn.functional as F
from taper.fx import Graph, GraphModule, Proxy, symbolic_trace


def targets(f, *args):
    found = []

    def backend(gm, inputs):
        found.extend((n.target, n.args) for n in gm.graph.nodes if n.op == "call_function")
        return gm.forward
    taper._dynamo.reset()
    want = f(*args)
    got = taper.compile(f, backend=backend)(*args)
    assert taper.equal(want, got)
    return found


def test_operators():
    a, b = taper.full((2, 2), 3.0), taper.full((2, 2), 4.0)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lt", "le", "eq", "ne", "gt", "ge"):
        op = getattr(operator, name)
        space = {"op": op}
        sign = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "lt": "<", "le": "<=", "eq": "==",
                "ne": "!=", "gt": ">", "ge": ">="}[name]
        exec(f"def f(a, b): return a {sign} b", space)
        assert [t for t, _ in targets(space["f"], a, b)] == [op], name
        assert [t for t, _ in targets(lambda a, b: op(a, b), a, b)] == [op], name
    m = a > 3
    for f, op in ((lambda x, y: x & y, operator.and_), (lambda x, y: x | y, operator.or_), (lambda x, y: x ^ y, operator.xor), (lambda x, y: ~x, operator.invert)):
        assert [t for t, _ in targets(f, m, ~m)] == [op]
    assert [t for t, _ in targets(lambda a: -a, a)] == [operator.neg]
    (op, args), = targets(lambda a: 1 - a, a)
    assert op is operator.sub and args[0] == 1

    def inplace(a, b):
        c = a + b
        c += 1
        c *= b
        c -= 1
        c /= 2
        return c
    assert [t for t, _ in targets(inplace, a, b)] == [operator.add, operator.iadd, operator.imul, operator.isub, operator.itruediv]


def test_functions():
    a = taper.ones(2, 2)
    assert [t for t, _ in targets(lambda a: taper.add(taper.sin(a), a), a)] == [taper.sin, taper.add]


def test_edits_take_effect():
    def swap(gm, inputs):
        for n in gm.graph.nodes:
            if n.op == "call_function" and n.target == operator.mul:
                n.target = operator.add
        gm.recompile()
        return gm.forward
    assert taper.compile(lambda a, b: a * b, backend=swap)(taper.full((2,), 3.), taper.full((2,), 4.)).tolist() == [7.0, 7.0]


def test_code_shows_operators():
    codes = []

    def backend(gm, inputs):
        codes.append(gm.code)
        return gm.forward
    taper.compile(lambda a, b: -(a * b) // 2, backend=backend)(taper.ones(2), taper.ones(2))
    assert "l_a_ * l_b_" in codes[0] and "= -" in codes[0] and "// 2" in codes[0], codes[0]


def test_writes_are_not_dead_code():
    def backend(gm, inputs):
        gm.graph.eliminate_dead_code()
        gm.recompile()
        return gm.forward

    def f(x):
        y = x * 2
        y += 1
        return y
    assert taper.compile(f, backend=backend)(taper.ones(2)).tolist() == [3.0, 3.0]


class Sums(taper.nn.Module):
    def forward(self, x, y):
        return x + y, taper.add(x, y), x.add(y)


def test_nodes_erased_while_they_are_walked():
    t = symbolic_trace(Sums())
    seen = 0
    for n in t.graph.nodes:
        seen += 1
        assert seen < 50
        if n.target in (operator.add, taper.add, "add"):
            with t.graph.inserting_after(n):
                new = t.graph.call_function(taper.bitwise_and, n.args, n.kwargs)
                n.replace_all_uses_with(new)
            t.graph.erase_node(n)
    t.recompile()
    assert [n.target for n in t.graph.nodes if n.op == "call_function"] == [taper.bitwise_and] * 3
    a, b = taper.tensor([6]), taper.tensor([3])
    assert [r.tolist() for r in t(a, b)] == [[2]] * 3
    for n in reversed(t.graph.nodes):
        if n.op == "output":
            n.args = ((),)
        elif n.op == "call_function":
            t.graph.erase_node(n)
    t.recompile()
    assert t(a, b) == () and len(t.graph.nodes) == 3


def test_functions_of_proxies():
    def check(f, *size):
        g = Graph()
        g.output(f(Proxy(g.placeholder("x"))).node)
        x = taper.randn(*size)
        assert taper.equal(GraphModule(taper.nn.Module(), g)(x), f(x))
        return [n.target for n in g.nodes if n.op == "call_function"]
    assert check(lambda x: F.leaky_relu(x, negative_slope=0.3), 3) == [F.leaky_relu]
    assert check(lambda x: F.elu(x, alpha=2.0), 3) == [F.elu]
    assert check(lambda x: F.hardtanh(x, min_val=-.1, max_val=.1), 4) == [F.hardtanh]
    assert check(lambda x: F.pad(x, (1, 1), value=3.), 3, 3) == [F.pad]
    assert check(lambda x: taper.einsum("ij->i", x), 2, 3) == [taper.einsum]
    check(lambda x: F.silu(x), 3)
    check(lambda x: F.cross_entropy(x, x.softmax(-1), label_smoothing=0.1), 2, 3)
