"""(sanitize: skip, it starts the program that was built without) --json of every command that looks at a failure: one object on stdout, progress on stderr."""
import glob
import json
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
print(f(taper.arange(12).view(3, 4).float().sin(), taper.arange(20).view(4, 5).float().cos())[0].sum().item() > 0)
"""


def env(**more):
    return dict({k: v for k, v in os.environ.items() if not k.startswith("TAPER_")}, PYTHONPATH=os.path.join(ROOT, "python"), **more)


def run(*args, code=0, cwd=None, **more):
    p = subprocess.run([TAPER, *args], capture_output=True, text=True, timeout=120, cwd=cwd, env=env(**more))
    assert p.returncode == code, p
    return json.loads(p.stdout)


def refused(*args):
    p = subprocess.run([TAPER, *args], capture_output=True, text=True, timeout=60, env=env())
    assert p.returncode == 2 and not p.stdout, p
    return p.stderr


def test_a_saved_failure():
    with tempfile.TemporaryDirectory() as d:
        subprocess.run([sys.executable, "-c", PROG], cwd=d, capture_output=True, timeout=60, env=env(TAPER_INJECT="relu:accuracy@fuse", TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4"))
        (bundle,) = glob.glob(os.path.join(d, "taper_compile_debug", "*", "minifier"))
        again = run("repro", bundle, "--json", "--ledger", code=1)
        assert again["recorded"]["failure"] == again["here"]["failure"] == "accuracy" and again["same"] is True and "(worse)" in again["ledger"], again
        stages = run("ablate", "--json", bundle, code=1)
        assert [r["backend"] for r in stages["runs"]] == ["eager", "aot_eager", "aot_eager_decomp_partition", "inductor"] and stages["backend"] == "inductor", stages
        assert [r["result"] for r in stages["runs"]] == ["passes"] * 3 + ["fails"] and stages["runs"][3]["message"] and stages["fault"] is None
        found = run("bisect", "--json", bundle)
        assert found["passes_without_them"] and found["rewrites"] > 0 and found["culprits"][0][0].startswith("fuse:"), found
        small = run("minify", bundle, "--json", cwd=d)
        assert small["failure"] == "accuracy" and small["after"] < small["before"] and "relu" in small["graph"], small
        assert small["fresh_processes"] == small["failing"] == 3 and os.path.exists(os.path.join(d, small["folder"], "graph.py"))
        assert "one build each" in refused("bisect", "--json", bundle, "--versions", "a,b")


def test_a_program():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "p.py")
        with open(path, "w") as f:
            f.write(PROG)
        well = run("ablate", "--json", path)
        assert [r["backend"] for r in well["runs"]][:2] == ["(not compiled)", "(as it is)"] and well["stage"] is None and all(r["result"] == "runs" for r in well["runs"]), well
        ill = run("ablate", "--json", path, code=1, TAPER_INJECT="relu:compile_error@aot")
        assert ill["backend"] == "aot_eager" and ill["runs"][1]["message"], ill
        assert "a script prints" in refused("repro", "--json", path) and "--json is for saved failures" in refused("minify", "--json", path)


def test_the_cache():
    with tempfile.TemporaryDirectory() as d:
        subprocess.run([sys.executable, "-c", PROG], capture_output=True, timeout=60, env=env(TAPER_CACHE_DIR=d))
        kept = run("cache", "ls", "--json", TAPER_CACHE_DIR=d)
        gone = run("cache", "clear", "--json", TAPER_CACHE_DIR=d)
        assert gone["removed"] == len(kept["entries"]) > 0 and gone["bytes"] == kept["bytes"] and gone["folder"] == kept["folder"]
        assert run("cache", "clear", "--json", TAPER_CACHE_DIR=d)["removed"] == 0
        assert "did you mean" in refused("cache", "clear", "--jsn").lower()
