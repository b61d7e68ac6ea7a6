"""What a device finds after a call has returned is the failure of the graph that caused it, while somebody watches."""
import glob
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = """
import taper

@taper.compile
def culprit(x):
    return taper.relu(x) * 2

@taper.compile
def innocent(x):
    return taper.sin(x) * 2

x = taper.ones(5)
for f in (culprit, innocent):
    try:
        f(x)
        print(f.__name__, "ran")
    except RuntimeError as e:
        print(f.__name__, "raised", str(e).split(chr(10))[0])
"""


def run(d, code=PROGRAM, **env):
    base = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
    p = subprocess.run([sys.executable, "-c", code], cwd=d, capture_output=True, text=True, timeout=60,
                       env=dict(base, PYTHONPATH=os.path.join(ROOT, "python"), TAPER_INJECT="relu:late@gen", **env))
    assert p.returncode == 0, p.stderr
    return p.stdout.splitlines()


def test_unwatched_it_shows_at_the_next_graph():
    with tempfile.TemporaryDirectory() as d:
        assert run(d) == ["culprit ran", "innocent raised planted fault: 'relu' failed at run time"]
        code = PROGRAM.replace("        f(x)\n", "        f(x)\n        taper.cpu.synchronize()\n")
        assert run(d, code) == ["culprit raised planted fault: 'relu' failed at run time", "innocent ran"]


def test_watched_it_is_saved_with_its_graph():
    for after in ("dynamo", "aot"):
        for level in "123":
            with tempfile.TemporaryDirectory() as d:
                assert run(d, TAPER_REPRO_AFTER=after, TAPER_REPRO_LEVEL=level) == ["culprit raised planted fault: 'relu' failed at run time", "innocent ran"]
                where = "checkpoints/*/failure.json" if level == "1" else "failure.json"
                (saved,) = glob.glob(d + "/taper_compile_debug/*/minifier/" + where)
                if level == "3":  # every graph is saved there before it runs: the last one is the innocent one
                    continue
                with open(saved) as f, open(os.path.join(os.path.dirname(saved), "graph.py")) as g:
                    assert json.load(f)["kind"] == "exception" and "relu" in g.read()
