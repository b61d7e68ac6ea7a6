"""(sanitize: skip, every row of the table is compiled three times) A fault can be planted on any operator at any stage, also where the operator is replaced before."""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import taper
import taper._dynamo as dynamo
from taper import _C
from test_out_of_memory import detached, samples

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
ERRORS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, OverflowError, ZeroDivisionError, ArithmeticError)
# No code is made for these: the graph ends before them, the whole graph runs eagerly, or they return what they were given.
BREAKS = {"nonzero", "argwhere", "_unique2", "unique_dim", "unique_consecutive", "bincount", "equal", "allclose", "item", "_local_scalar_dense",
          "repeat_interleave", "masked_select", "one_hot", "ctc_loss", "tensor_split", "narrow", "quantile", "nanquantile"}
EAGER = {"squeeze_", "unsqueeze_", "t_", "as_strided_", "transpose_", "resize_", "resize_as_", "as_strided"}
IDENTITY = {"conj", "real", "contiguous", "atleast_1d", "atleast_2d", "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"}


def mapped(args):
    return [mapped(a) if isinstance(a, list) else a * 1.5 if isinstance(a, taper.Tensor) and (a.is_floating_point() or a.is_complex()) else a for a in args]


def strikes(row, spec):
    """True, False, or None where eager refuses every sample."""
    for make, call in samples(row):
        args = detached(list(make()))
        try:
            call(*mapped(args))
        except ERRORS:
            continue
        dynamo.reset()
        _C._inject(row[0].split(".")[0] + ":" + spec)
        try:
            taper.compile(lambda *a: call(*mapped(list(a))))(*detached(list(make())))
            return False
        except ERRORS as e:
            return True if "planted fault" in str(e) else None  # random samples that this call refuses
        finally:
            _C._inject(None)
    return None


def test_every_row_of_the_table():
    for spec, idle in (("runtime_error@gen", BREAKS | EAGER | IDENTITY), ("runtime_error@aot", BREAKS | EAGER | {"contiguous", "atleast_1d", "atleast_2d"}),
                       ("compile_error@lower", BREAKS | EAGER | IDENTITY)):
        answers = [(row[0].split(".")[0], strikes(row, spec)) for row in _C._schemas()]
        missed = {n for n, a in answers if a is False}
        assert missed <= idle, (spec, missed - idle)
        assert sum(a is True for _, a in answers) > 600, spec


PROGRAM = """
import taper
@taper.compile
def f(x):
    return taper.softmax(x * 2, -1).sum(1) + 1
f(taper.arange(12).reshape(3, 4).float())
print("finished")
"""


def run(cmd, cwd, **env):
    base = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
    p = subprocess.run(cmd, cwd=cwd, capture_output=True, text=True, timeout=120, env=dict(base, PYTHONPATH=os.path.join(ROOT, "python"), **env))
    return p.returncode, p.stdout, p.stderr


def found_in(spec, after, level):
    """The failure of PROGRAM with this fault, minimised: (failure.json, the minimal graph's text)."""
    with tempfile.TemporaryDirectory() as d:
        rc, out, err = run([sys.executable, "-c", PROGRAM], d, TAPER_INJECT=spec, TAPER_REPRO_AFTER=after, TAPER_REPRO_LEVEL=level)
        assert rc == 1 and "finished" not in out, (spec, rc, err)
        (bundle,) = glob.glob(d + "/taper_compile_debug/*/minifier")
        rc, out, err = run([TAPER, "minify", bundle], d)
        assert rc == 0 and "verified in 3 of 3 fresh processes" in out, (spec, out, err)
        with open(bundle + "/minimal/failure.json") as f, open(bundle + "/minimal/graph.py") as g:
            return json.load(f), g.read()


def test_operators_that_are_decomposed_before_the_stage():
    for spec, after, level, kind in (("softmax:oom@gen", "dynamo", "2", "out of memory"), ("softmax:accuracy@fuse", "dynamo", "4", "accuracy"),
                                     ("softmax:compile_error@lower", "aot", "2", "compile error"), ("softmax:accuracy@gen", "aot", "4", "accuracy")):
        saved, graph = found_in(spec, after, level)
        ops = re.findall(r"^    \w+: .* = ", graph, re.M)
        assert saved["kind"] == kind and len(ops) <= (1 if "fuse" not in spec else 2), (spec, saved["kind"], graph)
        assert "softmax" in graph, graph  # as itself, or as the node that stands for it
    assert "# meta: {\"planted\": \"softmax\"}" in graph, graph


def test_run_time_errors_of_the_autograd_stage_strike_at_run_time():
    saved, graph = found_in("softmax:runtime_error@aot", "dynamo", "2")
    assert saved["kind"] == "exception" and saved["stage"] == "run" and "fails at 'softmax'" in saved["message"], saved
    assert len(re.findall(r"^    \w+: .* = ", graph, re.M)) == 1, graph


def test_what_does_not_strike_is_said():
    with tempfile.TemporaryDirectory() as d:
        for spec, why in (("rleu:accuracy@gen", "no operator of that name was compiled"), ("sort:segv@gen", "no operator of that name was compiled"),
                          ("softmax:accuracy@fuse", None)):
            rc, out, err = run([sys.executable, "-c", PROGRAM], d, TAPER_INJECT=spec)
            assert rc == 0 and f"faults are planted for testing (TAPER_INJECT={spec})" in err, err
            assert (f"the planted fault {spec} never struck: {why}" in err) if why else "never struck" not in err, err
        eager = PROGRAM.replace("@taper.compile", "@taper.compile(backend='aot_eager')")
        rc, out, err = run([sys.executable, "-c", eager], d, TAPER_INJECT="softmax:accuracy@gen")
        assert rc == 0 and "never struck: the operator did not reach that stage" in err, err
        for bad, why in (("relu", "op:kind@stage"), ("relu:segv", "op:kind@stage"), ("relu:boom@gen", "there are: compile_error, runtime_error"),
                         ("relu:segv@here", "there are: capture, aot")):
            rc, out, err = run([sys.executable, "-c", PROGRAM], d, TAPER_INJECT=bad)
            assert rc == 0 and why in err and "no fault is planted" in err, err
