"""(sanitize: skip, it starts the program that was built without) TAPER_SHADOW=1: a compiled function beside itself as it is written."""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = """
import taper

class Meter(taper.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = 0
        self.lin = taper.nn.Linear(4, 2)
    def forward(self, x):
        y = self.lin(x).tanh()
        self.seen = self.seen + len(x)
        return y

log, calls = [], 0

@taper.compile
def f(x, scale=2.0):
    global calls
    calls += 1
    log.append(x.shape[0])
    x.mul_(scale)
    return {"y": taper.relu(x), "n": len(log)}

def make():
    count = 0
    @taper.compile
    def step(x):
        nonlocal count
        count += 1
        return x.exp() + %s
    return step

taper.manual_seed(0)
m = Meter()
c = taper.compile(m)
c(taper.ones(5, 4)), c(taper.ones(3, 4))
step = make()
print(m.seen, f(taper.ones(2)), f(taper.ones(3), scale=-1.0), log, calls, step(taper.zeros(2)), step(taper.zeros(2)))
w = taper.ones(3).requires_grad_()
f(w * 2)["y"].sum().backward()
print(w.grad)
try:
    taper.compile(lambda x: x.view(7))(taper.ones(3))
except RuntimeError as e:
    print("raised")
"""


def run(program, **env):
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "prog.py"), "w") as f:
            f.write(program)
        full = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        full.update(env, PYTHONPATH=os.path.join(ROOT, "python"))
        p = subprocess.run([sys.executable, "prog.py"], cwd=d, env=full, capture_output=True, text=True, timeout=300)
        return p.stdout, p.stderr, p.returncode


def test_a_program_that_is_right_has_no_findings_and_runs_as_ever():
    out, err, rc = run(PROGRAM % 1)
    assert rc == 0 and "raised" in out, err
    shadowed = run(PROGRAM % 1, TAPER_SHADOW="1")
    assert shadowed[2] == 0 and shadowed[0] == out and "TAPER_SHADOW" not in shadowed[1], shadowed


def test_results_that_differ_are_named():
    out, err, rc = run(PROGRAM % 1, TAPER_SHADOW="1", TAPER_INJECT="relu:accuracy@capture")
    assert rc == 0 and "`f`, call 1: the result['y'] is" in err and "as the program is written" in err and "prog.py:" in err, err


def test_what_only_compiled_code_does_is_named():
    """State differs, not the result: a counter, a closure cell."""
    out, err, rc = run("""
import taper
seen = {"compiled": 0, "calls": 0}
def make():
    kind = "none"
    @taper.compile
    def f(x):
        nonlocal kind
        seen["calls"] += 1
        if taper.compiler.is_compiling():
            seen["compiled"] += 1
            kind = "compiled"
        return x + 1
    return f
make()(taper.ones(2))
""", TAPER_SHADOW="1")
    assert rc == 0 and "seen (global)['compiled'] is 1 after the compiled call, 0 as the program is written" in err, err
    assert "kind (of the enclosing function) is 'compiled' after the compiled call, 'none' as the program is written" in err and "['calls']" not in err, err
