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
    assert program.range_constraints == {"x.shape[0]": (2, 64)}
    program = taper.export.export(net, (x,), dynamic_shapes=({0: taper.export.Dim.DYNAMIC},))
    same(program.module()(taper.ones(9, 4)), net(taper.ones(9, 4)))
    fails(lambda: taper.export.export(net, (x,), dynamic_shapes={"y": {0: Dim("b")}}), "dynamic_shapes names ['y']")
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
