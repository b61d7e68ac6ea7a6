"""(sanitize: skip, it starts the program that was built without) The audit of what runs outside of graphs and of what derivatives consist
of, roundings of somebody's choice, sizes that are no symbols, and runs that end by themselves or not at all."""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")


def run(program, argv=None, **env):
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "prog.py"), "w") as f:
            f.write(program)
        full = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        full.update(env, PYTHONPATH=os.path.join(ROOT, "python"), TAPER_CACHE_DIR=os.path.join(d, "cache"))
        p = subprocess.run(argv or [sys.executable, "prog.py"], cwd=d, env=full, capture_output=True, text=True, timeout=300)
        return p.stdout, p.stderr, p.returncode


def audit(program):
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "audit")
        out, err, rc = run(program, TAPER_AUDIT=path, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4", TAPER_COMPILE_DEBUG_DIR=d)
        assert rc == 0, (out, err)
        return open(path).read().splitlines() if os.path.exists(path) else []


COMPOSITES = """
import taper, taper.nn.functional as F
taper.manual_seed(0)
R = taper.randn
x, y, img = R(4, 3), R(4, 3), R(2, 8, 4, 6)
fns = [lambda: taper.outer(R(3), R(4)), lambda: taper.addr(R(3, 4), R(3), R(4), beta=0.5, alpha=2), lambda: taper.addmv(R(3), R(3, 4), R(4), beta=0.5),
       lambda: taper.addbmm(R(3, 5), R(2, 3, 4), R(2, 4, 5), alpha=2), lambda: taper.trace(R(3, 5)), lambda: taper.vdot(R(4), R(4)),
       lambda: taper.inner(R(2, 4), R(3, 4)), lambda: taper.linalg.vecdot(x, y), lambda: taper.linalg.vecdot(x, y, dim=0), lambda: taper.kron(R(2, 3), R(3, 2)),
       lambda: taper.kron(R(2), R(2, 3)), lambda: taper.cross(x, y), lambda: taper.linalg.cross(x, y), lambda: taper.cross(R(3, 4), R(3, 4), dim=0),
       lambda: F.bilinear(R(5, 3), R(5, 4), R(2, 3, 4), R(2)), lambda: taper.cdist(x, R(5, 3)), lambda: taper.cdist(x, R(5, 3), p=1.0),
       lambda: taper.cdist(R(2, 4, 3), R(2, 5, 3), p=float("inf")), lambda: F.pdist(x), lambda: F.pairwise_distance(x, y), lambda: taper.dist(x, y, 3),
       lambda: F.cosine_similarity(x, y), lambda: F.cosine_similarity(x, y, dim=0), lambda: F.pixel_shuffle(img, 2), lambda: F.pixel_unshuffle(img, 2),
       lambda: F.channel_shuffle(img, 4), lambda: taper.tile(x, (2, 3)), lambda: taper.tile(x, (2, 1, 2)), lambda: taper.rot90(x), lambda: taper.rot90(x, 2),
       lambda: taper.rot90(img, -1, [2, 3]), lambda: F.instance_norm(img, weight=R(8), bias=R(8)), lambda: taper.view_as_real(taper.polar(x.abs(), y)),
       lambda: taper.view_as_real(taper.complex(x, y)), lambda: F.fractional_max_pool2d(img, 2, output_size=(2, 3)), lambda: taper.arange(5, dtype=taper.uint8).sum(),
       lambda: taper.ones(3, dtype=taper.bool).cumsum(0), lambda: taper.arange(4, dtype=taper.int16).prod()]
for f in fns:
    taper.compile(f)()
"""


def test_the_audit_knows_composites():
    assert audit(COMPOSITES) == []


OUTSIDE = """
import taper, taper.nn.functional as F
taper.manual_seed(0)
x = taper.randn(6, 5, requires_grad=True)
w = taper.randn(5, 4, requires_grad=True)
net = taper.nn.Sequential(taper.nn.Conv2d(3, 4, 3, padding=1), taper.nn.BatchNorm2d(4), taper.nn.ReLU(), taper.nn.MaxPool2d(2), taper.nn.Flatten(), taper.nn.Linear(64, 3))
opt = taper.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for _ in range(3):
    opt.zero_grad()
    F.cross_entropy(net(taper.randn(2, 3, 8, 8)), taper.tensor([0, 2])).backward()
    opt.step()
y = F.layer_norm(x, (5,)).pow(3).sum() + F.gelu(x @ w).sum() + x.var() + x.softmax(1).log().sum()
g, = taper.autograd.grad(y, x, create_graph=True)
g.square().sum().backward()
z = taper.arange(120).view(2, 3, 4, 5)
for i in (z[0], z[..., 0], z[:, 1:, ..., ::2], z[None, 1, -1], z[1, ..., None], z[-1, :, 5:], z[...], z[0, 0, 0, 0], z[:, None, 2:1], z[..., 1:3, None, :]):
    i.sum()
with taper.autocast("cpu", dtype=taper.bfloat16):
    lin = taper.nn.Linear(5, 2)
    F.mse_loss(lin(x), taper.zeros(6, 2)).backward()
    (x @ w).sum() + F.conv1d(taper.randn(1, 2, 8), taper.randn(3, 2, 3)).sum()
taper.rand(5), taper.randn(3, dtype=taper.float64), taper.randint(0, 5, (4,)), taper.bernoulli(taper.full((9,), 0.3)), taper.randperm(6), F.dropout(x, 0.5)
h = taper.randn(40, 72).bfloat16().requires_grad_()
(h @ taper.randn(72, 48).bfloat16()).float().square().sum().backward()
"""


def test_the_audit_of_calls_outside_of_graphs_raises_no_alarm():
    assert audit(OUTSIDE) == []


def test_types_that_meet_are_no_alarm():
    """-1 beside bytes without a sign is 255, and a float64 without dimensions is compared as float32."""
    assert audit("""
import taper
x = taper.tensor([1, 200, 255], dtype=taper.uint8)
f = taper.compile(lambda x, y: (x // -1, x.clamp(min=-1), taper.maximum(x, taper.tensor(-1).to(taper.uint8)), y > taper.tensor(0.1, dtype=taper.float64), y == 0.1, y[0] == 0.1, y[0] > 0.1, y <= 0.2, y[0] < taper.tensor(0.1, dtype=taper.float64)))
f(x, taper.tensor([0.1, 0.2, 0.05]))
""") == []


def test_an_audit_of_large_values_is_no_hang():
    """What takes long says that it goes on: no moment of it looks like the end."""
    import struct
    import time
    with tempfile.TemporaryDirectory() as d:
        crumbs = os.path.join(d, "crumbs")
        with open(os.path.join(d, "prog.py"), "w") as f:
            f.write("import taper\nf = taper.compile(lambda q: (q @ q.transpose(-1, -2)).softmax(-1) @ q)\n"
                    "f(taper.randn(1, 512, 16, requires_grad=True)).sum().backward()\n")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        env.update(PYTHONPATH=os.path.join(ROOT, "python"), TAPER_CRUMBS=crumbs, TAPER_AUDIT=os.path.join(d, "audit"), TAPER_REPRO_AFTER="dynamo",
                   TAPER_REPRO_LEVEL="4", TAPER_COMPILE_DEBUG_DIR=d)
        p, seen = subprocess.Popen([sys.executable, "prog.py"], cwd=d, env=env), set()
        while p.poll() is None:
            try:
                with open(crumbs, "rb") as f:
                    b = f.read(48)
                seen.add((struct.unpack("Q", b[:8])[0], b[8:].split(b"\0")[0]))
            except (OSError, struct.error):
                pass
            time.sleep(0.002)
        with open(crumbs, "rb") as f:
            last = struct.unpack("Q", f.read(8))[0]
        assert p.returncode == 0 and last > 300, (p.returncode, last, len(seen))


def test_random_numbers_go_on_where_the_audit_began():
    program = "import taper\ntaper.manual_seed(3)\nprint(taper.rand(3).tolist(), taper.randn(3, dtype=taper.float64).tolist(), taper.randn(5).tolist())\n"
    with tempfile.TemporaryDirectory() as d:
        assert run(program)[0] == run(program, TAPER_AUDIT=os.path.join(d, "a"), TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4")[0]


SIZES = """
import taper
seen = []
def backend(gm, inputs):
    seen.append(sum(type(s) is not int for t in inputs for s in getattr(t, "shape", ())) + sum(not hasattr(t, "shape") for t in inputs))
    return gm.forward
f = taper.compile(lambda x: x * x.shape[0], backend=backend, dynamic=True)
print([f(taper.ones(n)).sum().item() for n in (3, 5, 7)], len(seen))
"""


def test_sizes_are_no_symbols_when_told():
    assert run(SIZES)[0].split() == ["[9.0,", "25.0,", "49.0]", "1"]
    assert run(SIZES, TAPER_STATIC_SIZES="1")[0].split() == ["[9.0,", "25.0,", "49.0]", "3"]


JIGGLE = """
import taper
x = taper.tensor([0.1, 0.2, 0.3, 0.7]); n = taper.arange(4.0)
print((x * 3.3).tolist(), (n * 2).tolist(), x[1:].tolist(), x.to(taper.float64).tolist())
"""


def test_other_roundings_move_what_was_rounded_and_nothing_else():
    def numbers(**env):
        out, err, rc = run(JIGGLE, **env)
        assert rc == 0, err
        return eval("[" + out.replace("] [", "], [") + "]")
    plain, one, two = numbers(), numbers(TAPER_JIGGLE="1"), numbers(TAPER_JIGGLE="2")
    assert plain == numbers(TAPER_JIGGLE="0")
    assert one[1] == plain[1] and one[2] == plain[2], (plain, one)  # whole numbers and views
    assert one[0] != plain[0] and one[0] != two[0], (plain, one, two)
    assert all(abs(p - q) <= abs(p) * 2 ** -22 for p, q in zip(plain[0], one[0]))


def doctor(program, *options):
    out, err, rc = run(program, [TAPER, "doctor", "--json", *options, "prog.py"])
    return rc, json.loads(out), err


def test_a_program_that_does_not_end_by_itself_is_not_blamed():
    rc, said, err = doctor("import taper\nprint(taper.ones(2))\nwhile True:\n    pass\n", "--timeout", "3")
    assert rc == 2 and said["status"] == "could not decide" and not said["operators"], (said, err)


def test_a_program_that_ends_itself_is_not_blamed():
    rc, said, err = doctor("import os, taper\nprint(taper.ones(2).sum(), flush=True)\nos.abort()\n")
    assert rc in (0, 2) and not said["operators"], (said, err)


