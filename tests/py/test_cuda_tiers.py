"""First calls of compiled functions on CUDA while their kernels are assembled. The libcuda of the tests (tests/gpu/fake_cuda.c) assembles
nothing while a file exists."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import taper
from test_cuda import FAKE, has_fake, long_under_sanitizers, run

HEAD = """
import atexit, os, sys
GATE, REFUSE = os.environ["FAKE_CUDA_GATE"], os.environ["FAKE_CUDA_REFUSE"]
atexit.register(lambda: os.path.exists(GATE) and os.remove(GATE)) # who ends waits for the assembler
def touch(name): open(name, "w").close()
def stat(name): return taper._C._cuda_stats(0)[name]
def until_taken_over(f):
    while not stat("taken_over"):
        f()
def model(x, w, b):
    h = taper.sigmoid(x @ w + b) * x
    return (h - h.mean(1, keepdim=True)) / (h.var(1, keepdim=True) + 1e-3).sqrt()
taper.manual_seed(0)
x, w, b = leaves = [t.cuda().requires_grad_() for t in (taper.randn(6, 8), taper.randn(8, 8), taper.randn(8))]
def backward(y):
    y.square().sum().backward()
    r = [v.detach().cpu() for v in (y, x.grad, w.grad, b.grad)]
    for t in leaves:
        t.grad = None
    return r
def step(f): return backward(f(x, w, b))
def same(a, b): assert all(taper.allclose(p, q, rtol=1e-4, atol=1e-5) for p, q in zip(a, b)), (a, b)
"""


def tiers(body, **env):
    if not has_fake():
        return ""
    with tempfile.TemporaryDirectory() as d:
        return run(HEAD + body, FAKE_CUDA_GATE=os.path.join(d, "gate"), FAKE_CUDA_REFUSE=os.path.join(d, "refuse"),
                   **{"TAPER_CACHE_DIR": os.path.join(d, "cache"), "TAPER_TIERS": "", **env})


def test_takes_over_between_calls():
    """A backward pass is of the tier of its forward pass."""
    tiers("""
want = step(model)
touch(GATE)
f = taper.compile(model)
for n in range(3):
    same(step(f), want)
    assert stat("first") == n + 1 and stat("taken_over") == 0, n
y = f(x, w, b)
os.remove(GATE)
until_taken_over(lambda: f(x, w, b))
first, assembled = stat("first"), stat("assembled")
same(backward(y), want)
same(step(f), want)
same(step(f), want)
assert stat("first") == first and stat("taken_over") == 1
assert stat("assembled") == assembled, "backward was begun with the first calls"
""")


def test_waits_where_operators_are_not_there_or_nothing_may_be_late():
    for env, warm in (({}, False), ({"TAPER_TIERS": "0"}, True), ({"TAPER_BISECT_SUBSYSTEM": "fuse"}, True), ({"TAPER_REPRO_AFTER": "aot"}, True),
                      ({"TAPER_CRUMBS": "/dev/null"}, True)):
        tiers(f"""
import subprocess
if {warm}:
    step(model)
touch(GATE)
opens = subprocess.Popen(["sh", "-c", "sleep 0.3; rm " + GATE]) # the compile holds the interpreter
y = step(taper.compile(model))
assert opens.wait() == 0 and stat("first") == 0, {env!r}
same(y, step(model))
""", **env)
    tiers("""
step(model)
os.environ["TAPER_TIERS"] = "1"
f = taper.compile(model, mode="max-autotune")
step(f)
assert stat("first") == 0
""")


def test_operators_of_the_disk_cache_count():
    """Another process ran the model eagerly: this one compiles nothing before the first call is done."""
    if not has_fake():
        return
    with tempfile.TemporaryDirectory() as d:
        tiers("step(model)", TAPER_CACHE_DIR=d)
        tiers("""
(x @ w + b).square().sum().backward() # products of the tests are kernels written by hand, which the first of them assembles
for t in leaves:
    t.grad = None
touch(GATE)
f = taper.compile(model)
got = step(f)
assert stat("first") == 1, stat("first")
os.remove(GATE)
same(got, step(model))
until_taken_over(lambda: f(x, w, b))
same(got, step(f))
""", TAPER_CACHE_DIR=d)


def test_refused_by_the_assembler():
    """The error shows in a call, as where compiling waits."""
    for env in ({}, {"TAPER_TIERS": "0"}):
        out = tiers("""
with taper.no_grad():
    want = model(x, w, b)
    f = taper.compile(model)
    if os.environ["TAPER_TIERS"] != "0":
        touch(GATE)
        assert taper.allclose(f(x, w, b), want)
        assert stat("first") == 1
    touch(REFUSE)
    if os.path.exists(GATE):
        os.remove(GATE)
    for n in range(2):
        try:
            while True:
                f(x, w, b)
        except Exception as e:
            print(type(e).__name__, e)
    os.remove(REFUSE)
    assert taper.allclose(f(x, w, b), want, rtol=1e-4, atol=1e-5)
    assert stat("taken_over") == (os.environ["TAPER_TIERS"] != "0")
""", **env)
        assert not out or out.count("CUDA_ERROR_INVALID_PTX") == 2, out


def test_numbers_are_those_of_compiled_code():
    tiers("""
import taper.nn.functional as F
def g(x): return F.dropout(x * 2, 0.5) + taper.rand_like(x)
x = taper.ones(40, device="cuda")
g(x)
os.environ["TAPER_TIERS"] = "0"
taper.manual_seed(3)
f = taper.compile(g)
want = [f(x).tolist() for _ in range(3)]
taper._dynamo.reset()
os.environ["TAPER_TIERS"] = "1"
touch(GATE)
taper.manual_seed(3)
f = taper.compile(lambda x: g(x))
got = [f(x).tolist()]
print("first", stat("first"))
os.remove(GATE)
while len(got) < 3:
    got.append(f(x).tolist())
assert got == want, (got[0][:5], want[0][:5])
""")


def test_writes_to_inputs():
    tiers("""
def g(x, s):
    s.add_((x * 2).sum())
    return x * s + 1
x, s = taper.ones(8, device="cuda"), taper.zeros((), device="cuda")
g(x, taper.zeros((), device="cuda"))
touch(GATE)
f = taper.compile(g)
calls = 0
while stat("taken_over") == 0:
    y = f(x, s)
    calls += 1
    assert s.item() == 16 * calls and y[0].item() == 16 * calls + 1, (calls, s, y)
    if calls == 2:
        os.remove(GATE)
assert stat("first") >= 2
""")


SHORT = """
import subprocess
def g(x):
    a, b, c, d, e = x * 2, x * 3, x + 4, x - 5, x * 6
    return (a * b * c * (d + e)).sum()
x = taper.ones(1 << 18, device="cuda")
def take_memory():
    taper.cuda.empty_cache()
    return taper.empty(int(taper.cuda.mem_get_info()[0]) - (5 << 19), dtype=taper.uint8, device="cuda")
with taper.no_grad():
    want = g(x[:8].clone()).item()
    g(x[:4].clone()), g(x)
"""


def test_short_of_memory_before():
    """Operators one by one may need more than compiled code: the first call waits."""
    tiers(SHORT + """
    held = take_memory()
    touch(GATE)
    opens = subprocess.Popen(["sh", "-c", "sleep 0.3; rm " + GATE])
    got = taper.compile(g)(x).item()
    assert opens.wait() == 0 and stat("first") == 0 and abs(got / want - (1 << 15)) < 1, (got, want, stat("first"))
""", FAKE_CUDA_MEMORY=str(1 << 26))


def test_short_of_memory_in_a_call():
    """It begins again with compiled code."""
    tiers(SHORT + """
    touch(GATE)
    f = taper.compile(g)
    assert abs(f(x).item() / want - (1 << 15)) < 1 and stat("first") == 1
    held = take_memory()
    opens = subprocess.Popen(["sh", "-c", "sleep 0.3; rm " + GATE])
    got = f(x).item()
    assert opens.wait() == 0 and stat("taken_over") == 1 and abs(got / want - (1 << 15)) < 1, (got, want)
""", FAKE_CUDA_MEMORY=str(1 << 26))


def test_models_of_the_benchmark():
    """No call waits for the assembler, which is held back; results are those of eager execution."""
    long_under_sanitizers()
    bench = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench")
    tiers(f"""
sys.path.insert(0, {bench!r})
import cuda
cases = list(cuda.cases(True))
for title, case in cases[1], cases[5]: # GPT-2 and ResNet-50, training
    f, before, over = case(taper)("eager"), stat("first"), stat("taken_over")
    values = [float(f()), float(f())]
    touch(GATE)
    f = case(taper)("compiled")
    values += [float(f()), float(f())]
    assert stat("first") == before + 2 and stat("taken_over") == over, title
    os.remove(GATE)
    while stat("taken_over") == over:
        values.append(float(f()))
    values += [float(f()), float(f())]
    assert max(values) - min(values) < 0.01 * abs(values[0]), (title, values)
""")


def test_exit_and_fork():
    """A process that ends waits for what is being assembled; a forked one says that it cannot."""
    if not has_fake():
        return
    with tempfile.TemporaryDirectory() as d:
        gate = os.path.join(d, "gate")
        e = {k: v for k, v in os.environ.items() if not k.startswith("TAPER_CUDA")}
        e.update(TAPER_CUDA_LIBRARY=FAKE, FAKE_CUDA_GATE=gate, FAKE_CUDA_REFUSE=gate + "x", TAPER_CACHE_DIR=d, TAPER_TIERS="1")
        e["PYTHONPATH"] = os.path.dirname(os.path.dirname(taper.__file__))
        closed = HEAD.replace("atexit.register", "(lambda f: f)")  # the assembler stays shut while it ends
        p = subprocess.Popen([sys.executable, "-c", "import taper\n" + closed + """
step(model)
touch(GATE)
f = taper.compile(model)
step(f)
pid = os.fork()
if not pid:
    try:
        f(x, w, b)
    except RuntimeError as e:
        print(e, flush=True)
        os._exit(0)
    os._exit(1)
assert os.waitpid(pid, 0)[1] == 0
print("leaves", flush=True)
"""], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=e)
        lines = []
        for line in p.stdout:
            lines.append(line)
            if line == "leaves\n":
                os.remove(gate)
        err = p.stderr.read()
        assert p.wait(60) == 0 and "fork" in lines[0] and lines[-1] == "leaves\n", (lines, err)


def test_recordings_wait():
    """A recording of single operators would be replayed for ever."""
    tiers("""
import subprocess
with taper.no_grad():
    want = model(x, w, b)
    touch(GATE)
    f = taper.compile(model)
    f(x, w, b)
    assert stat("first") == 1
    opens = subprocess.Popen(["sh", "-c", "sleep 0.3; rm " + GATE])
    g = taper.cuda.CUDAGraph()
    with taper.cuda.graph(g):
        y = f(x, w, b)
    assert opens.wait() == 0 and stat("first") == 1 and stat("taken_over") == 1
    g.replay()
    assert taper.allclose(y, want, rtol=1e-4, atol=1e-5)
""")


def test_log():
    out = tiers("""
step(model)
touch(GATE)
f = taper.compile(model)
step(f)
os.remove(GATE)
until_taken_over(lambda: f(x, w, b))
print(open("log").read() if os.path.exists("log") else "")
""", TAPER_LOGS="inductor", TAPER_LOGS_OUT="/dev/stdout")
    assert not out or out.count("compiled code takes over after") == 1, out


def test_a_planted_fault_changes_nothing_else():
    """Operators outside of graphs are right, first calls run on them as without the fault, and compiled code has it."""
    tiers("""
before = step(model)
assert taper.relu(x).equal(x.clamp(min=0)) and model(x, w, b).cpu().allclose(model(x.cpu(), w.cpu(), b.cpu()), rtol=1e-4, atol=1e-5)
touch(GATE)
f = taper.compile(model)
with taper.no_grad():
    want = model(x, w, b)
    assert f(x, w, b).allclose(want) and stat("first") == 1
    os.remove(GATE)
    until_taken_over(lambda: f(x, w, b))
    assert not f(x, w, b).allclose(want), "the fault is in compiled code"
same(step(model), before)
""", TAPER_INJECT="sigmoid:accuracy@gen")
