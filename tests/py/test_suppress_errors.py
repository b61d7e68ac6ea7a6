"""config.suppress_errors: a warning, the eager result, and another try at the next call."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROG = """
import taper

@taper.compile(backend="inductor")
def f(x):
    y = taper.sin(x)
    print("once")
    return taper.relu(y) + 1

def compiled():
    return sum(1 for r in taper.compiler.ledger() if r.function == "f" and r.ops)
x = taper.ones(3)
want = (x.sin().relu() + 1).tolist()
for step in range(3):
    if step == 2:
        before = compiled()
        taper._dynamo.repro.inject(None)  # the compiler is repaired
    assert f(x).tolist() == want
print(before, compiled())
"""


def run(**env):
    base = {k: v for k, v in os.environ.items() if not k.startswith("TAPER_")}
    return subprocess.run([sys.executable, "-c", PROG], capture_output=True, text=True, timeout=60,
                          env=dict(base, PYTHONPATH=os.path.join(ROOT, "python"), **env))


def test_eager_from_the_failing_part_on_and_tried_again():
    for fault in ("relu:compile_error@gen", "relu:compile_error@aot", "relu:oom@lower"):
        p = run(TAPER_INJECT=fault, TAPER_SUPPRESS_ERRORS="1")
        assert p.returncode == 0, p.stderr
        # what ran before the failing part did not run again, and the repaired compiler was asked again
        assert p.stdout == "once\n" * 3 + "1 2\n", p.stdout
        assert p.stderr.count("WON'T CONVERT") == 2 and ("planted fault" in p.stderr or "memory" in p.stderr), p.stderr


def test_off_by_default():
    p = run(TAPER_INJECT="relu:compile_error@gen")
    assert p.returncode == 1 and "planted fault" in p.stderr and "WON'T" not in p.stderr
    assert run(TAPER_INJECT="relu:compile_error@gen", TAPER_SUPPRESS_ERRORS="0").returncode == 1
