"""(sanitize: skip, sanitizers catch the crashes that are planted) Failures are found with custom operators, dynamic sizes, aliased, empty and narrow inputs, on threads and in train steps."""
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")

CUSTOM = """
import taper
@taper.library.custom_op("contexts::twice", mutates_args=())
def twice(x: taper.Tensor) -> taper.Tensor:
    return x * 2
@twice.register_fake
def _(x):
    return taper.empty_like(x)
twice.register_autograd(lambda ctx, g: g * 2)
@taper.library.custom_op("contexts::parts", mutates_args=())
def parts(x: taper.Tensor) -> tuple[taper.Tensor, taper.Tensor]:
    return x[:2].clone(), x[2:].clone()
@parts.register_fake
def _(x):
    return taper.empty_like(x[:2]), taper.empty_like(x[2:])
parts.register_autograd(lambda ctx, a, b: taper.cat([a, b]))
fc = taper.nn.Linear(4, 4)
opt = taper.optim.SGD(fc.parameters(), lr=0.1)
@taper.compile
def step(x):
    opt.zero_grad()
    a, b = parts(twice(fc(x)))
    loss = (taper.relu(taper.cat([a, b])) ** 2).mean()
    loss.backward()
    opt.step()
    return loss
taper.manual_seed(0)
step(taper.randn(3, 4))
"""
DYNAMIC = """
import taper
fc = taper.nn.Linear(8, 16)
@taper.compile(dynamic=True)
def f(x):
    h = fc(x).tanh()
    h = h @ h.t()
    y = taper.relu(h).sum(0)
    return (y[:, None] * 2).sin() + x.shape[0]
taper.manual_seed(0)
f(taper.randn(5, 8).requires_grad_()).sum().backward()
"""
INPUTS = """
import threading
import taper
@taper.compile
def f(x, w):
    h = taper.sin(x @ w)
    return (taper.relu(h) * 2 + 1).sum(1)
base = taper.arange(40).float()
x, w = {"alias": lambda: (base[1:13].view(3, 4), base[8:16].view(2, 4).t()), "empty": lambda: (taper.zeros(0, 4), taper.ones(4, 2)),
        "bf16": lambda: (base[:12].view(3, 4).bfloat16(), taper.ones(4, 2).bfloat16()),
        "thread": lambda: (base[:12].view(3, 4), taper.ones(4, 2).requires_grad_())}[KIND]()
def go():
    f(x, w)
if KIND == "thread":
    for _ in range(3):
        t = threading.Thread(target=go)
        t.start()
        t.join()
    raise SystemExit(1)
go()
"""


def run(cmd, cwd, **env):
    base = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
    p = subprocess.run(cmd, cwd=cwd, capture_output=True, text=True, timeout=120, env=dict(base, PYTHONPATH=os.path.join(ROOT, "python"), **env))
    return p.returncode, p.stdout, p.stderr


def hunt(code, fault, after, level, kind=""):
    """-> (stderr of the program, the minimal graph's text)"""
    with tempfile.TemporaryDirectory() as d:
        rc, out, err = run([sys.executable, "-c", code.replace("KIND", repr(kind))], d, TAPER_INJECT=fault, TAPER_REPRO_AFTER=after, TAPER_REPRO_LEVEL=level)
        assert rc == (-11 if "segv" in fault else 1), (fault, kind, rc, err)
        (bundle,) = glob.glob(d + "/taper_compile_debug/*/minifier")
        rc, out, more = run([TAPER, "minify", bundle], d)
        assert rc == 0 and " 1 after" in out and "verified in 3 of 3 fresh processes" in out, (fault, kind, out, more, err)
        rc, out, more = run([sys.executable, "repro.py"], d)
        assert rc == (-11 if "segv" in fault else 1), (fault, kind, more)
        with open(bundle + "/minimal/graph.py") as f:
            return err, f.read()


def test_custom_operators_do_not_keep_a_failure_from_others():
    """Only the program knows them: where the failure shows without, their values are saved in the place of their calls."""
    for fault, after, level in (("relu:accuracy@gen", "dynamo", "4"), ("relu:runtime_error@gen", "aot", "2"), ("relu:compile_error@lower", "dynamo", "2")):
        err, graph = hunt(CUSTOM, fault, after, level)
        assert "with the values that custom operators gave in the place of their calls" in err and "contexts" not in graph and "taper.relu(" in graph, graph


def test_failures_of_dynamic_sizes_stay_dynamic():
    for fault, after, level in (("relu:accuracy@gen/dynamic", "dynamo", "4"), ("relu:runtime_error@lower/dynamic", "aot", "2"),
                                ("relu:segv@gen/dynamic", "dynamo", "3")):
        err, graph = hunt(DYNAMIC, fault, after, level)
        assert re.search(r"def forward\(self, \w+: \"f32\[s\d+, s\d+\]", graph), graph
    err, graph = hunt(DYNAMIC, "relu:accuracy@gen", "dynamo", "4")  # this one has nothing to do with them
    assert "s0" not in graph, graph


def test_inputs_of_every_kind():
    for kind, fault, level in (("alias", "relu:accuracy@gen", "4"), ("empty", "relu:runtime_error@gen", "2"), ("bf16", "relu:accuracy@gen", "4"),
                               ("thread", "relu:runtime_error@gen", "2")):
        hunt(INPUTS, fault, "dynamo", level, kind)


def test_what_cannot_be_minimised_here_says_what_to_do():
    with tempfile.TemporaryDirectory() as d:  # behind the autograd stage this graph fails by itself
        run([sys.executable, "-c", INPUTS.replace("KIND", "'bf16'")], d, TAPER_INJECT="relu:runtime_error@aot", TAPER_REPRO_AFTER="aot")
        (bundle,) = glob.glob(d + "/taper_compile_debug/*/minifier")
        rc, out, err = run([TAPER, "minify", bundle], d)
        assert rc == 2 and "it cannot run here without a compiler either" in err and "TAPER_REPRO_AFTER=dynamo" in err, err
    with tempfile.TemporaryDirectory() as d:  # a custom operator at level 3: nobody knew yet that it would fail
        run([sys.executable, "-c", CUSTOM], d, TAPER_INJECT="relu:segv@gen", TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="3")
        (bundle,) = glob.glob(d + "/taper_compile_debug/*/minifier")
        rc, out, err = run([TAPER, "minify", bundle], d)
        assert rc == 2 and "import what registers it at the top of minifier_launcher.py" in err, err
        with open(bundle + "/minifier_launcher.py") as f:
            text = f.read()
        with open(d + "/launcher.py", "w") as f:  # as it says
            f.write(text.replace("\n\nclass Repro", CUSTOM.split("fc = ")[0] + "\n\nclass Repro", 1))
        rc, out, err = run([sys.executable, "launcher.py"], d)
        assert rc == 0 and " 1 after" in out, (out, err)


def test_options_reach_scripts():
    with tempfile.TemporaryDirectory() as d:
        run([sys.executable, "-c", INPUTS.replace("KIND", "'bf16'")], d, TAPER_INJECT="relu:runtime_error@gen", TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="1")
        rc, out, err = run([TAPER, "minify", "repro.py", "--check-str", "another error"], d)
        assert rc != 0 and "but not with 'another error'" in err, err
        rc, out, err = run([TAPER, "minify", "repro.py", "--check-str", "planted fault", "--timeout", "30"], d)
        assert rc == 0 and " 1 after" in out, (out, err)
        rc, out, err = run([TAPER, "minify", "repro.py", "--out", "x"], d)
        assert rc == 2 and "--out is for saved failures" in err, err
        rc, out, err = run([TAPER, "repro", "repro.py"], d)
        assert rc == 1 and "planted fault" in err, err


def test_where_the_answer_cannot_be_written():
    with tempfile.TemporaryDirectory() as d:
        run([sys.executable, "-c", INPUTS.replace("KIND", "'bf16'")], d, TAPER_INJECT="relu:accuracy@gen", TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4")
        (bundle,) = glob.glob(d + "/taper_compile_debug/*/minifier")
        with open(bundle + "/minimal", "w"):
            pass
        rc, out, err = run([TAPER, "minify", bundle], d)
        assert rc != 0 and "--out DIR puts it elsewhere" in err and "trials" not in err, err  # said before the search
        rc, out, err = run([TAPER, "minify", bundle, "--out", d + "/answer"], d)
        assert rc == 0 and os.path.exists(d + "/answer/repro.py"), err
