"""Rows of tests/checklist.md that need a short program of their own."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import taper
from taper import nn
import taper._dynamo as dynamo

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BACKENDS = ["eager", "aot_eager", "aot_eager_decomp_partition", "inductor"]


def run(source, alias=False, cwd=None, **env):
    """Runs a program in a process of its own: (exit code, stdout, stderr)."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "prog.py")
        with open(path, "w") as f:
            f.write(source)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        p = subprocess.run([sys.executable] + (["-m", "taper"] if alias else []) + [path], capture_output=True, text=True,
                           cwd=cwd or d, timeout=60, env=dict(clean, PYTHONPATH=os.path.join(ROOT, "python"), **env))
    return p.returncode, p.stdout, p.stderr


COMPARE = """
import torch
import torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(10, 20)
        self.second = nn.Linear(20, 5)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

net = Net()
x = torch.randn(4, 10)
with torch.no_grad():
    plain = net(x)
    got = torch.compile(net, backend='inductor', fullgraph=False)(x)
print(plain.shape == got.shape == (4, 5), f"{plain.mean().item():.4f}" == f"{got.mean().item():.4f}")
print("match" if torch.max(torch.abs(plain - got)).item() <= 1e-4 else "diverge")
try:
    with torch.no_grad():
        torch.compile(net, backend='inductor', fullgraph=True)(x)
    print("fullgraph succeeded")
except Exception as e:
    print(type(e).__name__, str(e)[:100])
"""


def test_eager_and_compiled_are_compared():
    rc, out, err = run(COMPARE, alias=True)
    assert rc == 0 and out == "True True\nmatch\nfullgraph succeeded\n", out + err


def test_batch_norm_statistics_under_compile():
    taper.manual_seed(0)
    a = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    b = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    b.load_state_dict(a.state_dict())
    for backend in ("eager", "inductor"):
        dynamo.reset()
        c = taper.compile(b, backend=backend)
        for _ in range(4):
            x = taper.randn(8, 4) * 3 + 1
            a(x), c(x)
        assert (a[1].running_mean - b[1].running_mean).abs().max().item() < 1e-5
        assert (a[1].running_var - b[1].running_var).abs().max().item() < 1e-4
        assert a[1].num_batches_tracked.item() == b[1].num_batches_tracked.item() > 0
        a.eval(), b.eval()
        x = taper.randn(8, 4)
        before = b[1].running_mean.clone()
        y = c(x)
        assert taper.equal(y, c(x)) and (y - a(x)).abs().max().item() < 1e-5  # nothing is dropped
        assert taper.equal(before, b[1].running_mean)
        a.train(), b.train()


SIN = """
import taper
@taper.compile(backend="%s")
def f(x):
    return taper.sin(x) + 1
x = taper.tensor([0.5, 1.0], requires_grad=True)
%s
"""


def test_no_joint_graph_without_gradients():
    env = dict(TAPER_LOGS="aot_graphs,aot_joint_graphs")
    rc, _, err = run(SIN % ("inductor", "with taper.no_grad():\n    f(x)"), **env)
    assert rc == 0 and "orward graph" in err and "Joint graph" not in err and "Backward graph" not in err, err
    rc, _, err = run(SIN % ("inductor", "f(x).sum().backward()"), **env)
    assert rc == 0 and "Joint graph" in err and "Backward graph" in err, err


def test_aot_graphs_log():
    rc, _, err = run(SIN % ("aot_eager", "f(x).sum().backward()"), TAPER_LOGS="aot_graphs,aot_joint_graphs")
    text = re.sub(r"^.*?\] (\[\d.*?\] )?(?=\[__)", "", err, flags=re.M)
    for artifact, title, op in (("aot_joint_graph", "Joint graph", "taper.cos("), ("aot_graphs", "Forward graph", "taper.sin("),
                                ("aot_graphs", "Backward graph", "tangents_1 * cos")):
        at = text.index(f"[__{artifact}]  ===== {title}")
        assert op in text[at:text.index("return (", at)], text
    rc, _, err = run(SIN % ("aot_eager", "f(x).sum().backward()"), TAPER_LOGS="aot_graphs")
    assert "Joint graph" not in err and "Forward graph" in err


def test_function_module_submodule_compile():
    taper.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    x = taper.randn(3, 4)
    want = net(x)
    for backend in BACKENDS:
        dynamo.reset()

        @taper.compile(backend=backend)
        def call(t):
            return net(t)
        assert taper.allclose(call(x), want, atol=1e-5)
        assert taper.allclose(taper.compile(net, backend=backend)(x), want, atol=1e-5)
        part = nn.Sequential(net[0], taper.compile(net[1], backend=backend), net[2])
        assert taper.allclose(part(x), want, atol=1e-5)


RELU = """
import taper
@taper.compile(backend="%s")
def f(x):
    for _ in range(3):
        x = taper.sin(x)
    return taper.relu(x) * 2
try:
    print(f(taper.ones(4)).tolist()[0])
except Exception as e:
    print(type(e).__name__, e)
"""
GOOD = "1.35"


def test_faults_appear_from_their_stage_on():
    def fails(fault):
        return [not run(RELU % b, TAPER_INJECT=fault)[1].startswith(GOOD) for b in BACKENDS]
    assert fails("tan:compile_error@aot") == [False, False, False, False]  # an operator that is not there
    assert fails("relu:compile_error@aot") == [False, True, True, True]
    assert fails("relu:compile_error@gen") == [False, False, False, True]
    assert fails("relu:accuracy@gen") == [False, False, False, True]


def test_modes_run():
    for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        dynamo.reset()
        assert taper.compile(lambda x: x.sin() + 1, mode=mode)(taper.zeros(2)).tolist() == [1.0, 1.0]


def saved(cwd):
    """The bundles below a directory."""
    return [d for d, _, files in os.walk(cwd) if "failure.json" in files]


def failure(bundle):
    with open(os.path.join(bundle, "failure.json")) as f:
        return json.load(f)


def graph(bundle):
    with open(os.path.join(bundle, "graph.py")) as f:
        return "".join(line for line in f if "#" not in line[:9])


def test_failures_are_saved_and_still_raised():
    for fault, kind in (("relu:compile_error@gen", "compile"), ("relu:runtime_error@gen", "exception")):
        plain = run(RELU % "inductor", TAPER_INJECT=fault)[1]
        assert "Error" in plain or "Failed" in plain, plain
        for level in "12":
            with tempfile.TemporaryDirectory() as d:
                rc, out, err = run(RELU % "inductor", cwd=d, TAPER_INJECT=fault, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL=level)
                assert out.split()[0] == plain.split()[0], (out, plain)  # the same exception as without saving
                (bundle,) = saved(d)
                assert failure(bundle)["kind"].startswith(kind), failure(bundle)
                text = graph(bundle)  # the graph as captured, not as the compiler left it
                assert text.count("taper.sin(") == 3 and text.count("taper.relu(") == 1, text


def test_level_3_and_4_change_no_result():
    plain = run(RELU % "inductor")[1]
    assert plain.startswith(GOOD)
    for level in "1234":
        with tempfile.TemporaryDirectory() as d:
            rc, out, _ = run(RELU % "inductor", cwd=d, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL=level)
            assert rc == 0 and out == plain, out
            assert len(saved(d)) == (level == "3")  # level 3 saves although nothing failed


def test_errors_have_their_own_messages():
    def message(fn, *args, **kw):
        dynamo.reset()
        try:
            taper.compile(fn, backend="eager", **kw)(*args)
        except Exception as e:
            return type(e).__name__, str(e)
        return None

    def unsupported(x):
        return x + x.data_ptr()

    def branch(x):
        return x + 1 if x.sum() > 0 else x - 1
    a, b = message(unsupported, taper.ones(2), fullgraph=True), message(branch, taper.ones(2), fullgraph=True)
    c = message(lambda x, y: x @ y, taper.ones(2, 3), taper.ones(2, 3))
    assert a and "data_ptr" in a[1], a
    assert b and a[0] == b[0] == "Unsupported" and "ata-dependent" in b[1], b
    assert c and "cannot be multiplied (2x3 and 2x3)" in c[1] and c[0] != "Unsupported", c


def test_compile_error_comes_before_any_kernel():
    prog = """
import taper
x = taper.zeros(4)
@taper.compile(backend="inductor")
def f(x):
    x.add_(1)
    return taper.relu(x)
try:
    f(x)
except Exception as e:
    print("raised")
print(x.tolist())
"""
    assert run(prog, TAPER_INJECT="relu:compile_error@gen")[1] == "raised\n[0.0, 0.0, 0.0, 0.0]\n"
    assert run(prog)[1] == "[1.0, 1.0, 1.0, 1.0]\n"
    with tempfile.TemporaryDirectory() as d:  # the extra runs of level 4 leave the inputs alone
        assert run(prog, cwd=d, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4")[1] == "[1.0, 1.0, 1.0, 1.0]\n"


def test_gradients_are_compared_too():
    prog = SIN % ("inductor", "try:\n    f(x)\n    print('ok')\nexcept taper._dynamo.exc.AccuracyError as e:\n    print(e)")
    for fault, want in (("cos:accuracy@gen", "Bad accuracy detected: gradient of input 0"), ("sin:accuracy@gen", "Bad accuracy detected: result 0"),
                        ("tan:accuracy@gen", "ok")):
        with tempfile.TemporaryDirectory() as d:
            out = run(prog, cwd=d, TAPER_INJECT=fault, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4")[1]
        assert out.startswith(want), out


def test_demo_reports_times():
    if os.environ.get("TAPER_SANITIZED"):
        raise unittest.SkipTest("the demo runs the program that was built without")
    p = subprocess.run([sys.executable, os.path.join(ROOT, "examples", "demo.py")], capture_output=True, text=True, timeout=60,
                       env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python")))
    assert p.returncode == 0, p.stdout + p.stderr
    assert re.search(r"first call .* [\d.]+ ms, later calls [\d.]+ ms, eager [\d.]+ ms", p.stdout), p.stdout
    for part in ("size mismatch at index 0. expected 3, actual 4", "Hint: ", "AccuracyError: ", "to 1 operator"):
        assert part in p.stdout, part


FUSED = """
import taper
@taper.compile
def f(x, w):
    y = (x @ w).sin()
    return y + 1, y.cos().sum(0), taper.sort(y)[0]
f(taper.ones(8, 8), taper.ones(8, 8))
"""


def test_schedule_fusion_and_hints_log():
    for quiet in ("inductor", ""):
        err = run(FUSED, **(dict(TAPER_LOGS=quiet) if quiet else {}))[2]
        assert not re.search(r"__(schedule|fusion|perf_hints)", err), err
    err = run(FUSED, TAPER_LOGS="schedule,fusion,perf_hints")[2]
    assert re.search(r"__schedule\] schedule of \w+: \d+ kernels?", err), err
    assert re.search(r"__fusion\] (fused|did not fuse) ", err), err
    assert re.search(r"__perf_hints\] .*runs as a library call", err), err


def test_a_trace_holds_no_tensor_data():
    with tempfile.TemporaryDirectory() as d:
        rc, _, err = run("import taper\n@taper.compile\ndef f(x):\n    return x.sin() * 2\nf(taper.full((3,), 0.5) * 8642.25)\n",
                         TAPER_DTRACE=d)
        assert rc == 0, err
        (log,) = os.listdir(d)
        with open(os.path.join(d, log)) as f:
            text = f.read()
        assert "dynamo_output_graph" in text and "4321.12" not in text
