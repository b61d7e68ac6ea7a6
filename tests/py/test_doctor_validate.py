"""(sanitize: skip, it starts the program that was built without) Every rewrite validated where it is made, and the first version that fails."""
import os
import stat
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
MODEL = """
import taper
@taper.compile
def f(x, w):
    return taper.cos(taper.relu(x @ w)).sum()
x = taper.ones(4, 4)
print(float(f(x, x)), float(f(x, x + 1)))
"""


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
    env.update(more, PYTHONPATH=os.path.join(ROOT, "python"))
    return env


def run(program, **env):
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "prog.py"), "w") as f:
            f.write(program)
        p = subprocess.run([sys.executable, "prog.py"], cwd=d, env=environment(**env), capture_output=True, text=True, timeout=300)
        return p.stdout, p.stderr, p.returncode, sorted(os.listdir(d))


def test_a_program_that_is_right_validates():
    plain = run(MODEL)
    out, err, rc, files = run(MODEL, TAPER_VALIDATE="1")
    assert rc == 0 and out == plain[0] and files == ["prog.py"], (out, err, files)


def test_the_rewrite_that_changes_a_value_is_named():
    out, err, rc, files = run(MODEL, TAPER_VALIDATE="1", TAPER_INJECT="relu:accuracy@fuse")
    assert rc == 1 and "AccuracyError" in err and "fuse:relu@prog.py:5 (compute two loops in one kernel) changes what it gives" in err and "eager" in err, err
    assert files == ["prog.py"], files


def test_what_is_wrong_before_any_rewrite():
    out, err, rc, _ = run(MODEL, TAPER_VALIDATE="1", TAPER_INJECT="relu:accuracy@aot")
    assert rc == 1 and "it is wrong before any optional rewrite" in err, err


def program_at(path, fails):
    """Stands for taper repro: exit code 1 when it fails."""
    os.makedirs(path)
    name = os.path.join(path, "taper")
    with open(name, "w") as f:
        f.write(f"#!/bin/sh\nexit {int(fails)}\n")
    os.chmod(name, os.stat(name).st_mode | stat.S_IXUSR)


def test_the_first_build_that_fails():
    with tempfile.TemporaryDirectory() as d:
        for i in range(7):
            program_at(os.path.join(d, f"b{i}"), i >= 5)
        os.remove(os.path.join(d, "b3", "taper"))
        bisect = lambda *names: subprocess.run([TAPER, "bisect", "bundle", "--versions", ",".join(names)], cwd=d, env=environment(), capture_output=True, text=True, timeout=60)
        p = bisect(*(f"b{i}" for i in range(7)))
        assert p.returncode == 0 and "the first version that fails: b5\n" in p.stdout and "could not" not in p.stdout, (p.stdout, p.stderr)
        assert bisect("b5", "b6").returncode == 2 and bisect("b0", "b1").returncode == 2 and bisect("b0").returncode == 2


def test_the_first_commit_that_fails():
    with tempfile.TemporaryDirectory() as d:
        git = lambda *a: subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *a], cwd=d, check=True, capture_output=True, text=True).stdout.strip()
        git("init", "-q")
        made = []
        for i in range(5):
            with open(os.path.join(d, "state"), "w") as f:
                f.write(f"exit {int(i >= 3)}\n# {i}\n")
            git("add", "state")
            git("commit", "-qm", f"step {i}")
            made.append(git("rev-parse", "HEAD"))
        build = "mkdir -p build && (echo '#!/bin/sh'; cat state) > build/taper && chmod +x build/taper"
        p = subprocess.run([TAPER, "bisect", "bundle", "--versions", f"{made[0]}..{made[4]}", "--build", build], cwd=d, env=environment(), capture_output=True, text=True, timeout=60)
        assert p.returncode == 0 and f"the first version that fails: {made[3]}" in p.stdout and "step 3" in p.stdout, (p.stdout, p.stderr)
        assert git("worktree", "list").count("\n") == 0 and not git("status", "--porcelain"), git("worktree", "list")
