"""(sanitize: skip, it starts the program that was built without) What taper doctor is made of: limited regions, the audit of eager
execution, the quarantine, what a process was doing when it died, bisecting a program."""
import json
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


OPERATORS = """
import taper, taper.nn.functional as F
taper.manual_seed(1)
R = lambda *s: taper.randn(*s)
x = R(4, 6, 5); y = R(4, 6, 5); m = R(6, 5); img = R(2, 4, 6, 8)
lab = taper.tensor([0, 2, 4, 1]); logits = R(4, 5); w5 = R(5).abs()
@taper.compile
def losses(p, q, pos):
    a = F.binary_cross_entropy(taper.sigmoid(p), taper.sigmoid(q), weight=pos) + F.binary_cross_entropy_with_logits(p, taper.sigmoid(q), pos_weight=pos)
    a = a + F.kl_div(F.log_softmax(p, -1), F.softmax(q, -1), reduction="sum") + F.kl_div(F.log_softmax(p, -1), F.log_softmax(q, -1), log_target=True)
    a = a + F.soft_margin_loss(p, taper.sign(q)) + F.hinge_embedding_loss(p, taper.sign(q)) + F.margin_ranking_loss(p, q, taper.sign(p), margin=0.3)
    a = a + F.poisson_nll_loss(p, q.abs() * 3, full=True) + F.poisson_nll_loss(p.abs(), q.abs(), log_input=False, reduction="sum")
    return a
@taper.compile
def cls(lg, t, w):
    a = F.cross_entropy(lg, t) + F.cross_entropy(lg, t, weight=w, label_smoothing=0.1) + F.cross_entropy(lg, t, reduction="sum", ignore_index=2)
    return a + F.nll_loss(F.log_softmax(lg, 1), t, weight=w) + F.cross_entropy(lg, t, reduction="none").sum()
@taper.compile
def norms(x, w, b):
    a = F.layer_norm(x, (5,), w, b) + F.layer_norm(x, (6, 5)).sum() + F.rms_norm(x, (5,), w, 1e-5)
    a = a + F.group_norm(x, 3).sum() + x.var() + x.std(1, keepdim=True) + x.var((0, 2), unbiased=False).sum() + x.norm(dim=1).sum() + x.norm(3) + taper.linalg.vector_norm(x, float("inf"), dim=-1).sum() + taper.linalg.vector_norm(x, 1)
    return a
@taper.compile
def lines(x):
    a = x.cumsum(1) + x.cumprod(2) + x.sort(1)[0] + x.sort(2, descending=True)[0]
    return a + x.topk(2, dim=1)[0].sum() + x.round().mode(2)[0].sum() + x.median(1)[0].sum() + x.max(1)[0].sum() + x.min(2)[0].sum()
@taper.compile
def moves(x, i):
    a = x.flip(0, 2).sum(0) + x.roll(2, 1).sum(0) + x.roll(3).sum(0) + x.repeat(2, 1, 1).sum(0) + F.pad(x, (1, 2, 0, 1), value=2.0).sum()
    a = a + F.pad(x, (2, 1), mode="reflect").sum() + F.pad(x, (2, 1), mode="replicate").sum() + x.tril(1).sum(0) + x.triu(-1).sum(0)
    a = a + x.gather(0, i).sum() + x.index_select(1, taper.tensor([3, 0, 3])).sum() + F.embedding(taper.tensor([[1, 0], [3, 3]]), x[0]).sum()
    return a + taper.cat([x, x * 2, x[:1]], 0).sum(0) + taper.stack([x, x + 1], 1).sum((0, 1)) + F.glu(x[..., :4], -1).sum()
@taper.compile
def wins(v):
    return F.max_pool2d(v, 2) .sum() + F.max_pool2d(v, 3, stride=2, padding=1).sum() + F.avg_pool2d(v, 3, stride=2, padding=1).sum() + F.avg_pool2d(v, 2, padding=1, count_include_pad=False).sum() + F.avg_pool2d(v, 3, ceil_mode=True, stride=2).sum() + F.max_pool2d(v, 3, stride=2, dilation=2, ceil_mode=True).sum()
@taper.compile
def prods(x, m, q):
    a = x @ m.t() + taper.bmm(x, y.transpose(1, 2)) + F.linear(x, m, taper.ones(6)) + taper.addmm(taper.ones(6), m, m.t(), beta=0.5, alpha=2)
    return a.sum() + F.scaled_dot_product_attention(q, q, q).sum() + F.scaled_dot_product_attention(q, q, q, is_causal=True).sum() + taper.baddbmm(taper.ones(4, 6, 6), x, y.transpose(1, 2)).sum()
bn = taper.nn.BatchNorm2d(4); cbn = taper.compile(bn)
for _ in range(2): out = cbn(img)
bn.eval(); out2 = cbn(img)
for t in (x, y, m, logits): t.requires_grad_()
s = losses(x, y, w5) + cls(logits, lab, w5) + norms(x, w5, w5).sum() + lines(x).sum() + moves(x, taper.randint(0, 4, (4, 6, 5))).sum() + wins(img) + prods(x, m, img)
s.backward()
z = taper.zeros(5, requires_grad=True); k = taper.compile(lambda z: (z ** 2 + (z + 0.5) ** taper.tensor([2., 1., 0., 3., 2.]) + taper.sinc(z) + z.abs().sqrt().sum()*0 + F.softplus(z) + F.gelu(z) + taper.xlogy(z, taper.ones(5)) + z.norm() + F.normalize(z, dim=0)).sum()); k(z).backward()
print(s.item(), bn.running_var.sum())
"""


def test_the_audit_knows_losses_norms_moves_windows_and_products():
    """Their meaning is written down twice, in C of its own and in the kernels: here they agree."""
    assert audit(OPERATORS) == []


def test_a_quarantine_names_functions_that_run_as_written():
    program = """
import taper
@taper.compile(fullgraph=True)
def f(x):
    return x.sin() * 2
class Net(taper.nn.Module):
    def forward(self, x):
        return x.cos() + 1
class Other(Net):
    pass
x = taper.ones(2)
a, b, c = f(x), taper.compile(Net())(x), taper.compile(taper.nn.ReLU())(x)
print(a.tolist() == (x.sin() * 2).tolist(), taper._dynamo.utils.counters["stats"]["unique_graphs"])
"""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "taper_quarantine")
        for skipped, graphs in (([], 3), (["f@prog.py:3"], 2), (["Net.forward@prog.py:7"], 2), (["f@prog.py:3", "Net.forward@prog.py:7"], 1), (["f@prog.py:4"], 3)):
            with open(path, "w") as f:
                f.write("taper 0.1.0\n" + "".join(f"skip {s}\n" for s in skipped))
            out, err, rc = run(program, cwd=d)
            assert rc == 0 and out.split() == ["True", str(graphs)], (skipped, out, err)
            assert (f"{len(skipped)} function" in err) == bool(skipped), err


def test_a_capture_fault_has_a_work_around_that_works():
    program = "import taper\n@taper.compile\ndef f(x):\n    return taper.relu(x - 1) + 1\nprint(f(taper.ones(2) * 3).tolist())\n"
    with tempfile.TemporaryDirectory() as d:
        out, err, rc = run(program, argv=[TAPER, "doctor", "--json", "prog.py"], cwd=d, TAPER_INJECT="relu:accuracy@capture")
        said = json.loads(out)
        assert rc == 1 and said["stage"].startswith("capture") and "`f@prog.py:2` runs as it is written" in (said["workaround"] or ""), out
        name, value = said["workaround"].split(" (")[0].split("=")
        out, err, rc = run(program, cwd=d, TAPER_INJECT="relu:accuracy@capture", **{name: value})
        assert rc == 0 and out.strip() == "[3.0, 3.0]", (out, err)


def test_a_crash_between_compiled_functions_blames_no_kernel():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "crumbs")
        out, err, rc = run("import os, taper\nf = taper.compile(lambda x: x.sin() * 2)\nf(taper.ones(3))\nos.kill(os.getpid(), 11)\n", TAPER_CRUMBS=path)
        assert rc == -11, (rc, err)
        with open(path, "rb") as f:
            stage, function = struct.unpack_from("8x40s120x160s", f.read())
        assert stage.split(b"\0")[0] == b"program" and function.split(b"\0")[0] == b"<lambda>@prog.py:2", (stage, function)


def test_looking_at_a_process_does_not_change_how_it_fails():
    program = "import taper\nprint(taper.compile(lambda x: taper.relu(x) * 2)(taper.ones(3)).tolist())\n"
    with tempfile.TemporaryDirectory() as d:
        for env in ({}, {"TAPER_CRUMBS": os.path.join(d, "crumbs")}):
            out, err, rc = run(program, TAPER_INJECT="relu:compile_error@lower", TAPER_CACHE="0", **env)
            assert rc == 1 and "BackendCompilerFailed" in err, (env, out, err)


def test_a_saved_failure_keeps_the_options_of_its_compile():
    program = """
import taper
@taper.compile(options={"emitter": "interpreter"})
def f(x):
    return taper.relu(x * 2)
f(taper.ones(3))
"""
    with tempfile.TemporaryDirectory() as d:
        out, err, rc = run(program, TAPER_INJECT="relu:accuracy@lower", TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4", TAPER_COMPILE_DEBUG_DIR=d)
        assert rc != 0 and "AccuracyError" in err, (out, err)
        found = [os.path.join(at, "failure.json") for at, _, names in os.walk(d) if "failure.json" in names]
        with open(found[0]) as f:
            assert json.load(f)["options"] == "emitter=interpreter"
        table, err, rc = run(program, argv=[TAPER, "repro", "--ledger", os.path.dirname(found[0])])
        rows = {line.split("|")[1].strip(): line.split("|")[3:5] for line in table.splitlines() if line.startswith("| ")}
        assert rc == 1 and [float(x) for x in rows["mul"]] == [0, 0] and float(rows["relu **(worse)**"][1]) > 0.1, (table, err)
    logs = [run(program, TAPER_LOGS="kernel_code", TAPER_CACHE="0", **env)[1] for env in ({}, {"TAPER_EMITTER": "x64"})]
    assert ["(0 bytes of code" in log for log in logs] == [True, False], logs  # it speaks of every compile


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
