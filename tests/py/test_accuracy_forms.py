"""Level 4 compares more than values: a backend whose results are right but lie elsewhere, or are tied to the tape otherwise, is
found out; and the rule does not ask whether a fault is planted."""
import os
import subprocess
import sys
import tempfile

import taper
from taper import _C

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = """
import sys, taper, taper._dynamo

def spoil(kind, out):
    a, b = out[0], out[1]
    return {"none": lambda: (a, b), "memory": lambda: (a, b.clone()), "one object": lambda: (a, a),
            "strides": lambda: (a.t().contiguous().t(), b)}[kind]()

def mine(gm, inputs):
    return lambda *args: spoil(sys.argv[1], gm(*args))

def both(x):
    y = x * 2
    return y, y.view_as(y)

def apart(x):
    return x * 2, x + 1

def main():
    x = taper.ones(2, 3, requires_grad=True)
    f = apart if sys.argv[1] == "strides" else both
    taper.compile(f, backend=mine)(x)
    print("agrees")

main()
"""


def outcome(kind, inject=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
    env.update(PYTHONPATH=os.path.join(ROOT, "python"), TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4")
    if inject:
        env["TAPER_INJECT"] = inject
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "p.py"), "w") as f:
            f.write(PROGRAM)
        p = subprocess.run([sys.executable, "p.py", kind], cwd=d, env=env, capture_output=True, text=True, timeout=300)
    return p.stdout + p.stderr


def test_right_values_in_another_form_are_found():
    assert "agrees" in outcome("none")
    for kind, words in (("memory", "memory"), ("strides", "strides"), ("one object", "object")):
        text = outcome(kind)
        assert "the values agree, but" in text and words in text and "agrees" not in text, (kind, text[-2000:])


def test_nan_in_the_reference_hides_nothing():
    nan = float("nan")
    ref = taper.tensor([nan, 1.0, 2.0])
    fp64 = ref.double()
    assert _C._acc_same(ref, taper.tensor([nan, 1.0, 2.0]), fp64, 1e-3, True, False, False, False, False, False, 0.0) is None
    for wrong in ([nan, 1.0, 3.0], [nan, nan, 2.0], [0.0, 1.0, 2.0]):
        assert _C._acc_same(ref, taper.tensor(wrong), fp64, 1e-3, True, False, False, False, False, False, 0.0) is not None, wrong
    # eager overflows where float64 does not: the same NaN in the result is no deviation
    wide = taper.tensor([5.0, 1.0, 2.0], dtype=taper.float64)
    assert _C._acc_same(ref, taper.tensor([nan, 1.0, 2.0]), wide, 1e-3, True, False, False, False, False, False, 0.0) is None
    assert _C._acc_same(ref, taper.tensor([nan, 1.0, 2.5]), wide, 1e-3, True, False, False, False, False, False, 0.0) is not None


def test_the_rule_does_not_know_of_planted_faults():
    text = open(os.path.join(ROOT, "src/debug/accuracy.c"), encoding="utf-8").read()
    assert "fault" not in text
    for kind in ("none", "memory"):
        assert ("agrees" in outcome(kind)) == ("agrees" in outcome(kind, "accuracy@relu"))


def test_no_alarm_where_forms_agree():
    code = """
import sys; sys.path.insert(0, %r)
import taper, taper._dynamo, test_result_aliases as t
for f in t.PROGRAMS:
    for kind in ("leaf", "plain", "slice"):
        taper._dynamo.reset()
        taper.compile(f, backend="inductor")(*t.INPUTS[kind]())
print("agrees")
""" % os.path.join(ROOT, "tests/py")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
    env.update(PYTHONPATH=os.path.join(ROOT, "python"), TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4")
    with tempfile.TemporaryDirectory() as d:
        p = subprocess.run([sys.executable, "-c", code], cwd=d, env=env, capture_output=True, text=True, timeout=300)
    assert p.stdout.endswith("agrees\n"), p.stderr[-2000:]
