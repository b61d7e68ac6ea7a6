"""A backend written in Python that hangs, kills the process or ends it: the tools say that this backend is at fault."""
# sanitize: skip (its crashes are planted)
import glob
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = """import ctypes, sys, time, taper
print("before")
sys.stdout.flush()
def backend(gm, inputs):
    {}
print(float(taper.compile(lambda x: x.sin().sum(), backend=backend)(taper.ones(3))))
"""
WAYS = {"hangs": "time.sleep(10**6)", "crashes": "ctypes.string_at(0)", "exits": "sys.exit(0)"}


def taper(where, *args):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
    env["PYTHONPATH"] = os.path.join(ROOT, "python")
    p = subprocess.run([sys.executable, "-m", "taper", *args], cwd=where, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    return p.returncode, p.stdout


def script(where, way):
    path = os.path.join(where, way + ".py")
    with open(path, "w") as f:
        f.write(PROGRAM.format(WAYS[way]))
    return path


def test_doctor_names_the_programs_own_backend():
    says = {"hangs": "It does not return", "crashes": "faulthandler", "exits": "It ends the process"}
    with tempfile.TemporaryDirectory() as d:
        for way, text in says.items():
            rc, out = taper(d, "doctor", "--timeout", "20" if way == "hangs" else "100", script(d, way))
            assert rc == 1 and "fails with the backend that it names itself" in out and text in out, out
            assert "there is no backend" not in out and "Nothing fails" not in out, out


def test_ablate_runs_the_script_as_it_is():
    with tempfile.TemporaryDirectory() as d:
        for way in ("crashes", "exits"):
            rc, out = taper(d, "ablate", script(d, way))
            assert rc == 1 and "that backend is at fault" in out and "(as it is)                   fails" in out, out


def test_a_saved_graph_of_a_backend_that_is_not_there():
    """What only the program can run is no failure of the name: it is not minified to nothing."""
    with tempfile.TemporaryDirectory() as d:
        path = script(d, "crashes")
        env = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"), TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="3", TAPER_COMPILE_DEBUG_DIR=d)
        subprocess.run([sys.executable, path], cwd=d, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100)
        bundle, = glob.glob(os.path.join(d, "taper_compile_debug", "*", "minifier"))
        rc, out = taper(d, "minify", bundle)
        assert rc and "backend 'backend' is a Python function of the program" in out and "minifier_launcher.py" in out, out
        assert not glob.glob(os.path.join(bundle, "minimal", "*"))
        rc, out = taper(d, "bisect", bundle)
        assert "a Python function of the program, and fails with none of these" in out, out
