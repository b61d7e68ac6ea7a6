"""(sanitize: skip, it starts the program that was built without) What the tools behind taper doctor see: the truth of operators,
where a process died, rewrites of kernels named by their values."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")


def run(program, argv=None, cwd=None, **env):
    with tempfile.TemporaryDirectory() as own:
        d = cwd or own
        with open(os.path.join(d, "prog.py"), "w") as f:
            f.write(program)
        full = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        full.update(env, PYTHONPATH=os.path.join(ROOT, "python"))
        p = subprocess.run(argv or [sys.executable, "prog.py"], cwd=d, env=full, capture_output=True, text=True, timeout=300)
        return p.stdout, p.stderr, p.returncode


def audit(program):
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "audit")
        out, err, rc = run(program, TAPER_AUDIT=path, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4", TAPER_COMPILE_DEBUG_DIR=d)
        assert rc == 0, (out, err)
        return open(path).read().splitlines() if os.path.exists(path) else []


def test_the_truth_of_every_operator_is_what_eager_gives():
    """Each row of columns_truth.c on values inside and outside of its domain: no false alarm."""
    assert not audit("""
import taper, taper.nn.functional as F
taper.manual_seed(0)
x = taper.cat([taper.randn(200) * 3, taper.tensor([0.0, -0.0, 1.0, -1.0, 20.5, -20.5, 0.5, float("nan"), float("inf"), -float("inf")])])
y = taper.randn(x.shape[0]) * 2
u = taper.rand(x.shape[0])
one = "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid sinc deg2rad rad2deg logit abs sign sgn floor ceil trunc frac round square neg".split()
two = "add sub mul div maximum minimum fmax fmin atan2 hypot copysign logaddexp logaddexp2 xlogy".split()
act = "relu leaky_relu elu gelu silu mish softplus logsigmoid hardtanh hardsigmoid hardswish hardshrink softshrink".split()
for name in one:
    taper.compile(lambda v, f=getattr(taper, name): f(v))(x)
    taper.compile(lambda v, f=getattr(taper, name): f(v))(u)
for name in two:
    taper.compile(lambda v, w, f=getattr(taper, name): f(v, w))(x, y)
for name in act:
    taper.compile(lambda v, f=getattr(F, name): f(v))(x)
g = taper.compile(lambda x, y, u: (taper.special.ndtr(x), taper.special.entr(u), taper.special.xlog1py(x, u), u.pow(x), x ** 3, u ** 0.3, taper.logit(u, eps=0.01),
                                   F.gelu(x, approximate="tanh"), F.threshold(x, 0.1, 20.0), taper.clamp(x, -0.5, 0.75), x.clamp(min=0.1), x.clamp(max=0.1),
                                   taper.lerp(x, y, 0.3), taper.addcmul(x, y, u, value=0.5), taper.addcdiv(x, y, u + 1, value=0.5), taper.where(x > y, x, y)))
g(x, y, u)
k = taper.compile(lambda x, y: (F.relu6(x), F.selu(x), F.celu(x, 0.7), F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y, beta=0.5), F.huber_loss(x, y, delta=0.7),
                                F.mse_loss(x, y, reduction="none"), F.huber_loss(x, y, reduction="sum"), x.view(20, -1).softmax(0), x.view(20, -1).log_softmax(-1),
                                x.view(2, 5, -1).softmax(1), x.view(2, 5, -1).logsumexp(1), x.view(2, 5, -1).logsumexp((0, 2), keepdim=True)))
k(taper.randn(200), taper.randn(200))
z = taper.randn(4, 5, 6).requires_grad_()
h = taper.compile(lambda z: (z.sum() + z.mean() + z.sum((0, 2)).sum() + z.mean(1, keepdim=True).sum() + z.amax(2).sum() + z.amin((0, 1)).sum() + z.prod(1).sum()
                             + F.silu(z).sum() + z.sigmoid().sum() + z.tanh().sum() + F.logsigmoid(z).sum() + z.transpose(0, 1)[1].sum() + z[1:, ::2].sum() + z.view(20, 6).t().sum()))
h(z).backward()
""")


def test_a_crash_tells_the_node_and_the_line():
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "prog.py"), "w") as f:
            f.write("import taper\n@taper.compile\ndef f(x):\n    return taper.relu(x * 2).sum()\nprint(f(taper.ones(3)))\n")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        env.update(PYTHONPATH=os.path.join(ROOT, "python"), TAPER_INJECT="relu:segv@gen")
        p = subprocess.run([TAPER, "doctor", "prog.py"], cwd=d, env=env, capture_output=True, text=True, timeout=300)
        first = p.stdout.splitlines()[0]
        assert p.returncode == 1 and re.search(r"the fault is in kernel '\w+' \(generated code\), at node '\w+'", first) and "prog.py:4" in first, (first, p.stderr)


def test_one_call_of_a_function_and_a_cell_are_examined():
    if not os.path.exists(os.path.join(ROOT, "build", "taper")):
        raise unittest.SkipTest("the program is not beside the package")
    program = """
import sys, taper
class Net(taper.nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
    def forward(self, x):
        return taper.relu(x * self.k) + 1
def plain(x):
    return x * 2
if __name__ == "__main__":
    from taper._dynamo.doctor import examine_cell
    v = taper.compiler.doctor(Net(3.0), taper.ones(2))
    print(v["status"], "relu" in v["operators"], "prog.py:8" in v["line"], repr(v) == v["verdict"] and v["verdict"] in v._repr_html_().replace("&#x27;", "'"))
    print(taper.compiler.doctor(plain, x=taper.ones(2))["status"])
    v = examine_cell("print(f(taper.ones(2)))", ["%load_ext taper\\nimport taper", "f = taper.compile(lambda x: taper.relu(x) * 3)"])
    print(v["status"], v["operators"])
    try:
        taper.compiler.doctor(lambda x: x, 1)
    except RuntimeError as e:
        print("by their name" in str(e))
"""
    out, err, rc = run(program, TAPER_INJECT="relu:accuracy@lower")
    assert rc == 0 and out.splitlines() == ["fault found True True True", "nothing wrong", "fault found relu", "True"], (out, err)


def test_kernels_are_named_by_their_values():
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "taper_quarantine"), "w") as f:
            f.write("taper 0.1.0\nrefuse vector:relu@prog.py:4\n")
        program = "import taper\n@taper.compile\ndef f(x):\n    return taper.relu(x * 2)\nprint(f(taper.ones(3)).tolist())\n"
        out, err, rc = run(program, cwd=d, TAPER_LOGS="inductor", TAPER_CACHE="0")
        assert rc == 0 and out.strip() == "[2.0, 2.0, 2.0]" and "1 rewrite refused" in err, (out, err)


def test_every_kernel_is_made_anew_when_asked():
    program = "import taper\nf = taper.compile(lambda x: x * 2 + 1)\ng = taper.compile(lambda y: y * 2 + 1)\nprint(f(taper.ones(3)).tolist(), g(taper.ones(3)).tolist())\n"
    for value, hits in (("1", True), ("0", False)):
        out, err, rc = run(program, TAPER_KERNEL_CACHE=value, TAPER_LOGS="+cache", TAPER_CACHE="0")
        assert rc == 0 and out.strip() == "[3.0, 3.0, 3.0] [3.0, 3.0, 3.0]", (out, err)
        assert ("kernel cache hit" in err) == hits, (value, err)


def test_a_crash_outside_of_operators_is_not_blamed_on_one():
    import json
    import subprocess
    import tempfile
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "p.py"), "w") as f:
            f.write("import os, signal, taper\nprint(taper.ones(2) + 1, flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)\n")
        r = subprocess.run([os.path.join(os.environ.get("TAPER_BUILD", "build"), "taper"), "doctor", "--json", "p.py"], cwd=d, capture_output=True, text=True)
        said = json.loads(r.stdout)
        assert r.returncode == 2 and not said["operators"], (r.returncode, said)
