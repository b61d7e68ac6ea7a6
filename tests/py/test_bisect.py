"""(sanitize: skip, it starts the program that was built without) taper bisect: the stage and the rewrite that make a saved failure."""
import glob
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
PROG = """
import taper
@taper.compile
def f(x, w):
    y = taper.relu(x @ w)
    return (y * 2).sum(1), taper.std(y, 0)
f(taper.arange(12).view(3, 4).float().sin(), taper.arange(20).view(4, 5).float().cos())
"""


def bisect(fault, level="4"):
    with tempfile.TemporaryDirectory() as d:
        env = {k: v for k, v in os.environ.items() if not k.startswith("TAPER_")}
        subprocess.run([sys.executable, "-c", PROG], cwd=d, capture_output=True, timeout=60,
                       env=dict(env, PYTHONPATH=os.path.join(ROOT, "python"), TAPER_INJECT=fault, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL=level))
        (bundle,) = glob.glob(os.path.join(d, "taper_compile_debug", "*", "minifier"))
        p = subprocess.run([TAPER, "bisect", bundle], capture_output=True, text=True, timeout=60)
        assert p.returncode == 0, p
        return [line.split("  ")[0].strip() if line[0] != " " else line.strip() for line in p.stdout.splitlines()], p.stdout


def test_a_fault_of_fusion_names_the_fusion():
    lines, text = bisect("relu:accuracy@fuse")
    assert lines[:4] == ["eager", "aot_eager", "aot_eager_decomp_partition", "inductor"] and text.count("passes\n") == 3, text
    assert "refusing all of them makes it pass" in text and "culprit" in text and "  fuse:" in text, text


def test_faults_that_no_rewrite_explains():
    lines, text = bisect("relu:accuracy@gen")
    assert "refusing all of them changes nothing" in text and "generated code" in text and "culprit" not in text, text
    lines, text = bisect("relu:accuracy@aot")
    assert lines[1] == "aot_eager" and "inductor" not in text and "the autograd stage" in text, text


def test_a_process_that_dies_leaves_its_rewrites_behind():
    lines, text = bisect("relu:segv@fuse", "3")
    assert "refusing all of them makes it pass" in text and "  fuse:" in text and "no optional rewrites" not in text, text
