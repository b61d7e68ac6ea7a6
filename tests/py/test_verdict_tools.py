"""(sanitize: skip, it starts the program that was built without) What taper doctor is made of: limited regions, the audit of eager
execution, the quarantine, what a process was doing when it died, bisecting a program."""
import os
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
STEPS = """
import taper
scale = 4.0
@taper.compile
def f(x):
    h = x * scale
    return h + 1
x = taper.ones(2)
print(f(x).tolist(), f(x).tolist())
scale = 2.0
print(f(x).tolist())
"""


def run(program, argv=None, cwd=None, **env):
    """stdout, stderr, exit status of the program in a directory of its own."""
    with tempfile.TemporaryDirectory() as own:
        d = cwd or own
        with open(os.path.join(d, "prog.py"), "w") as f:
            f.write(program)
        full = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        full.update(env, PYTHONPATH=os.path.join(ROOT, "python"))
        p = subprocess.run(argv or [sys.executable, "prog.py"], cwd=d, env=full, capture_output=True, text=True, timeout=120)
        return p.stdout, p.stderr, p.returncode


def lines_of(path):
    with open(path) as f:
        return f.read().splitlines()


def test_uses_of_regions_are_logged_and_limited():
    with tempfile.TemporaryDirectory() as d:
        log = os.path.join(d, "log")
        plain = run(STEPS)[0]
        for spec, want in (("9", ["1 new", "2 hit", "3 new"]), ("2", ["1 new", "2 hit"]), ("0", []), ("2!", ["1 new", "2 new"]), ("1+2", ["1 new"])):
            if os.path.exists(log):
                os.remove(log)
            out, err, rc = run(STEPS, TAPER_REGIONS=spec, TAPER_REGIONS_LOG=log)
            assert rc == 0 and out == plain, (spec, out, err)
            got = lines_of(log) if os.path.exists(log) else []
            assert [" ".join(g.split()[:2]) for g in got] == want, (spec, got)
            assert all(" f " in g and "prog.py:" in g for g in got), got


def audit(program):
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "audit")
        out, err, rc = run(program, TAPER_AUDIT=path, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4", TAPER_COMPILE_DEBUG_DIR=d)
        assert rc == 0, (out, err)
        return lines_of(path) if os.path.exists(path) else []


def test_eager_execution_that_is_right_passes_the_audit():
    """Kinks, ties, zeros, paddings and large sums are no faults."""
    assert not audit("""
import taper, taper.nn.functional as F
taper.manual_seed(0)
@taper.compile
def f(x, w, idx):
    h = x @ w
    a = F.relu(h - h.amax(1, keepdim=True)) + taper.clamp(x, -1, 1).sum() + x.abs().amax() + F.max_pool1d(h[None], 2).sum() + taper.floor(h).sum()
    e = F.embedding(idx, w, padding_idx=0).sum() + taper.where(x > 0, x, 0).sum() + (x * 0).norm() + F.dropout(h, 0.5, True).sum() + h.round().sum()
    return a.sum() + e + h.sort(1)[0].cumsum(1).std() + F.layer_norm(h, (4,)).softmax(0).sum() + F.gelu(h).prod(1).sum() + h.logsumexp(0).sum()
x = taper.cat([taper.randn(300, 5), taper.zeros(3, 5), taper.ones(3, 5)]).requires_grad_()
w = taper.randn(5, 4).requires_grad_()
f(x, w, taper.tensor([0, 1, 0, 2])).backward()
""")


def test_a_quarantine_is_obeyed_for_its_version_alone():
    program = """
import os, taper
f = taper.compile(lambda x: (x * 2).sum())
print(float(f(taper.ones(3))), os.environ.get("TAPER_EMITTER"), len(taper._dynamo.utils.counters) >= 0)
"""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "taper_quarantine")
        for version, obeyed in (("0.1.0", True), ("0.0.0", False)):
            with open(path, "w") as f:
                f.write(f"taper {version}\nrefuse fuse:mul@prog.py:3\nset TAPER_EMITTER=interpreter\nset PATH=nothing\n")
            out, err, rc = run(program, cwd=d)
            assert rc == 0 and out.startswith("6.0 " + ("interpreter" if obeyed else "None")), (out, err)
            assert ("is obeyed: 1 rewrite refused, 1 setting" in err) == obeyed and ("another version" in err) == (not obeyed), err
        os.remove(path)
        out, err, rc = run(program, cwd=d)
        assert rc == 0 and not err, (out, err)


def test_what_a_process_was_doing_outlives_it():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "crumbs")
        for fault, stage in (("relu:segv@gen", "kernel"), ("relu:segv@aot", "autograd stage")):
            out, err, rc = run("import taper\ntaper.compile(lambda x: taper.relu(x).sum())(taper.ones(3))\n", TAPER_CRUMBS=path, TAPER_INJECT=fault)
            assert rc < 0, (rc, err)
            with open(path, "rb") as f:
                n, name = struct.unpack_from("Q40s", f.read())
            assert n and name.split(b"\0")[0].decode() == stage, (fault, n, name)


def test_a_program_is_bisected():
    wrong = """
import taper
@taper.compile
def f(x):
    y = x + 1
    z = taper.relu(y)
    return z * 2
print(f(taper.ones(2)).tolist())
"""
    for how in (["--oracle", "grep -qF '[4.0'"], ["--expect", "want"]):
        with tempfile.TemporaryDirectory() as d:
            with open(os.path.join(d, "want"), "w") as f:
                f.write("[4.0, 4.0]\n")
            out, err, rc = run(wrong, argv=[TAPER, "bisect", "prog.py", *how], cwd=d, TAPER_INJECT="relu:accuracy@capture")
            assert rc == 0 and out.startswith("the fault is in capture: an instruction of `f` (CALL)") and "z = taper.relu(y)" in out, (out, err)
    out, err, rc = run(STEPS, argv=[TAPER, "bisect", "prog.py", "--oracle", "true"])
    assert rc == 2 and "right as it is" in err, (out, err)
