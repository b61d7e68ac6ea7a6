"""(sanitize: skip, it starts the program that was built without) taper doctor: its verdict, its exit code, and what it leaves behind."""
import json
import os
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
MODEL = """
import taper
@taper.compile
def f(x, w):
    return taper.cos(taper.relu(x @ w)).sum()
print("begin")
print("loss", float(f(taper.ones(4, 4), taper.ones(4, 4))))
"""


def doctor(program, *before, fault=None, options=("--json",)):
    """Exit code, the JSON, and the names in the user's directory afterwards."""
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "prog.py"), "w") as f:
            f.write(program)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        env["PYTHONPATH"] = os.path.join(ROOT, "python")
        if fault:
            env["TAPER_INJECT"] = fault
        p = subprocess.run([TAPER, "doctor", *options, *before, "prog.py"], cwd=d, env=env, capture_output=True, text=True, timeout=300)
        scripts = [os.path.relpath(os.path.join(at, n), d) for at, _, names in os.walk(d) for n in names if n == "repro.py"]
        try:
            said = json.loads(p.stdout)
        except ValueError:
            said = p.stdout
        return p.returncode, said, (sorted(os.listdir(d)), scripts), p.stderr


def test_a_program_that_is_well():
    rc, said, (names, scripts), err = doctor(MODEL)
    assert rc == 0 and said["status"] == "nothing wrong" and said["wrong"] is None, (said, err)
    assert names == ["prog.py", "taper_doctor"] and not scripts, (names, scripts)


def test_other_numbers_are_noticed_and_explained():
    rc, said, (names, scripts), err = doctor(MODEL, fault="relu:accuracy@fuse")
    assert rc == 1 and said["wrong"].startswith("the program prints other numbers compiled: line 2: "), (said, err)
    assert "(eager)" in said["prints"] and "fusion" in said["stage"] and "relu" in said["operators"], said
    assert "prog.py:5" in said["line"] and said["rewrites"].startswith("fuse:relu"), said
    assert names == ["prog.py", "taper_doctor"] and scripts == ["taper_doctor/repro.py"], (names, scripts)


def test_the_verdict_comes_first():
    rc, said, _, err = doctor(MODEL, fault="relu:accuracy@fuse", options=())
    assert rc == 1 and said.splitlines()[0].startswith("Fault found: the program prints other numbers compiled: line 2: "), (said, err)


def test_what_differs_by_itself_is_no_fault():
    rc, said, _, err = doctor("""
import os, random, sys, tempfile, time, taper
start = time.time()
@taper.compile
def f(x):
    return (x * 2).sum()
print(f(taper.ones(3)), object(), tempfile.mkdtemp(), random.random(), os.getpid())
print(f"took {time.time() - start:.1f} s")
print("value", float(f(taper.rand(3))))
print(*["now and then"] * (os.getpid() % 97), sep="\\n")
""")
    assert rc == 0, (said, err)


SEEDED = """
import taper, taper.nn.functional as F
@taper.compile
def f(x):
    return (F.dropout(x, 0.5, True) * 0.3 + taper.relu(x)).sum()
taper.manual_seed(0)
print(float(f(taper.arange(50.0))))
"""


def test_draws_for_one_seed_are_no_fault_and_hide_none():
    rc, said, _, err = doctor(SEEDED)
    assert rc == 0, (said, err)
    rc, said, _, err = doctor(SEEDED, fault="relu:accuracy@fuse")
    assert rc == 1 and "relu" in said["operators"], (said, err)


def test_only_the_compiled_one_prints_something_else():
    """No graph is at fault: what is compiled takes another way."""
    rc, said, _, err = doctor("""
import taper
@taper.compile
def f(x):
    return x * 3 if taper.compiler.is_compiling() else x * 2
print(f(taper.ones(2)))
""")
    assert rc == 1 and "other numbers" in said["wrong"] and "capture" in said["stage"], (said, err)


def test_a_program_that_fails_without_the_compiler():
    rc, said, _, err = doctor("raise ValueError(3)\n")
    assert rc == 2 and said["status"] == "could not decide" and "without the compiler" in said["verdict"], (said, err)
    rc, said, _, err = doctor("import taper, sys\nsys.exit(3 if float(taper.compile(lambda x: taper.relu(x).sum())(taper.ones(2))) == 2 else 0)\n", fault="relu:accuracy@fuse")
    assert rc == 1, (said, err)


def test_a_program_written_for_pytorch():
    rc, said, (names, scripts), err = doctor(MODEL.replace("taper", "torch"), "-m", "taper", fault="relu:accuracy@fuse")
    assert rc == 1 and "torch_compile_debug" in said["saved"] and "relu" in said["operators"], (said, err)
    assert names == ["prog.py", "taper_doctor"] and scripts == ["taper_doctor/repro.py"], (names, scripts)
