"""taper.export.export: programs of ATen operators with their weights, sizes that may change, files."""
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile

import taper
from taper import nn
from taper.export import Dim

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 6)
        self.register_buffer("shift", taper.ones(6))
        self.register_buffer("scratch", taper.full((6,), 2.0), persistent=False)

    def forward(self, x, pair=(None, None), *, scale=1.0):
        y = self.lin(x).relu() * scale + self.shift * self.scratch
        if pair[0] is not None:
            y = y + pair[0]
        return {"y": y.view(x.shape[0], 2, 3), "rest": [x.sum(0), 3]}


def fails(fn, *words):
    try:
        fn()
    except Exception as e:
        assert all(w in str(e) for w in words), (words, e)
        return e
    raise AssertionError(f"no error; {words} expected")


def same(a, b):
    assert a.keys() == b.keys() and taper.equal(a["y"], b["y"]) and taper.equal(a["rest"][0], b["rest"][0]) and a["rest"][1] == b["rest"][1] == 3


def test_graph_signature_and_call():
    net, x, extra = Net(), taper.randn(3, 4), taper.randn(6)
    program = taper.export.export(net, (x, (extra, None)), {"scale": 2.0})
    s = program.graph_signature
    assert s.parameters == ("lin.weight", "lin.bias") and s.buffers == ("shift", "scratch") and s.non_persistent_buffers == ("scratch",), s
    assert s.inputs_to_parameters == {"p_lin_weight": "lin.weight", "p_lin_bias": "lin.bias"} and s.user_inputs[0] == "x", s
    assert [str(n.target) for n in program.graph.nodes if n.op == "call_function"][0] == "aten.linear.default"
    assert list(program.state_dict) == ["shift", "lin.weight", "lin.bias"] and [n for n, _ in program.named_parameters()] == ["lin.weight", "lin.bias"]
    module = program.module()
    same(module(x, (extra, None), scale=2.0), net(x, (extra, None), scale=2.0))
    module(x, (extra, None), scale=2.0)["y"].sum().backward()
    assert net.lin.weight.grad is not None
    assert taper.equal(taper.compile(module, fullgraph=True)(x, (extra, None), scale=2.0)["y"], net(x, (extra, None), scale=2.0)["y"])
    fails(lambda: program(x), "module()")
    fails(lambda: module(taper.randn(5, 4), (extra, None), scale=2.0), "x.shape[0] to be equal to 3, but got 5", "dynamic_shapes")
    fails(lambda: module(x.double(), (extra, None), scale=2.0), "taper.float32", "taper.float64")
    fails(lambda: module(x, (extra, None), scale=3.0), "scale", "2.0", "3.0")
    fails(lambda: module(x, None, scale=2.0), "structure")


def test_sizes_that_change():
    net, x = Net(), taper.randn(3, 4)
    program = taper.export.export(net, (x,), dynamic_shapes={"x": {0: Dim("batch", min=2, max=64)}})
    for n in (2, 7, 64):
        z = taper.randn(n, 4)
        same(program.module()(z), net(z))
    fails(lambda: program.module()(taper.randn(65, 4)), "x.shape[0] to be >= 2 and <= 64, but got 65")
    fails(lambda: program.module()(taper.randn(1, 4)), "but got 1")
    (size, limits), = program.range_constraints.items()
    assert size == "s0" and (limits.lower, limits.upper) == (2, 64)
    program = taper.export.export(net, (x,), dynamic_shapes=({0: taper.export.Dim.DYNAMIC},))
    same(program.module()(taper.ones(9, 4)), net(taper.ones(9, 4)))
    fails(lambda: taper.export.export(net, (x,), dynamic_shapes={"y": {0: Dim("b")}}), "top-level keys must be the arg names ['x']", "no argument y")
    fails(lambda: Dim("b", min=4, max=2), "min=4, max=2")


def test_files():
    net, x = Net(), taper.randn(3, 4)
    program = taper.export.export(net, (x,), dynamic_shapes={"x": {0: Dim("batch")}})
    f = io.BytesIO()
    taper.export.save(program, f, extra_files={"note": "hello"})
    notes = {"note": ""}
    back = taper.export.load(io.BytesIO(f.getvalue()), extra_files=notes)
    z = taper.randn(8, 4)
    same(back.module()(z), net(z))
    assert notes["note"] == "hello" and list(back.state_dict) == list(program.state_dict) and back.state_dict["lin.weight"].requires_grad
    assert back.graph_signature == program.graph_signature
    with tempfile.TemporaryDirectory() as d:  # another process, another name of the library
        path = os.path.join(d, "net.pt2")
        taper.export.save(program, path)
        p = subprocess.run([sys.executable, "-m", "taper", "-c", f"import torch; print(torch.export.load({path!r}).module()(torch.ones(5, 4))['y'].shape)"],
                           capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python")))
        assert p.returncode == 0 and p.stdout.strip() == "torch.Size([5, 2, 3])", p.stdout + p.stderr


def test_damaged_files_are_refused():
    f = io.BytesIO()
    taper.export.save(taper.export.export(Net(), (taper.ones(3, 4),)), f)
    with zipfile.ZipFile(io.BytesIO(f.getvalue())) as z:
        text, weights = json.loads(z.read("program.json")), z.read("weights.safetensors")

    def written(change):
        d = json.loads(json.dumps(text))
        change(d)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as z:
            z.writestr("program.json", json.dumps(d))
            z.writestr("weights.safetensors", weights)
        return lambda: taper.export.load(io.BytesIO(out.getvalue()))
    call = next(i for i, n in enumerate(text["nodes"]) if n["op"] == "call_function")
    for target in ("os.system", "aten.__class__.mro", "aten..add", "getattr", "aten.no_such_operator.default"):
        e = fails(written(lambda d: d["nodes"][call].update(target=target)))
        assert isinstance(e, ValueError), e
    for change in (lambda d: d.update(format="other"), lambda d: d["nodes"][call].update(op="call_method"), lambda d: d["nodes"][call].update(args={"node": "nobody"}),
                   lambda d: d.pop("in"), lambda d: d["nodes"][call].update(args={"dtype": "nn"}), lambda d: d.update(nodes=7), lambda d: d["inputs"].clear()):
        e = fails(lambda: written(change)().module()(taper.ones(3, 4)))
        assert isinstance(e, (ValueError, RuntimeError, TypeError, StopIteration)), repr(e)
    fails(lambda: taper.export.load(io.BytesIO(b"PK nonsense")), "not an exported program")
    fails(lambda: taper.export.load(io.BytesIO(f.getvalue()[:200])), "not an exported program")


def test_wrong_calls():
    fails(lambda: taper.export.export(Net(), taper.ones(3, 4)), "tuple")
    fails(lambda: taper.export.export(lambda x: x, (taper.ones(2),)), "torch.nn.Module")

    class Branches(nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x
    fails(lambda: taper.export.export(Branches(), (taper.ones(2),)), "jump")


def test_the_module_is_still_a_function():
    assert taper.export(lambda a: a + 1, (taper.ones(2),)).inputs == 1


class Written(nn.Module):
    """Writes buffers in place, sets one anew, writes its argument, counts, draws."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", taper.zeros(1))
        self.register_buffer("scratch", taper.ones(3), persistent=False)
        self.table, self.calls = taper.arange(3.0), 0
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x, flag=None):
        self.seen.add_(1)
        self.calls += 1
        x.mul_(2)
        return self.norm(x) + self.seen + self.scratch + self.table + taper.tensor([1.0, 2.0, 3.0])


def alike(a, b):
    assert a.shape == b.shape and taper.allclose(a, b, 1e-5, 1e-6), (a, b)


def state_of(m):
    return {n: b.tolist() for n, b in m.named_buffers()}, m.calls


def test_export_leaves_the_module_and_the_arguments_alone():
    for strict in (False, True):
        net, x = Written(), taper.arange(6.0).reshape(2, 3)
        before, given, drawn = state_of(net), x.tolist(), taper.get_rng_state().tolist()
        program = taper.export.export(net, (x,), strict=strict)
        assert state_of(net) == before and x.tolist() == given and taper.get_rng_state().tolist() == drawn
        other = Written()
        other.load_state_dict({k: v.clone() for k, v in net.state_dict().items()})
        a, b = x.clone(), x.clone()
        module = program.module()
        for _ in range(2):
            alike(module(a), other(b))
        assert a.tolist() == b.tolist() and module.get_buffer("seen").tolist() == other.seen.tolist() == [2.0]


def test_the_order_of_inputs():
    net, x = Written(), taper.ones(2, 3)
    s = taper.export.export(net, (x,)).graph_signature
    assert [i.target for i in s.input_specs] == ["norm.weight", "norm.bias", "seen", "scratch", "norm.running_mean", "norm.running_var",
                                                 "norm.num_batches_tracked", "table", "lifted_tensor_0", None]
    assert s.user_inputs == ("x",) and s.non_persistent_buffers == ("scratch",) and s.lifted_tensor_constants == ("table", "lifted_tensor_0")

    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.other = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, *xs, **options):
            return self.used(xs[0]) + options["bias"]
    for strict, n in ((False, 4), (True, 2)):  # without strict, all parameters are inputs
        program = taper.export.export(Part(), (x,), {"bias": x}, strict=strict)
        assert len(program.graph_signature.parameters) == n and program.graph_signature.user_inputs == ("xs_0", "bias")
    names = [n for n, _ in program.module().named_modules()]
    assert "used" in names and [n for n, _ in program.module().named_parameters()][0] == "used.weight"
    fails(lambda: program.module().eval(), "eval() is not supported")


def test_functional_programs():
    net, x = Written(), taper.arange(6.0).reshape(2, 3)
    program = taper.export.export(net, (x,))
    functional = program.run_decompositions()
    s = functional.graph_signature
    assert set(s.buffers_to_mutate.values()) == {"seen", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert list(s.user_inputs_to_mutate.values()) == ["x"] and len(s.user_outputs) == 1
    assert not any(str(n.target).split(".")[1].endswith("_") for n in functional.graph.nodes if n.op == "call_function" and "aten." in str(n.target))
    a, b, other = x.clone(), x.clone(), Written()
    module = functional.module()
    for _ in range(2):
        alike(module(a), other(b))
    assert a.tolist() == b.tolist() and module.get_buffer("seen").tolist() == [2.0]
    f = io.BytesIO()
    taper.export.save(functional, f)
    back = taper.export.load(io.BytesIO(f.getvalue()))
    assert back.graph_signature == s
    alike(back.module()(a), other(b))
    net4 = Net()
    program = taper.export.export(net4, (taper.randn(3, 4),), dynamic_shapes={"x": {0: Dim("batch")}}).run_decompositions()
    z = taper.randn(7, 4)
    same(program.module()(z), net4(z))


class Two(nn.Module):
    def forward(self, x, y):
        return x + y[1:]


def test_sizes_that_follow_from_others():
    d = Dim("d", min=3, max=10)
    assert str(2 * d + 1) == "2*d + 1" and (2 * d + 1).min == 7 and str(d - 1) == "d - 1"
    program = taper.export.export(Two(), (taper.ones(4), taper.ones(5)), dynamic_shapes={"x": {0: d}, "y": {0: d + 1}})
    alike(program.module()(taper.ones(6), taper.ones(7)), taper.full((6,), 2.0))
    fails(lambda: program.module()(taper.ones(6), taper.ones(8)), "y.shape[0] to be d + 1")

    class Pairs(nn.Module):
        def forward(self, x):
            return x.view(-1, 2)
    program = taper.export.export(Pairs(), (taper.ones(8),), dynamic_shapes={"x": {0: 2 * d}})
    assert program.module()(taper.ones(10)).shape == (5, 2)
    fails(lambda: program.module()(taper.ones(9)), "x.shape[0] to be 2*d")


def test_sizes_that_the_program_fixes():
    class Fixed(nn.Module):
        def forward(self, x):
            return x + (1 if x.shape[0] == 4 else 2)

    class Sum(nn.Module):
        def forward(self, x, y):
            return x + y
    x = taper.ones(4)
    program = taper.export.export(Fixed(), (x,), dynamic_shapes={"x": {0: Dim.AUTO}})
    assert program.range_constraints == {}
    fails(lambda: program.module()(taper.ones(5)), "x.shape[0] to be equal to 4, but got 5")
    fails(lambda: taper.export.export(Fixed(), (x,), dynamic_shapes={"x": {0: Dim("a")}}), "only works when it is 4")
    fails(lambda: taper.export.export(Sum(), (x, x + 1), dynamic_shapes={"x": {0: Dim("a")}, "y": {0: Dim("b")}}), "Constraints violated (b)")
    fails(lambda: taper.export.export(Sum(), (x, x), dynamic_shapes=({0: Dim("a")},)), "`inputs` has 2 elements, but `dynamic_shapes` has 1")
    fails(lambda: taper.export.export(Fixed(), (taper.ones(100),), dynamic_shapes={"x": {0: Dim("a", max=64)}}), "100 not in range [0, 64]")
    fails(lambda: taper.export.export(Fixed(), (x,), dynamic_shapes={"x": {3: Dim("a")}}), "dimension 3")
    fails(lambda: taper.export.export(Fixed(), (object(),)), "Unsupported input type")


def test_shapes_by_tensor_and_by_example():
    x = taper.ones(4, 3)

    class Twice(nn.Module):
        def forward(self, x):
            return x * 2
    shapes = taper.export.ShapesCollection()
    shapes[x] = {0: Dim.DYNAMIC}
    program = taper.export.export(Twice(), (x,), dynamic_shapes=shapes.dynamic_shapes(Twice(), (x,)))
    assert program.module()(taper.ones(9, 3)).shape == (9, 3)
    fails(lambda: shapes.__setitem__(x, (None, None)), "inconsistent")
    more = taper.export.AdditionalInputs()
    more.add((taper.ones(5, 3),))
    assert more.dynamic_shapes(Twice(), (x,)) == {"x": (Dim.DYNAMIC, None)}
    program = taper.export.export(Twice(), (x,), dynamic_shapes=more.dynamic_shapes(Twice(), (x,)))
    more.verify(program)
    fails(lambda: program.module()(taper.ones(4, 4)), "x.shape[1]")

