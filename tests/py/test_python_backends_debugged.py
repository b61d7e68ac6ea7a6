"""(sanitize: skip, children have less memory than sanitizers want) Backends written in Python: their failures are saved at every call, minimised in children, and the scripts know where the backend is."""
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BACKEND = """
import os
import taper

def mine(gm, inputs):
    kind = os.environ["KIND"]
    relu = any(n.op == "call_function" and "relu" in str(n.target) for n in gm.graph.nodes)
    if kind == "compile" and relu:
        raise ValueError("my compiler is broken")

    def run(*args):
        if kind == "run" and relu or kind == "later" and relu and float(args[0].sum()) > 100:
            raise KeyError("my kernel is broken")
        if kind == "segv" and relu:
            os.kill(os.getpid(), 11)
        if kind == "hang" and relu:
            import time
            time.sleep(60)
        out = gm(*args)
        return [o + 1 for o in out] if kind == "wrong" and relu or kind == "wrong later" and relu and float(args[0].sum()) > 100 else out
    return run
"""
PROGRAM = """
import taper
%s

@taper.compile(backend=%s)
def f(x):
    h = taper.sin(x)
    y = taper.relu(h) * 2
    return (y + 1).cos()

for k in range(4):
    f(taper.arange(12).float() * (k + 1))
print("finished")
"""


def run(cmd, cwd, **env):
    base = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
    p = subprocess.run([sys.executable] + cmd, cwd=cwd, capture_output=True, text=True, timeout=120,
                       env=dict(base, PYTHONPATH=os.path.join(ROOT, "python"), **env))
    return p.returncode, p.stdout, p.stderr


def write(d, name, text):
    with open(os.path.join(d, name), "w") as f:
        f.write(text)


def hunt(kind, level, error, minify=()):
    """Runs the program, the launcher and repro.py in a fresh directory; what the program wrote to stderr."""
    with tempfile.TemporaryDirectory() as d:
        write(d, "backend_of_mine.py", BACKEND)
        write(d, "program.py", PROGRAM % ("import backend_of_mine", "backend_of_mine.mine"))
        rc, out, first = run(["program.py"], d, KIND=kind, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL=level)
        assert rc == (-11 if kind == "segv" else 1) and "finished" not in out and (error or "") in first, (kind, rc, first)
        (script,) = glob.glob(d + "/taper_compile_debug/*/minifier/" + ("checkpoints/*.py" if level == "1" else "minifier_launcher.py"))
        rc, out, err = run([script, "minify", *minify], d, KIND=kind)
        assert rc == 0 and "1 after" in out and "verified 3 times in fresh processes" in out, (kind, out, err)
        rc, out, err = run(["repro.py", "minifier-query", *minify], d, KIND=kind)
        assert rc == 1, err
        if kind != "hang":
            rc, out, err = run(["repro.py"], d, KIND=kind)
            assert rc == (-11 if kind == "segv" else 1) and (error or "") in err, (kind, err)
        with open(os.path.join(d, "repro.py")) as f:
            text = f.read()
        assert "taper._dynamo.repro.backend('mine', backend_of_mine.mine)" in text and text.count("taper.relu(") == 1, text
        return first.replace(d, "DIR")


def test_compile_errors_run_time_errors_crashes_and_wrong_results():
    err = hunt("compile", "2", "ValueError: my compiler is broken")
    # the last line says where to go on; nothing tells to use a program that cannot know the backend
    assert re.search(r"Minifier script written to DIR/taper_compile_debug/\S+/minifier_launcher.py\. Run this script[^\n]*\n$", err), err
    assert err.count("Minifier script written to") == 1 and "`taper minify" not in err, err
    err = hunt("run", "1", "KeyError: 'my kernel is broken'")
    assert re.search(r"The graph is saved as DIR/\S+/checkpoints/7.py\. Run this script to see the error again; with the word 'minify'[^\n]*\n$", err), err
    hunt("wrong", "4", "AccuracyError: Bad accuracy detected")
    err = hunt("segv", "3", None)
    assert err.count("If the process dies, run `python DIR/taper_compile_debug/") == 1, err


def test_failures_of_later_calls():
    hunt("later", "2", "KeyError: 'my kernel is broken'")
    hunt("wrong later", "4", "AccuracyError: Bad accuracy detected")


def test_a_backend_of_the_program_itself():
    with tempfile.TemporaryDirectory() as d:
        write(d, "program.py", PROGRAM % (BACKEND, "mine"))
        rc, out, err = run(["program.py"], d, KIND="run", TAPER_REPRO_AFTER="dynamo")
        (launcher,) = glob.glob(d + "/taper_compile_debug/*/minifier/minifier_launcher.py")
        with open(launcher) as f:
            text = f.read()
        m = re.search(r"# The backend 'mine' is the function 'mine' of (\S+):(\d+)\. Define or import it here; then:\n# (taper\..*)\n", text)
        assert m and m[1].endswith("program.py") and int(m[2]) == 7, text
        rc, out, err = run([launcher], d, KIND="run")
        assert rc == 1 and "the compiler of this failure, 'mine', is not registered here" in err, err
        write(d, "launcher.py", text.replace(m[0], BACKEND + m[3] + "\n"))  # as it says
        rc, out, err = run(["launcher.py"], d, KIND="run")
        assert rc == 0 and "1 after" in out, err


def test_behind_the_autograd_stage_there_is_nothing_to_watch():
    with tempfile.TemporaryDirectory() as d:
        write(d, "backend_of_mine.py", BACKEND)
        write(d, "program.py", PROGRAM % ("import backend_of_mine", "backend_of_mine.mine"))
        rc, out, err = run(["program.py"], d, KIND="compile", TAPER_REPRO_AFTER="aot")
        assert rc == 1 and err.rstrip().endswith("Use repro_after='dynamo' (TAPER_REPRO_AFTER=dynamo).") and not glob.glob(d + "/taper_compile_debug"), err
