"""aot_autograd(fw_compiler=..., bw_compiler=...): users' compilers behind the autograd stage, and backends by name."""
import os
import subprocess
import sys

import taper
from taper import nn
from taper._dynamo.backends.common import aot_autograd
from taper.fx import Graph, GraphModule
from taper._functorch.aot_autograd import aot_module_simplified, make_boxed_func
from taper._functorch.partitioners import default_partition, min_cut_rematerialization_partition


class Seen:
    def __init__(self):
        self.graphs = []

    def compiler(self, tag, boxed=False):
        def compile(gm, example_inputs):
            ops = [n.target for n in gm.graph.nodes if n.op == "call_function"]
            self.graphs.append((tag, ops, len(example_inputs), sum(n.op == "placeholder" for n in gm.graph.nodes)))
            assert all(x._is_fake() for x in example_inputs if isinstance(x, taper.Tensor))
            return make_boxed_func(gm.forward) if boxed else gm.forward
        return compile


def model():
    taper.manual_seed(0)
    m = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    return m, taper.randn(5, 3)


def run(backend):
    taper._dynamo.reset()
    m, x = model()
    f = taper.compile(m, backend=backend) if backend else m
    f(x).pow(2).sum().backward()
    with taper.no_grad():
        out = f(x)
    return out, [p.grad for p in m.parameters()]


def same(backend):
    (a, g), (b, h) = run(None), run(backend)
    assert taper.allclose(a, b, atol=1e-6) and all(taper.allclose(x, y, atol=1e-5) for x, y in zip(g, h))


def test_each_compiler_gets_its_graphs():
    s = Seen()
    same(aot_autograd(fw_compiler=s.compiler("fw"), bw_compiler=s.compiler("bw"), inference_compiler=s.compiler("inf")))
    assert [g[0] for g in s.graphs] == ["fw", "bw", "inf"], s.graphs
    assert all(n == k for _, _, n, k in s.graphs)
    assert taper.ops.aten.gelu_backward.default in s.graphs[1][1], s.graphs[1]


def test_one_compiler_serves_all_three_and_may_be_boxed():
    s = Seen()
    same(aot_autograd(fw_compiler=s.compiler("all", boxed=True)))
    assert [g[0] for g in s.graphs] == ["all"] * 3


def test_partitioners_by_name():
    outs = {}
    for fn in (default_partition, min_cut_rematerialization_partition):
        counts = []

        def fw(gm, ex):
            out = [n for n in gm.graph.nodes if n.op == "output"][0]
            counts.append(len(out.args[0]))
            return gm.forward

        def f(x):
            return x.sin().cos().tanh().exp()

        taper._dynamo.reset()
        x = taper.randn(4, requires_grad=True)
        taper.compile(f, backend=aot_autograd(fw_compiler=fw, bw_compiler=lambda gm, ex: gm.forward, partition_fn=fn))(x).sum().backward()
        want = x.grad.clone()
        x.grad = None
        f(x).sum().backward()
        assert taper.allclose(want, x.grad)
        outs[fn.__name__] = counts[0]
    assert outs["min_cut_rematerialization_partition"] < outs["default_partition"], outs


def halves(joint, inputs, num_fwd_outputs, keep):
    """A partition written by hand: saves the nodes that keep() names, backward computes the rest again."""
    nodes = list(joint.graph.nodes)
    out = nodes[-1].args[0]
    primals = [n for n in nodes if n.op == "placeholder" and not n.name.startswith("tangents")]
    tangents = [n for n in nodes if n.op == "placeholder" and n.name.startswith("tangents")]
    assert [len(i) for i in inputs] == [len(primals), len(tangents)]
    saved = [n for n in nodes if keep(n)]

    def extract(given, results):
        g, env = Graph(), {}
        for n in given:
            env[n] = g.placeholder(n.name)
            env[n].meta = dict(n.meta)

        def want(n):
            if n not in env:
                for a in n.all_input_nodes:
                    want(a)
                env[n] = g.node_copy(n, lambda x: env[x])
            return env[n]
        g.output(tuple(want(n) for n in results))
        return GraphModule(joint, g)

    return extract(primals, list(out[:num_fwd_outputs]) + saved), extract(saved + tangents, list(out[num_fwd_outputs:]))


def test_a_partition_of_the_users_own():
    seen = []

    def inputs_only(joint, inputs, *, num_fwd_outputs, **kw):
        seen.append(num_fwd_outputs)
        return halves(joint, inputs, num_fwd_outputs, lambda n: n.op == "placeholder" and not n.name.startswith("tangents"))

    s = Seen()
    same(aot_autograd(fw_compiler=s.compiler("fw"), bw_compiler=s.compiler("bw"), partition_fn=inputs_only))
    assert seen == [1] and [g[0] for g in s.graphs] == ["fw", "bw", "fw"], (seen, s.graphs)
    assert s.graphs[1][2] == 5 + 1 and taper.ops.aten.addmm.default in s.graphs[1][1], s.graphs[1]  # products run again


def test_a_partition_that_edits_the_joint_graph_and_passes_it_on():
    aten = taper.ops.aten

    def doubled(joint, inputs, *, num_fwd_outputs, **kw):
        for n in joint.graph.nodes:
            if n.op == "call_function" and n.target == aten.cos.default:
                n.target = aten.sin.default  # a wrong derivative, to see it arrive
        return min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs)

    for dynamic in (False, True):
        taper._dynamo.reset()
        x = taper.randn(4, requires_grad=True)
        taper.compile(lambda x: x.sin(), backend=aot_autograd(partition_fn=doubled), dynamic=dynamic)(x).sum().backward()
        assert taper.allclose(x.grad, x.detach().sin())


def test_partitions_that_do_not_fit():
    def go(fn):
        taper._dynamo.reset()
        x = taper.randn(4, requires_grad=True)
        try:
            taper.compile(lambda x: x.sin().exp(), backend=aot_autograd(partition_fn=fn))(x)
        except Exception as e:
            return str(e)
        raise AssertionError(fn)

    def short(joint, inputs, num_fwd_outputs):
        fw, bw = default_partition(joint, num_fwd_outputs=num_fwd_outputs)
        return bw, fw

    def other(joint, inputs, num_fwd_outputs):
        fw, bw = halves(joint, inputs, num_fwd_outputs, lambda n: n.op == "placeholder" and n.name == "primals_1")
        next(iter(bw.graph.nodes)).meta["val"] = taper.ones(1)
        return fw, bw

    assert "must return a forward and a backward GraphModule" in go(lambda *a, **k: None)
    assert "num_fwd_outputs must be from 0 to 1" in go(lambda j, i, num_fwd_outputs: default_partition(j, num_fwd_outputs=9))
    assert "the partition's forward graph takes" in go(short)
    assert "in another form" in go(other)
    assert "boom" in go(lambda *a, **k: (_ for _ in ()).throw(ValueError("boom")))
    try:
        aot_autograd(partition_fn=3)
    except TypeError as e:
        assert "partition_fn must be callable" in str(e)
    else:
        raise AssertionError


def test_decompositions_of_the_users_own():
    aten = taper.ops.aten
    s = Seen()

    def gelu(x, approximate="none"):
        return x * 0.5 * (1.0 + taper.erf(x * 0.7071067811865476))

    same(aot_autograd(fw_compiler=s.compiler("fw"), decompositions={aten.gelu.default: gelu}))
    fw = s.graphs[0][1]
    assert aten.gelu.default not in fw and aten.erf.default in fw, fw


def test_aot_module_simplified_inside_a_backend():
    s = Seen()

    def backend(gm, example_inputs):
        return aot_module_simplified(gm, example_inputs, fw_compiler=s.compiler("fw"))

    same(backend)
    assert s.graphs[0][0] == "fw"


def test_edited_graphs_are_compiled_as_edited():
    def swap(gm, example_inputs):
        for n in list(gm.graph.nodes):
            if n.op == "call_function" and "sin" in str(n.target):
                with gm.graph.inserting_before(n):
                    new = gm.graph.call_function(taper.cos, n.args)
                n.replace_all_uses_with(new)
                gm.graph.erase_node(n)
        gm.recompile()
        return aot_autograd(fw_compiler=lambda g, e: g.forward)(gm, example_inputs)

    x = taper.tensor([0.5], requires_grad=True)
    y = taper.compile(lambda x: taper.sin(x) * 2, backend=swap)(x)
    y.sum().backward()
    assert abs(y.item() - 2 * taper.cos(taper.tensor(0.5)).item()) < 1e-6
    assert abs(x.grad.item() + 2 * taper.sin(taper.tensor(0.5)).item()) < 1e-6


def test_graphs_with_symbolic_sizes_run_node_by_node():
    from taper.fx import Interpreter

    def f(x):
        return (x.view(-1) + taper.arange(x.shape[0] * 2)).sin().sum()

    c = taper.compile(f, backend=aot_autograd(fw_compiler=lambda gm, ex: Interpreter(gm).run), dynamic=True)
    for n in (3, 5):
        x = taper.randn(n, 2, requires_grad=True)
        c(x).backward()
        g, x.grad = x.grad, None
        f(x).backward()
        assert taper.allclose(g, x.grad)


def test_a_compiler_that_fails_says_which_and_why():
    def bad(gm, ex):
        raise KeyError("no such thing")

    for kw, word in (({"fw_compiler": bad}, "no such thing"), ({"fw_compiler": lambda g, e: 3}, "cannot be called")):
        taper._dynamo.reset()
        try:
            taper.compile(lambda x: x + 1, backend=aot_autograd(**kw))(taper.ones(2))
        except taper._dynamo.exc.BackendCompilerFailed as e:
            assert word in str(e), e
        else:
            raise AssertionError
    taper._dynamo.reset()
    x = taper.ones(2, requires_grad=True)
    y = taper.compile(lambda x: x.sin(), backend=aot_autograd(fw_compiler=lambda g, e: g.forward, bw_compiler=bad))(x)
    try:
        y.sum().backward()
    except KeyError as e:
        assert "no such thing" in str(e)
    else:
        raise AssertionError


def test_a_compiler_that_returns_the_wrong_number_of_values():
    f = taper.compile(lambda x: x + 1, backend=aot_autograd(fw_compiler=lambda g, e: lambda *a: ()))
    try:
        f(taper.ones(2))
    except RuntimeError as e:
        assert "returned 0 values for a graph with 1 outputs" in str(e), e
    else:
        raise AssertionError


def test_wrong_arguments():
    for kw, cls in (({"fw_compiler": 3}, TypeError), ({"speed": 9}, TypeError)):
        try:
            aot_autograd(**kw)
        except cls:
            continue
        raise AssertionError(kw)


def test_backends_by_name():
    assert taper.compiler.list_backends() == [n for n in taper.compiler.list_backends() if not n.startswith(("eager", "aot_"))]
    every = taper.compiler.list_backends(exclude_tags=None)
    for n in ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor", "eager_noexcept", "aot_eager_default_partitioner"):
        assert n in every, n
        same(n)
    try:
        taper.compile(lambda x: x, backend="warp")(taper.ones(1))
    except taper._dynamo.exc.InvalidBackend as e:
        assert str(e) == "Invalid backend: 'warp', see `taper._dynamo.list_backends()` for available backends."
    else:
        raise AssertionError


def test_under_the_alias():
    code = ("import torch\nfrom torch._dynamo.backends.common import aot_autograd\nfrom torch._functorch.aot_autograd import aot_module_simplified\n"
            "f = torch.compile(lambda x: x.sin().sum(), backend=aot_autograd(fw_compiler=lambda g, e: g.forward))\n"
            "x = torch.ones(2, requires_grad=True)\nf(x).backward()\nprint('%.4f' % x.grad[0])\n"
            "try:\n    torch.compile(lambda x: x, backend='warp')(x)\nexcept Exception as e:\n    print(e)\n")
    out = subprocess.run([sys.executable, "-m", "taper", "-c", code], capture_output=True, text=True, env=os.environ)
    if out.returncode:
        path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"alias{os.getpid()}.py")
        with open(path, "w") as f:
            f.write(code)
        out = subprocess.run([sys.executable, "-m", "taper", path], capture_output=True, text=True, env=os.environ)
        os.unlink(path)
    assert out.stdout.splitlines() == ["0.5403", "Invalid backend: 'warp', see `torch._dynamo.list_backends()` for available backends."], out


def test_backward_reads_what_eager_tapes_keep():
    """A write that no version counts (.data) between forward and backward is seen, or not seen, as without the compiler."""
    w = taper.randn(4, 4)
    for fn in (lambda x: x.sin(), lambda x: x.cos() * x, lambda x: x.exp(), lambda x: x.tanh(), lambda x: x.sigmoid(), lambda x: x.pow(3), lambda x: x.softmax(-1),
               lambda x: (x * x) @ w, lambda x: x.max(-1)[0], lambda x: taper.nn.functional.layer_norm(x, (4,)), lambda x: x.abs().sqrt().sum()):
        grads = []
        x0 = taper.randn(3, 4)
        for f in (fn, taper.compile(fn, backend="aot_eager")):
            x = x0.clone().requires_grad_()
            y = f(x)
            x.data.mul_(2)
            y.sum().backward()
            grads.append(x.grad)
        assert taper.allclose(*grads, rtol=1e-5, atol=1e-6), (grads, fn.__code__.co_firstlineno)
