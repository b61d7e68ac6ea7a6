"""Level 4 checks what runs: the inference graph under no_grad, draws included, and an exception is a finding."""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEAD = "import taper, taper.nn as nn, taper.nn.functional as F\n"
INFERENCE = HEAD + """
m = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
c = taper.compile(m)
with taper.%s():
    print(c(taper.ones(2, 4)).requires_grad)
"""
DROPOUT = HEAD + """
@taper.compile
def f(x):
    return F.dropout(x, 0.5, True) + taper.relu(x) * 0.9
taper.manual_seed(0)
f(taper.ones(64))
"""


def run(code, fault=None, log=""):
    with tempfile.TemporaryDirectory() as d:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        env.update(PYTHONPATH=os.path.join(ROOT, "python"), TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4", TAPER_LOGS=log)
        if fault:
            env["TAPER_INJECT"] = fault
        p = subprocess.run([sys.executable, "-c", code], cwd=d, env=env, capture_output=True, text=True, timeout=100)
        return p.returncode, p.stdout + p.stderr


def test_the_inference_graph_of_a_module():
    for mode in ("no_grad", "inference_mode"):
        rc, out = run(INFERENCE % mode, log="aot")
        assert rc == 0 and "False" in out and "oint graph" not in out, out
        rc, out = run(INFERENCE % mode, "relu:accuracy@fuse")
        assert rc == 1 and "Bad accuracy detected: result 0" in out, out


def test_draws_are_no_noise_to_hide_in():
    rc, out = run(DROPOUT)
    assert rc == 0, out
    rc, out = run(DROPOUT, "relu:accuracy@fuse")
    assert rc == 1 and "Bad accuracy detected" in out and "first diverging node: 'relu'" in out, out


def test_a_failure_of_the_compiled_backward_is_found_and_saved():
    code = HEAD + """
x = taper.ones(4, requires_grad=True)
taper.compile(lambda x: taper.relu(x) * 2)(x)
"""
    rc, out = run(code)
    assert rc == 0, out
    rc, out = run(code, "threshold_backward:runtime_error@gen")
    assert rc == 1 and "minifier_launcher.py" in out, out
