"""CUDA tensors, operators and compiled programs without a GPU: a libcuda that runs PTX on the CPU (tests/gpu/fake_cuda.c)."""
import os
import subprocess
import unittest
import sys

import taper

FAKE = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build")),
                    "libtaper_fakecuda.so")


def long_under_sanitizers():
    if os.environ.get("TAPER_SANITIZED"):
        raise unittest.SkipTest("kernels are interpreted: minutes under sanitizers")


def run(body, library=FAKE, **env):
    """The program in a process of its own, whose driver is the library. Its output. Compiled code is waited for: what runs in which call must
    not depend on time."""
    head = "import taper\nimport taper.nn.functional as F\n"
    e = {k: v for k, v in os.environ.items() if not k.startswith("TAPER_CUDA")}
    if library:
        e["TAPER_CUDA_LIBRARY"] = library
    e["TAPER_TIERS"] = "0"
    e["PYTHONPATH"] = os.pathsep.join([os.path.dirname(os.path.dirname(taper.__file__)), os.path.dirname(os.path.abspath(__file__))])
    r = subprocess.run([sys.executable, "-c", head + body], capture_output=True, text=True, env={**e, **env}, timeout=300)
    assert r.returncode == 0, r.stdout + r.stderr
    return r.stdout


def has_fake():
    if os.path.exists(FAKE):
        return True
    print("SKIP: no", FAKE)
    return False


def test_without_driver():
    out = run("""
import sys
assert not any("libcuda" in line for line in open("/proc/self/maps"))
print(taper.cuda.is_available(), taper.cuda.device_count(), taper.cuda.memory_allocated())
x = taper.ones(2)
for f in (lambda: x.cuda(), lambda: x.to("cuda:0"), lambda: taper.zeros(2, device="cuda"), lambda: taper.cuda.synchronize(),
          lambda: taper.cuda.get_device_name(), lambda: taper.set_default_device("cuda")):
    try:
        f()
        print("no error")
    except RuntimeError as e:
        assert "no NVIDIA driver" in str(e) and "device='cpu'" in str(e), e
print((x + 1).tolist())
""", "/nowhere/libcuda.so.1")
    assert out.split("\n")[:2] == ["False 0 0", "[2.0, 2.0]"], out


def test_tensors():
    if not has_fake():
        return
    out = run("""
x = taper.tensor([[1., 2.], [3., 4.]], device="cuda")
print(x, x.device, x.is_cuda, x.cpu().device, taper.cuda.memory_allocated() > 0)
y = taper.arange(6).view(2, 3).t().to("cuda", taper.float64)
print(y.stride(), y.cpu().tolist(), y[1, 0].item(), bool(y[0, 0]))
try:
    import numpy
    assert y.numpy(force=True).tolist() == y.tolist()
except ModuleNotFoundError:
    pass
print(taper.zeros(2, device="cuda").tolist(), taper.full((2,), 3, device="cuda:0").tolist(), taper.empty(2, device="cuda").shape)
try:
    x.numpy()
except TypeError as e:
    print(e)
try:
    x + taper.ones(2, 2)
except RuntimeError as e:
    print(e)
z = taper.ones(2, device="cuda").resize_(3, 2)
print("resized", z.shape, z[0].tolist())
x += taper.tensor(1.)
x[0] = 7
x.t()[1].copy_(taper.tensor([8., 9.]))
print(x.tolist(), x.to("cuda") is x, x.cuda() is x)
del x, y, z
print(taper.cuda.memory_allocated())
""")
    assert "tensor([[1., 2.],\n        [3., 4.]], device='cuda:0') cuda:0 True cpu True" in out, out
    assert "(1, 3) [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] 1.0 False" in out, out
    assert "[0.0, 0.0] [3, 3] taper.Size([2])" in out.replace("torch.Size", "taper.Size"), out
    assert "Use Tensor.cpu()" in out and "found at least two devices" in out, out
    assert "[[7.0, 8.0], [4.0, 9.0]] True True" in out and "Size([3, 2]) [1.0, 1.0]" in out, out
    assert out.rstrip().endswith("\n0"), out


def test_operators():
    """One of each family, against the CPU."""
    if not has_fake():
        return
    run("""
taper.manual_seed(0)
x, y = taper.randn(3, 4), taper.randn(3, 4)
i = (y > 0).long()
cases = [lambda a, b, i: a + b, lambda a, b, i: a.softmax(-1), lambda a, b, i: a.sum(0), lambda a, b, i: a.argmax(1), lambda a, b, i: taper.cat([a, b], 1),
         lambda a, b, i: a.t() + b.t(), lambda a, b, i: F.layer_norm(a, (4,)), lambda a, b, i: a @ b.t(), lambda a, b, i: taper.addmm(b[0, :3], a, b.t()),
         lambda a, b, i: a.half() @ b.t().half(), lambda a, b, i: a.sort(1)[0], lambda a, b, i: a.cumsum(1), lambda a, b, i: a[[0, 2]], lambda a, b, i: a[i[:, 0]],
         lambda a, b, i: a.clone().fill_(2), lambda a, b, i: a.clone().zero_(), lambda a, b, i: a[a > 0], lambda a, b, i: (a * 10).int() // 3,
         lambda a, b, i: taper.linalg.inv(a[:, :3]), lambda a, b, i: taper.arange(5, device=a.device), lambda a, b, i: F.conv2d(a[None, None], b[:2, :2][None, None]),
         lambda a, b, i: taper.var_mean(a, 1)[0], lambda a, b, i: a.gather(1, i), lambda a, b, i: F.embedding(i, a), lambda a, b, i: a.clone().scatter_add_(0, i, b),
         lambda a, b, i: a.clone().index_add_(0, i[:, 0], b), lambda a, b, i: F.cross_entropy(a, i[:, 0]), lambda a, b, i: a.tril(), lambda a, b, i: a.clone().t().copy_(b.t()),
         lambda a, b, i: taper.where(a > 0, a, 0.5), lambda a, b, i: taper.bmm(a[None], b.t()[None]), lambda a, b, i: F.pad(a, (1, 2)), lambda a, b, i: a.roll(1, 1)]
for n, f in enumerate(cases):
    want, got = f(x, y, i), f(x.cuda(), y.cuda(), i.cuda())
    assert got.is_cuda and got.dtype == want.dtype and got.stride() == want.stride(), n
    assert taper.allclose(got.cpu().double(), want.double(), rtol=1e-3 if want.dtype == taper.float16 else 1e-5, atol=1e-6), (n, want, got)
s = taper._C._cuda_stats(0)
assert s["programs"] > 20 and s["calls"] > s["hosted"], s
try:
    x.cuda()[taper.tensor([7]).cuda()].cpu()
except IndexError as e:
    assert "out of bounds" in str(e), e
else:
    raise AssertionError("no error")
""")


def test_autotuning_measures_nothing():
    """Its inputs lie on the host, where kernels of a device may not read."""
    if not has_fake():
        return
    out = run("""
x, w = taper.randn(6, 8).cuda().requires_grad_(), taper.randn(8, 8).cuda()
def f(x, w): return (taper.sigmoid(x @ w) * x).softmax(1).square().sum()
for g in f, taper.compile(f, mode="max-autotune"):
    g(x, w).backward()
    print([round(v, 4) for v in x.grad[0].tolist()])
    x.grad = None
""")
    a, b = out.strip().split("\n")
    assert a == b, out


def test_gradients_and_programs():
    if not has_fake():
        return
    run("""
taper.manual_seed(0)
x, w, b = taper.randn(4, 8), taper.randn(8, 6), taper.randn(6)

def loss(x, w, b):
    h = F.layer_norm(F.gelu(x @ w + b), (6,))
    return h.softmax(-1).pow(2).mean() + (x.sin() * 2).sum()

def grads(f, *a):
    a = [t.detach().clone().requires_grad_() for t in a]
    v = f(*a)
    v.backward()
    return [v.detach()] + [t.grad for t in a]

want = grads(loss, x, w, b)
on = [t.cuda() for t in (x, w, b)]
step = taper.compile(loss, fullgraph=True)
for f in (loss, step, step):
    got = grads(f, *on)
    assert all(g.is_cuda and taper.allclose(g.cpu(), v, atol=1e-5) for g, v in zip(got, want)), (want, got)

def inplace(x):
    x.add_(1)
    return x.t() * 2
p, q = on[0].clone(), x.clone()
assert taper.allclose(taper.compile(inplace)(p).cpu(), inplace(q)) and taper.allclose(p.cpu(), q)
model = taper.nn.Sequential(taper.nn.Linear(8, 16), taper.nn.ReLU(), taper.nn.Linear(16, 2))
ref = model(x)
model.to("cuda")
assert next(model.parameters()).is_cuda and taper.allclose(model(on[0]).cpu(), ref, atol=1e-5)
opt = taper.optim.SGD(model.parameters(), lr=0.1)
before = taper.compile(model)(on[0]).pow(2).mean()
before.backward()
opt.step()
assert model(on[0]).pow(2).mean().item() < before.item()
""")


def test_models():
    """Training steps of tests/gpu/models.py at small sizes."""
    if not has_fake():
        return
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gpu", "models.py")
    run(f"""
import runpy, sys
sys.argv = ["models.py", "--small"]
try:
    runpy.run_path({script!r}, run_name="__main__")
except SystemExit as e:
    assert e.code == 0, e.code
x = taper.tensor(3, device="cuda")
x.add_(1)
assert x.item() == 4
""")


def test_errors():
    if not has_fake():
        return
    out = run("""
x = taper.ones(4, device="cuda")
try:
    (x + 1).cpu()
except RuntimeError as e:
    print(e)
print((taper.ones(2) + 1).tolist())
""", FAKE_CUDA_FAULT="700")
    assert "CUDA error" in out and "[2.0, 2.0]" in out, out
    out = run("""
try:
    taper.zeros(1 << 40, device="cuda")
except Exception as e:
    print(type(e).__name__, e)
print(taper.ones(2, device="cuda").tolist())
""")
    assert "out of memory" in out and "[1.0, 1.0]" in out, out


def test_convolutions_and_pooling_stay_on_the_device():
    if not has_fake():
        return
    out = run("""
import copy, taper.nn as nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.deep, self.point, self.up = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 16, 1), nn.ConvTranspose2d(16, 4, 2, stride=2)
    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.a(x))), 3, 2, 1)
        return F.adaptive_avg_pool2d(F.avg_pool2d(self.up(self.point(self.deep(x))), 3, 1, 1), (3, 2)).square().mean()
def step(m, x):
    m(x).backward()
for dt, tol in (taper.float32, 1e-5), (taper.bfloat16, 3e-2):
    taper.manual_seed(0)
    m, x = Net().to(dt), taper.randn(2, 3, 17, 15).to(dt)
    nets = copy.deepcopy(m).to("cuda"), copy.deepcopy(m).to("cuda")
    step(m, x)
    step(nets[0], x.cuda())
    taper.compile(step)(nets[1], x.cuda())
    for n in nets:
        for (name, p), q in zip(m.named_parameters(), n.parameters()):
            assert q.grad.is_cuda
            worst = (p.grad - q.grad.cpu()).abs().max().item()
            assert worst <= tol * (p.grad.abs().max().item() + 1e-3), (dt, name, worst)
print(taper._C._cuda_stats(0)["hosted"])
""")
    assert out.strip() == "0", out


def test_memory_is_shared_with_other_libraries():
    if not has_fake():
        return
    out = run("""
x = taper.arange(6, dtype=taper.float32, device="cuda").view(2, 3)
print(x.__dlpack_device__(), taper.ones(1).__dlpack_device__())
y = taper.from_dlpack(x)
y.t()[2, 1] = 9
print(y.device, y.data_ptr() == x.data_ptr(), x.tolist())
z = taper.from_dlpack(x.t().__dlpack__(copy=True, max_version=(1, 0)))
z += 1
print(z.tolist(), x.sum().item())
for bad in (lambda: x.__dlpack__(dl_device=(1, 0)), lambda: taper.ones(1).__cuda_array_interface__, lambda: x.clone().requires_grad_().__cuda_array_interface__,
            lambda: x.to(taper.bfloat16).__cuda_array_interface__):
    try:
        bad()
        print("no error")
    except (BufferError, AttributeError, RuntimeError, TypeError) as e:
        print(type(e).__name__)
print(hasattr(taper.ones(1), "__cuda_array_interface__"))
class Array:  # as Numba has it
    def __init__(self, t, **more):
        self.t, self.__cuda_array_interface__ = t, {**t.__cuda_array_interface__, **more}
    __cuda_array_interface__ = None
a = taper.as_tensor(Array(x.t()))
a[0, 0] = -1
print(a.stride(), x[0, 0].item(), a.is_cuda, taper.tensor(Array(x)).data_ptr() != x.data_ptr())
for more in ({"typestr": "<U1"}, {"strides": (-4, 4)}, {"shape": None}, {"strides": (4,)}):
    try:
        taper.as_tensor(Array(x, **more))
        print("no error")
    except (TypeError, ValueError) as e:
        print(type(e).__name__, str(e)[:70])
del x, y, z
print(a.tolist())
""")
    assert out == """(2, 0) (1, 0)
cuda:0 True [[0.0, 1.0, 2.0], [3.0, 4.0, 9.0]]
[[1.0, 4.0], [2.0, 5.0], [3.0, 10.0]] 19.0
BufferError
AttributeError
RuntimeError
TypeError
False
(1, 3) -1.0 True True
TypeError __cuda_array_interface__: elements of type '<U1' are not supported
ValueError __cuda_array_interface__: strides that are negative, or no whole numbe
TypeError object of type 'NoneType' has no len()
ValueError __cuda_array_interface__: as many strides as dimensions are needed
[[-1.0, 3.0], [1.0, 4.0], [2.0, 9.0]]
""", out


def test_another_number_is_not_assembled_again():
    long_under_sanitizers()
    if not has_fake():
        return
    out = run("""
x = taper.arange(1., 5., device="cuda")
done = lambda: taper._C._cuda_stats(0)["assembled"]
def both(v):
    return taper.addcdiv(x, x, x * v, value=v).add(x, alpha=v / 2).tolist()
both(0.5)
before = done()
for v in (0.3, -2.5, 7.25):
    want = [a + v * a / (a * v) + v / 2 * a for a in (1., 2., 3., 4.)]
    assert max(abs(p - q) for p, q in zip(both(v), want)) < 1e-5
print(done() - before)
many = taper._C._cuda_stats(0)["programs"]
for v in range(4200):  # more than are kept
    x * (v + 0.5)
print(taper._C._cuda_stats(0)["programs"] - many, (x * 0.5).tolist(), done() - before)
""")
    assert out == "0\n4199 [0.5, 1.0, 1.5, 2.0] 0\n", out


def test_graphs_of_two_devices():
    if not has_fake():
        return
    out = run("""
def params():
    p = [taper.ones(3, 2, device="cuda", requires_grad=True), taper.full((4,), 2., device="cuda", requires_grad=True)]
    for x in p:
        x.grad = taper.full_like(x, 0.5)
    return p
ends = []
for how in (lambda f: f, taper.compile):
    p = params()
    o = taper.optim.Adam(p, foreach=False)  # counts its steps on the CPU
    f = how(lambda: o.step())
    for _ in range(3):
        f()
    ends.append([x.detach().cpu().flatten().tolist() for x in p] + [o.state[p[0]]["step"].item()])
    assert o.state[p[0]]["step"].device.type == "cpu"
print(ends[0][2] == ends[1][2] == 3, max(abs(a - b) for i in (0, 1) for a, b in zip(ends[0][i], ends[1][i])) < 1e-6)
@taper.compile
def both(x, y, n):
    z = (y @ y.t()).relu() + n  # all of it on the CPU
    n += 1
    return x.sin() * n, z
x, y, n = taper.arange(4., device="cuda"), taper.arange(6.).view(2, 3), taper.tensor(1.)
a, b = both(x, y, n)
print(a.device, b.device, b.tolist(), n.item(), (a - x.sin() * 2).abs().max().item() < 1e-6)
try:
    both(x, y.cuda(), taper.ones(2))
except RuntimeError as e:
    print("same device" in str(e))
""")
    assert out == "True True\ncuda:0 cpu [[6.0, 15.0], [15.0, 51.0]] 2.0 True\nTrue\n", out


def test_launches_are_recorded():
    """mode="reduce-overhead": recorded at the second call with the same addresses, replayed from then on."""
    if not has_fake():
        return
    out = run("""
counts = lambda: [taper._C._cuda_stats(0)[k] for k in ("recorded", "replayed")]
def f(x, w):
    h = F.relu(x @ w).softmax(-1)
    return (h @ w.t()).sum(0), h.sum()
x, w = taper.randn(4, 8), taper.randn(8, 8)
want = f(x, w)
x, w = x.cuda(), w.cuda()
g = taper.compile(f, mode="reduce-overhead")
same = lambda got, want: all(taper.allclose(a.cpu(), b, atol=1e-5) for a, b in zip(got, want))
for i in range(5):
    got = g(x, w)
    assert same(got, want), i
    del got
print(counts())
w.mul_(2)  # the contents of inputs are not part of a recording
want = f(x.cpu(), w.cpu())
assert same(g(x, w), want)
print(counts())
kept = [g(x, w) for _ in range(3)]  # results that somebody holds are not written again
for r in kept:
    assert same(r, want)
assert len({r[0].data_ptr() for r in kept}) == 3
y = taper.randn(4, 8).cuda()  # another address: another recording
for i in range(4):
    assert same(g(y, w), f(y.cpu(), w.cpu()))
del kept
before = counts()
for i in range(3):
    assert same(g(x, w), want) and same(g(y, w), f(y.cpu(), w.cpu()))
after = counts()
print(after[1] - before[1] >= 4, len(before))
off = taper.compile(f)
for i in range(4):
    off(x, w)
print(counts() == after)
""")
    lines = out.split("\n")
    first = eval(lines[0])
    assert first[0] >= 1 and first[1] == 4 * first[0], out
    assert eval(lines[1]) == [first[0], first[1] + first[0]] and lines[2:4] == ["True 2", "True"], out


def test_recorded_training():
    if not has_fake():
        return
    run("""
import copy
taper.manual_seed(0)
class Net(taper.nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.a, self.drop, self.b = taper.nn.Embedding(7, 8), taper.nn.Linear(8, 16), taper.nn.Dropout(0.0), taper.nn.Linear(16, 5)
    def forward(self, i, y):
        return F.cross_entropy(self.b(self.drop(F.gelu(self.a(self.e(i))))), y)
m = Net()
i, y = taper.tensor([0, 3, 6, 1]), taper.tensor([4, 0, 2, 1])
nets = [(copy.deepcopy(m), i, y, None), (copy.deepcopy(m).to("cuda"), i.cuda(), y.cuda(), "reduce-overhead")]
ends = []
for net, a, b, mode in nets:
    f = taper.compile(net, mode=mode) if mode else net
    opt = taper.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(6):
        loss = f(a, b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        end = loss.item()
        del loss
    ends.append([end] + [p.detach().cpu() for p in net.parameters()])
assert abs(ends[0][0] - ends[1][0]) < 1e-4, ends
assert all(taper.allclose(a, b, atol=1e-4) for a, b in zip(ends[0][1:], ends[1][1:]))
s = taper._C._cuda_stats(0)
assert s["recorded"] >= 2 and s["replayed"] >= 6, s
""")


def test_random_numbers_are_not_replayed():
    if not has_fake():
        return
    out = run("""
f = taper.compile(lambda x: F.dropout(x.exp() @ x, 0.5).cos(), mode="reduce-overhead")
x = taper.ones(16, 16, device="cuda")
seen = set()
for _ in range(5):
    r = f(x)
    seen.add(str(r.cpu().tolist()))
    del r
print(len(seen))
""")
    assert out == "5\n", out


def test_indices_are_checked_by_the_device():
    """The error names the operator and the line, at the next wait; nothing outside is read or written until then."""
    if not has_fake():
        return
    body = """
w = taper.randn(5, 4, device="cuda")
def look(i):
    return w[i].sum(), w.index_select(0, i)  # here
def put(i):
    return taper.zeros(5, 4, device="cuda").index_put((i,), w[:2] * 2, accumulate=True)
for f in (look, taper.compile(look), taper.compile(look, mode="reduce-overhead"), put, taper.compile(put)):
    for bad in ([0, 5], [-6, 1]):
        for i in ([1, -2] if f is put else [1, 2], bad):
            i = taper.tensor(i, device="cuda", dtype=taper.int64)
            try:
                f(i)
                taper.cuda.synchronize()
                print("fine", end=" ")
            except (IndexError, RuntimeError) as e:
                print(type(e).__name__, "out of" in str(e), "CUDA error" in str(e), end=" ")
    print()
print(w.shape, (w + 1).cpu().shape)
i = taper.tensor([3, 9], device="cuda", dtype=taper.int32)[::1]
try:
    F.embedding(i, w).cpu()
except IndexError as e:
    print(e)
import gc
g = taper.compile(lambda i: w[i].sum())
try:
    g(taper.tensor([5], device="cuda"))
    del g  # what was found for a program that is gone is not lost
    taper._dynamo.reset()
    gc.collect()
    w.cpu()
    print("no error")
except IndexError:
    pass
print(F.embedding(taper.tensor([[1, 1], [0, 4]], device="cuda").t(), w).shape)
"""
    want = "fine IndexError True False fine IndexError True False \n" * 5
    want += "torch.Size([5, 4]) torch.Size([5, 4])\n"
    for env in ({}, {"CUDA_LAUNCH_BLOCKING": "1"}):
        out = run(body, **env).replace("taper.Size", "torch.Size")
        assert out.startswith(want) and out.endswith("torch.Size([2, 2, 4])\n") and "index out of range" in out and "no error" not in out, (env, out)


def test_autocast_and_gradients_that_are_scaled():
    if not has_fake():
        return
    out = run("""
import warnings
warnings.simplefilter("error")
names = lambda *ts: [str(t.dtype).split(".")[1] for t in ts]
x, w, c = taper.randn(4, 8, device="cuda"), taper.randn(8, 8, device="cuda"), taper.randn(4, 8)
def f(x, w):
    y = x @ w
    return y, y + y, y.softmax(-1), y.exp(), F.layer_norm(y, (8,)), F.mse_loss(y, y), y.sum(), y.sum(dtype=taper.float16), y.relu(), taper.cat([x, y]), y.pow(2)
with taper.autocast("cuda"):
    print(*names(*f(x, w)))
    print(*names(c @ c.t(), c.exp()))  # the CPU's is another one
    assert taper.is_autocast_enabled() and not taper.is_autocast_enabled("cpu") and taper.get_autocast_gpu_dtype() is taper.float16
with taper.autocast("cuda", dtype=taper.bfloat16), taper.autocast("cpu"):
    g = taper.compile(f, fullgraph=True)
    print(*names(*g(x, w)))
    print(*names(c @ c.t(), c.half().softmax(0)))
    with taper.amp.autocast("cuda", enabled=False):
        print(*names(x @ w, c @ c.t()))
@taper.compile
def inside(x, w):
    with taper.autocast("cuda", dtype=taper.bfloat16):
        return x @ w
print(*names(inside(x, w), x @ w), taper.is_autocast_enabled())

def train(device, inf_at):
    taper.manual_seed(0)
    m = taper.nn.Sequential(taper.nn.Linear(8, 16), taper.nn.ReLU(), taper.nn.Linear(16, 2)).to(device)
    opt = taper.optim.SGD(m.parameters(), lr=0.1)
    s = taper.amp.GradScaler(device, init_scale=1024.0, growth_interval=2)
    assert s.is_enabled()
    scales = []
    for i in range(6):
        opt.zero_grad()
        with taper.autocast(device, dtype=taper.float16):
            loss = F.mse_loss(m(c.to(device)), taper.ones(4, 2, device=device))
        s.scale(loss).backward()
        if i == inf_at:
            m[0].weight.grad[0, 0] = float("inf")
        s.step(opt)
        s.update()
        scales.append(s.get_scale())
    return scales, [p.detach().cpu() for p in m.parameters()]
a, b = train("cuda", 3), train("cpu", 3)
print(a[0] == b[0], a[0], all(taper.allclose(p, q, atol=2e-3) for p, q in zip(a[1], b[1])))
old = taper.cuda.amp.GradScaler()
assert old.is_enabled() and old.get_scale() == 65536.0
""")
    assert out == """float16 float16 float32 float32 float32 float32 float32 float16 float16 float32 float32
float32 float32
bfloat16 bfloat16 float32 float32 float32 float32 float32 float16 bfloat16 float32 float32
bfloat16 float16
float32 bfloat16
bfloat16 float32 False
True [1024.0, 2048.0, 2048.0, 1024.0, 1024.0, 2048.0] True
""", out


def test_graphs_five():
    if not has_fake():
        return
    out = run("""
x, w = taper.ones(4, 4, device="cuda"), taper.full((4, 4), 2., device="cuda")
def f():
    return (x @ w).relu().sum(0) * 2
f()
g = taper.cuda.CUDAGraph()
print(taper.cuda.is_current_stream_capturing())
with taper.cuda.graph(g):
    y = f()
    print(taper.cuda.is_current_stream_capturing())
x.fill_(3)
g.replay()
print(y.tolist())
taper.cuda.empty_cache()
other = [taper.zeros(4, device="cuda") for _ in range(50)]  # the recording's memory is nobody else's
x.mul_(2)
g.replay()
print(y.tolist(), sum(o.sum().item() for o in other))
second = taper.cuda.CUDAGraph()
with taper.cuda.graph(second, pool=g.pool()):
    z = y + 1
second.replay()
print(z.tolist())
for bad in (lambda: y.sum().item(), lambda: taper.tensor([1.]).cuda(), taper.cuda.synchronize):
    third = taper.cuda.CUDAGraph()
    try:
        with taper.cuda.graph(third):
            bad()
    except RuntimeError as e:
        print("recorded" in str(e), taper.cuda.is_current_stream_capturing())
for wrong in (taper.cuda.CUDAGraph().replay, taper.cuda.CUDAGraph().capture_end, lambda: g.capture_begin()):
    try:
        wrong()
    except RuntimeError as e:
        print(type(e).__name__)
g.reset()
s, e = taper.cuda.Stream(), taper.cuda.Event(enable_timing=True)
with taper.cuda.stream(s):
    v = x + 1
    e.record()
e.synchronize()
print(e.query(), s.query(), v[0, 0].item())
""")
    assert out == """False
True
[192.0, 192.0, 192.0, 192.0]
[384.0, 384.0, 384.0, 384.0] 0.0
[385.0, 385.0, 385.0, 385.0]
True False
True False
True False
RuntimeError
RuntimeError
RuntimeError
True True 7.0
""", out


def test_pinned_memory():
    if not has_fake():
        return
    out = run("""
from taper.utils.data import DataLoader, TensorDataset
x = taper.arange(6.).view(2, 3).t()
p = x.pin_memory()
print(p.is_pinned(), x.is_pinned(), p.tolist() == x.tolist(), p.pin_memory() is p, p[1:].is_pinned())
d = p.to("cuda", non_blocking=True) + p.cuda(non_blocking=True)
print(d.tolist())
at = p.data_ptr()
del p
q = taper.ones(6).pin_memory()
print(q.data_ptr() == at, q.tolist() == [1.] * 6)
try:
    d.pin_memory()
except RuntimeError as e:
    print("only dense CPU" in str(e))
for a, b in DataLoader(TensorDataset(taper.arange(4.), taper.arange(4)), batch_size=2, pin_memory=True):
    print(a.is_pinned() and b.is_pinned(), a.cuda(non_blocking=True).tolist())
""")
    assert out == """True False True True True
[[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]
True True
True
True [0.0, 1.0]
True [2.0, 3.0]
""", out


def test_attention_in_parts():
    """Scores are never there as a whole: forward and gradients, with and without a mask, as recordings too."""
    long_under_sanitizers()
    if not has_fake():
        return
    for part in "", "150000", "60000":  # all at once; a head at a time; rows of a head
        attention(part)


def attention(part):
    out = run("""
import os
taper.manual_seed(0)
def attend(q, k, v, causal, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
def grads(f, q, k, v, *more):
    a = [t.detach().clone().requires_grad_() for t in (q, k, v)]
    o = f(*a, *more)
    o.float().square().sum().backward()
    return [o.detach()] + [t.grad for t in a]
for dt, tol in (taper.float32, 1e-4), (taper.bfloat16, 6e-2):
    for causal, masked, heads in ((True, False, 2),) if os.environ["TAPER_CUDA_PART_BYTES"] else ((False, False, 2), (True, False, 1), (False, True, 1)):
        q, k, v = (taper.randn(1, heads, 130, 16).to(dt) for _ in range(3))
        mask = (taper.rand(130, 130) > 0.2).float().sub(1).mul(50).to(dt) if masked else None
        want = grads(attend, q.float(), k.float(), v.float(), causal, mask.float() if masked else None)
        on = [t.cuda() for t in (q, k, v)]
        here = mask.cuda() if masked else None
        for mode in None, "reduce-overhead":
            f = taper.compile(attend, mode=mode, fullgraph=True)
            got = grads(f, *on, causal, here)
            for a, b in zip(got, want):
                worst = (a.cpu().float() - b).abs().max().item()
                assert worst <= tol * (1 + b.abs().max().item()), (dt, causal, masked, mode, worst)
            for i in range(4 if mode and heads == 2 else 0):
                with taper.no_grad():
                    assert (f(*on, causal, here).cpu().float() - want[0]).abs().max() < tol * 4, (i, dt)
        with taper.no_grad():
            assert (attend(*on, causal, here).cpu().float() - want[0]).abs().max() < tol * 4
print(taper._C._cuda_stats(0)["replayed"] > 0)
""", TAPER_CUDA_PART_BYTES=part, TAPER_CUDA_FLASH="0")
    assert out == "True\n", out


IN_ONE = """
import os
taper.manual_seed(0)
def attend(q, k, v, causal, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
def made():
    return taper._C._cuda_stats(0)["flashes"]
def grads(f, q, k, v, *more):
    a = [t.detach().clone().requires_grad_() for t in (q, k, v)]
    o = f(*a, *more)
    o.float().square().sum().backward()
    return [o.detach()] + [t.grad for t in a]
def near(got, want, tol):
    for a, b in zip(got, want):
        worst = (a.cpu().float() - b).abs().max().item() / b.abs().max().item()
        assert worst <= tol, worst
"""


FIVE = """
def five(q, k, v, causal=True):  # more dimensions than the row has: products with a kernel between them
    return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal)[0]
"""


def test_attention_in_one_kernel():
    """Of narrow floats, both passes, whatever the sizes; float32 stays in parts."""
    long_under_sanitizers()
    if not has_fake():
        return
    run(IN_ONE + """
for dt, tol in (taper.bfloat16, 1.2e-2), (taper.float16, 2e-3):
    for batch, heads, m, n, d, causal in (2, 2, 130, 130, 16, True), (1, 2, 197, 140, 64, True), (1, 1, 280, 270, 128, True), (32, 4, 130, 131, 16, False):
        if batch > 2 and dt == taper.float16:
            continue
        taper._dynamo.reset()
        q = taper.randn(batch, heads, m, d).to(dt)
        k, v = (taper.randn(batch, heads, n, d).to(dt) for _ in range(2))
        on = [t.cuda() for t in (q, k, v)]
        want = grads(attend, q.float(), k.float(), v.float(), causal)
        f, before = taper.compile(attend, fullgraph=True), made()
        near(grads(f, *on, causal), want, tol)
        assert made() == before + 3, (dt, m, n, d, made() - before)
        with taper.no_grad():
            near([f(*on, causal)], want, tol)
            assert made() == before + 4, (dt, m, n, d, made() - before)
            if d == 16 and causal:
                near([attend(*on, causal)], want, tol)
        if batch > 2:
            continue
        taper._dynamo.reset()
        r, before = taper.compile(lambda *a: -attend(*a), fullgraph=True, mode="reduce-overhead"), made()
        with taper.no_grad():
            for i in range(4):
                near([-r(*on, causal)], want, tol)
        assert made() == before + 2, made() - before  # a call, and a recording
before = made()
taper._dynamo.reset()
q = taper.randn(1, 2, 130, 16).to(taper.bfloat16)
on = q.cuda()
with taper.no_grad():
    f = taper.compile(attend, fullgraph=True)
    near([f(on, on, on, True, None), f(on, on, on, False, taper.ones(130, 130, dtype=taper.bool).cuda()), f(on.float(), on.float(), on.float(), True)],
         [attend(q.float(), q.float(), q.float(), True), attend(q.float(), q.float(), q.float(), False), attend(q.float(), q.float(), q.float(), True)], 8e-3)
    assert made() == before + 2, made() - before  # float32 is not
    part = taper.randn(1, 2, 130, 20).to(taper.bfloat16)[..., 1:17].cuda()  # no row begins at a multiple of 16 bytes
    near([f(part, on, on, True)], [attend(part.cpu().float(), q.float(), q.float(), True)], 8e-3)
""")


def test_attention_of_a_block_in_one_kernel():
    """Between projections, where the gradient of the probabilities is ready before the scores are."""
    long_under_sanitizers()
    if not has_fake():
        return
    out = run("""
import taper.nn as nn
taper.manual_seed(0)
b, n, heads, d = 2, 144, 2, 32
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
    def forward(self, x):
        q, k, v = (t.view(b, n, heads, d // heads).transpose(1, 2) for t in self.qkv(self.norm(x)).split(d, 2))
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, d))
def step(m, net, x):
    m.zero_grad()
    loss = net(x).float().square().mean()
    loss.backward()
    return [loss.detach().cpu()] + [p.grad.float().cpu() for p in m.parameters()]
m, x = Block().to(taper.bfloat16), taper.randn(b, n, d).to(taper.bfloat16)
want = step(m, m, x)
m = m.cuda()
got = step(m, taper.compile(m, fullgraph=True), x.cuda())
for a, w in zip(got, want):
    assert (a - w).abs().max() <= 0.02 * w.abs().max()
print(taper._C._cuda_stats(0)["flashes"])
""")
    assert out == "3\n", out


def test_attention_in_one_kernel_can_be_refused():
    if not has_fake():
        return
    body = IN_ONE + FIVE + """
q = taper.randn(1, 2, 130, 16, device="cuda").to(taper.bfloat16)
with taper.no_grad():
    taper.compile(%s, fullgraph=True)(q, q, q, True)
print(made())
"""
    for f in "attend", "five":
        assert run(body % f) == "1\n"
        assert run(body % f) == "1\n"  # from the disk cache
        assert run(body % f, TAPER_CUDA_FLASH="0") == "0\n"
    assert run(body % "five", TAPER_BISECT_SUBSYSTEM="attend", TAPER_BISECT_MAX="-1") == "0\n"


def test_attention_of_narrow_floats_has_no_matrix_of_scores():
    """Factors are read as they are, in both passes; what is between products that are written out is one kernel."""
    if not has_fake():
        return
    schedules("attend", [["0 kernels", "1 product"], ["0 kernels", "2 products"]])
    schedules("five", [["1 kernel", "2 products"], ["2 kernels", "5 products"]])


def schedules(f, want):
    log = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"taper_test_cuda_{os.getpid()}.log")
    run(IN_ONE + FIVE + f"""
f = taper.compile({f}, fullgraph=True)
q, k, v = (taper.randn(1, 2, 130, 16, device="cuda", dtype=taper.bfloat16, requires_grad=True) for _ in range(3))
f(q, k, v, True).sum().backward()
""", TAPER_LOGS="schedule", TAPER_LOGS_OUT=log)
    with open(log) as out:
        lines = [x.split("]")[-1].strip() for x in out if "_schedule" in x]
    os.unlink(log)
    plans = [x for x in lines if "__compiled_fn_1_" in x]
    assert [p.split(": ")[1].split(", ")[:2] for p in plans] == want, lines
    if f == "five":
        assert sum("of those rows, block by block" in x for x in lines) == 4 and sum("product _bmm_wide" in x for x in lines) == 2, lines


def test_models_of_the_benchmark():
    """Each at a small size, forward and training, eager, compiled and recorded: the same loss."""
    long_under_sanitizers()
    if not has_fake():
        return
    bench = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench")
    run(f"""
import sys
sys.path.insert(0, {bench!r})
import cuda, cuda_models
seen = 0
for title, case in cuda.cases(True):
    values = []
    for mode in cuda.MODES:
        f = case(taper)(mode)
        values += [float(f()), float(f()), float(f())]
    assert max(values) - min(values) < 0.01 * abs(values[0]), (title, values)
    seen += 1
assert seen == 2 * len(cuda_models.MODELS)
""")


def test_a_program_runs_on_the_device_of_its_tensors():
    if not has_fake():
        return
    out = run("""
x, w = taper.randn(4, 4, device="cuda:1"), taper.randn(4, 4, device="cuda:1")
f = lambda x: (x @ w).softmax(-1).sum(0)
g = taper.compile(f, mode="reduce-overhead")
want = f(x).cpu()
for _ in range(4):
    r = g(x)
    assert r.device.index == 1 and taper.allclose(r.cpu(), want), r
    del r
with taper.cuda.device(1):
    assert taper.allclose((x + 1).cpu(), x.cpu() + 1)
print(taper.cuda.current_device(), taper._C._cuda_stats(0)["recorded"] > 0)
""", FAKE_CUDA_DEVICES="2")
    assert out == "0 True\n", out


def test_memory_of_attention_is_its_own():
    """What other tensors hold stays, and nothing is given back twice."""
    if not has_fake():
        return
    out = run("""
f = taper.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
q, k, v = (taper.randn(1, 2, 8, 4, device="cuda", requires_grad=True) for _ in range(3))
before = None
for i in range(4):
    f(q, k, v).sum().backward()
    held = [taper.full((100,), float(j), device="cuda") for j in range(12)]
    f(q, k, v).sum().backward()
    assert all(h.tolist() == [float(j)] * 100 for j, h in enumerate(held)), i
    q.grad = k.grad = v.grad = held = None
    s = taper._C._cuda_stats(0)
    if i == 1:
        before = s["allocated"]
    assert i < 2 or s["allocated"] == before, (i, s, before)
print("fine")
""")
    assert out == "fine\n", out


if __name__ == "__main__":
    for name, f in list(globals().items()):
        if name.startswith("test_"):
            f()


def test_products_of_rows_at_odd_places():
    """Rows of 16-bit elements that do not begin at multiples of 16 bytes: the product is made of copies."""
    if not has_fake():
        return
    out = run("""
taper.manual_seed(0)
for m, k, n in ((5, 7, 9), (16, 33, 8), (3, 8, 2051)):
    a, b, c = taper.randn(m, k).bfloat16(), taper.randn(k, n).bfloat16(), taper.randn(n).bfloat16()
    want = [a @ b, b.t() @ a.t(), taper.addmm(c, a, b)]
    x, y, z = a.cuda(), b.cuda(), c.cuda()
    for w, g in zip(want, [x @ y, y.t() @ x.t(), taper.addmm(z, x, y)]):
        assert taper.allclose(w.float(), g.cpu().float(), rtol=2e-2, atol=2e-2), (m, k, n, (w - g.cpu()).abs().max())
    big = taper.zeros(2 * m, k + 3, device="cuda").bfloat16()
    part = big[::2, 1:k + 1]
    part.copy_(x)
    assert taper.allclose((part @ y).cpu().float(), want[0].float(), rtol=2e-2, atol=2e-2)
import taper._C as C
print("done", taper.cuda.memory_allocated() < 1 << 20)
""", TAPER_CUDA_PRODUCTS="straight")
    assert out.split() == ["done", "True"], out


def test_complex_numbers_on_the_host():
    """Rows without loops for complex numbers run the CPU's kernel for these, not the one for real numbers."""
    if not has_fake():
        return
    out = run("""
taper.manual_seed(0)
for dt in (taper.complex64, taper.complex128):
    x, y = taper.randn(3, 4, dtype=dt), taper.randn(3, 4, dtype=dt)
    for f in (taper.conj_physical, taper.abs, taper.angle, taper.exp, taper.sqrt, taper.tanh, lambda v: v * y.to(v.device), lambda v: v / y.to(v.device),
              lambda v: v @ y.to(v.device).t(), lambda v: v.sum(), lambda v: v.t().contiguous(), taper.view_as_real, lambda v: v.conj() + 1):
        for v in (x, x.t().contiguous().t(), x[:1].expand(3, 4)):
            a, b = f(v), f(v.cuda())
            assert b.is_cuda and a.dtype == b.dtype and taper.allclose(a, b.cpu(), rtol=1e-4, atol=1e-5), (f, dt, a, b.cpu())
print("done")
""")
    assert out.split() == ["done"], out


def test_additions_by_index_stay_on_the_device_and_keep_their_order():
    if not has_fake():
        return
    out = run("""
import random
random.seed(7)
taper.manual_seed(7)
grad = taper.ops.aten.embedding_dense_backward
forms = {
    "rows": lambda x, i, y: taper.index_add(x, 0, i, y),
    "put": lambda x, i, y: x.index_put((i,), y, accumulate=True),
    "copy": lambda x, i, y: x.index_copy(0, i, y),
    "expanded": lambda x, i, y: x.scatter_add(0, i.unsqueeze(1).expand(y.shape), y),
    "last": lambda x, i, y: taper.index_add(x.t().contiguous(), 1, i, y.t().contiguous()),
    "elements": lambda x, i, y: taper.index_add(x[:, 0].contiguous(), 0, i, y[:, 0].contiguous()),
    "written": lambda x, i, y: x.t().scatter(1, i.unsqueeze(0).expand(y.shape[1], -1), y.t()),
    "pairs": lambda x, i, y: x.index_put((i, i % x.shape[1]), y[:, 0], accumulate=True),
    "gathered": lambda x, i, y: taper.autograd.grad((x.t().gather(1, i.unsqueeze(0).expand(y.shape[1], -1)) * y.t()).sum(), x)[0],
}
def same(want, got, *what):
    assert got.is_cuda and want.dtype == got.dtype, what
    assert want.tolist() == got.cpu().tolist(), what
for dt in taper.float32, taper.float64:
    for rows, cols, n in (41, 1, 140), (3, 130, 35), (50, 7, 33), (5, 768, 9):
        for i in taper.randint(0, rows, (n,)), taper.full((n,), rows // 2), taper.arange(n) * 7 % rows:
            x, y = taper.randn(rows, cols, dtype=dt), taper.randn(n, cols, dtype=dt)
            for name, f in forms.items():
                x.requires_grad_(name == "gathered")
                want, on = f(x, i, y).detach(), x.detach().cuda().requires_grad_(name == "gathered")
                same(want, f(on, i.cuda(), y.cuda()).detach(), name, dt, rows, cols, n)
                if rows == 50:
                    same(want, taper.compile(f)(on, i.cuda(), y.cuda()).detach(), name, "compiled", dt)
for dt in taper.bfloat16, taper.float16: # each sum is rounded, as on the host
    x, y, i = taper.randn(9, 40).to(dt), taper.randn(70, 40).to(dt), taper.randint(0, 9, (70,))
    same(forms["rows"](x, i, y), forms["rows"](x.cuda(), i.cuda(), y.cuda()), "rows", dt)
for dt in taper.float32, taper.float64, taper.bfloat16, taper.float16:
    for rows, cols, sizes in (50, 5, (3, 7)), (9, 768, (20,)), (100, 1, (64,)), (33, 130, (2, 65)), (4, 3, ()), (5, 4, (0,)):
        for pad in -1, 2:
            i, g = taper.randint(0, rows, sizes), taper.randn(*sizes, cols).to(dt)
            if i.numel() > 4:
                i.reshape(-1)[::3] = 2
            for often in False, True:
                want = grad(g, i, rows, pad, often)
                same(want, grad(g.cuda(), i.cuda(), rows, pad, often), "embedding", dt, rows, cols, pad, often)
e, i = taper.nn.Embedding(300, 64, padding_idx=3), taper.randint(0, 300, (2, 40))
i[0, :9] = 3
def loss(w, i):
    return (F.embedding(i, w, padding_idx=3) * 3).sin().sum()
w = e.weight.detach()
host, device = w.clone().requires_grad_(), w.cuda().requires_grad_()
loss(host, i).backward()
taper.compile(loss)(device, i.cuda()).backward()
assert taper.allclose(host.grad, device.grad.cpu(), atol=1e-6)
print(taper._C._cuda_stats(0)["hosted"])
""")
    assert out.strip() == "0", out


def test_zeros_of_a_gradient_are_on_the_device_of_the_argument():
    if not has_fake():
        return
    out = run("""
x, i = taper.arange(12.).reshape(3, 4), taper.tensor([[0, 3, 3], [1, 1, 1], [2, 0, 2]])
for on in x.clone(), x.cuda():
    on.requires_grad_()
    y = on.gather(1, i.to(on.device)).square().sum()
    print(taper.autograd.grad(y, on)[0].cpu().tolist())
""")
    host, device = out.splitlines()
    assert host == device, out


def test_copies_between_layouts():
    """copy_ into memory without gaps does not go through the host, whatever the order of its dimensions."""
    if not has_fake():
        return
    run("""
def like(t): return taper.ones(t.shape, device="cuda")
a = taper.arange(2 * 4 * 3 * 5.).reshape(2, 4, 3, 5).cuda()
last = a.contiguous(memory_format=taper.channels_last)
views = [like(a), like(a).contiguous(memory_format=taper.channels_last), taper.ones(5, 3, 4, 2, device="cuda").permute(3, 2, 1, 0),
         taper.ones(3, 2, 4, 3, 5, device="cuda")[1]]
for to in views:
    for x in (a, last, a.permute(0, 1, 2, 3), taper.cat([a, a], 3)[..., ::2][..., :5]):
        to.mul_(0)
        to.copy_(x)
        assert to.cpu().tolist() == x.cpu().tolist(), to.stride()
assert taper._C._cuda_stats(0)["hosted"] == 0
""")


def test_sums_of_columns_of_odd_rows():
    """Rows that do not fall apart along their dimensions are summed in groups all the same, without a division for each of them."""
    if not has_fake():
        return
    out = run("""
x = taper.arange(32 * 197 * 16, device="cuda").remainder(13).float().view(32, 197, 16)
f = taper.compile(lambda x: (x.sum((0, 1)), (x * 2).view(6304, 16).sum(0)))
a, b = f(x)
print(taper.equal(a.cpu(), x.cpu().sum((0, 1))), taper.equal(b.cpu(), 2 * x.cpu().sum((0, 1))))
""")
    assert "True True" in out, out


def test_sizes_that_change():
    """Eager calls that differ in sizes share one program from the second size on; what it computes is the CPU's."""
    if not has_fake():
        return
    run("""
taper.manual_seed(0)
cases = [lambda a: a + 1, lambda a: a.softmax(-1), lambda a: a.sum(0), lambda a: a.sum(-1), lambda a: a.t().contiguous(), lambda a: taper.cat([a, a], 1), lambda a: a.t() + 1,
         lambda a: a.cumsum(-1), lambda a: a @ a.t(), lambda a: a.argmax(-1), lambda a: taper.where(a > 0, a, 0.), lambda a: a[:, 1:] * 2, lambda a: a.clone().fill_(3),
         lambda a: taper.full(a.shape, 3, device=a.device), lambda a: taper.arange(a.shape[1], device=a.device), lambda a: taper.arange(0, a.shape[1], 2, device=a.device),
         lambda a: taper.ones(a.shape[1], 3, device=a.device), lambda a: F.pad(a, (1, 2)), lambda a: a.tril(), lambda a: taper.eye(a.shape[1], device=a.device), lambda a: a[:, ::2].clone(),
         lambda a: a.expand(2, *a.shape) + a, lambda a: a[:, a[0].argsort()], lambda a: F.gelu(a, approximate="tanh"), lambda a: a.mean(), lambda a: a.var(-1), lambda a: a.flip(1)]
base = taper.randn(3, 64)
for n, f in enumerate(cases):
    for size in (9, 10, 11, 1, 2, 24, 33, 9):
        a = base[:, :size].contiguous() if n % 2 else base[:, :size]
        want, got = f(a), f(a.cuda() if n % 2 else base.cuda()[:, :size])
        assert got.is_cuda and got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride(), (n, size, want.stride(), got.stride())
        assert taper.allclose(got.cpu().double(), want.double(), rtol=1e-5, atol=1e-6, equal_nan=True), (n, size, want, got)
made = taper._C._cuda_stats(0)["assembled"]
for size in range(12, 24):
    a = base[:, :size].contiguous().cuda()
    cases[1](a), cases[3](a), cases[5](a), cases[13](a), cases[21](a)
assert taper._C._cuda_stats(0)["assembled"] == made, (made, taper._C._cuda_stats(0)["assembled"])
for i in range(70):  # sizes that stay get a program of their own
    cases[1](a)
assert taper._C._cuda_stats(0)["assembled"] == made + 1
a, b = taper.randn(5, 4), taper.randn(5, 4)
for f in (lambda a, b: a + b, lambda a, b: a * b[:1]):  # sizes that are equal at first, and not later
    for rows in (5, 4, 1, 3):
        assert taper.equal(f(a[:rows].cuda(), b[:rows].cuda()).cpu(), f(a[:rows], b[:rows])), rows
    try:
        assert taper.equal(f(a.cuda(), b[:1].cuda()).cpu(), f(a, b[:1]))
        f(a.cuda(), b[:, :3].cuda())
    except RuntimeError as e:
        assert "size" in str(e), e
    else:
        raise AssertionError("no error")
x = [taper.rand(n, device="cuda") for n in (5, 6, 7)]
assert [v.shape[0] for v in x] == [5, 6, 7] and len(set(x[2].tolist())) == 7
""")


def test_zeros_without_the_host():
    if not has_fake():
        return
    run("""
for dt in (taper.float32, taper.bfloat16, taper.int64, taper.bool):
    x = taper.ones(4, 6, device="cuda").to(dt)
    x[1:3].zero_()
    x.t()[4].zero_()
    y = taper.ones(4, 6, dtype=dt)
    y[1:3].zero_()
    y.t()[4].zero_()
    assert taper.equal(x.cpu(), y), dt
    h = taper._C._cuda_stats(0)["hosted"]
    version = x._version
    x.t().zero_()
    assert taper._C._cuda_stats(0)["hosted"] == h and x._version == version + 1 and not x.cpu().any()
""")


def test_padded_rows_are_read_at_once():
    """A condition that is one for all lanes guards a wide access: rows of an image whose channels come last, inside and outside of the padding."""
    long_under_sanitizers()
    if not has_fake():
        return
    out = run("""
import io, os
taper.manual_seed(0)
def f(x):
    return F.pad(x, (1, 2, 2, 1), value=3) * 2, F.pad(x, (0, 0, 0, 0, 1, 1)), x[:, :, 2:, 1:].clone()
for dt in (taper.bfloat16, taper.float32, taper.float64, taper.int32, taper.uint8):
    for channels in (16, 7):
        x = (taper.randn(1, channels, 4, 5) * 20).to(dt).contiguous(memory_format=taper.channels_last)
        for a, b in zip(taper.compile(f)(x.cuda()), f(x)):
            assert taper.equal(a.cpu(), b) and a.stride() == b.stride(), (dt, channels)
print("equal")
""", TAPER_LOGS="kernel_code", TAPER_LOGS_OUT="/dev/stdout")
    assert out.endswith("equal\n"), out[-2000:]
    wide = [line for line in out.splitlines() if "ld.global.v4" in line and "@%p" in line]
    assert wide, "no wide access has a condition"


def test_what_columns_read_is_computed_again():
    """The distance to a column's mean is not written in f32 where its bf16 source can be read again; rows share it in their kernel as before."""
    if not has_fake():
        return
    out = run("""
taper.manual_seed(0)
x = taper.randn(1024, 256).bfloat16()
def columns(x):
    y = x.float()
    s = y - y.mean(0)
    return s * taper.rsqrt((s * s).sum(0) + 1)
got, want = taper.compile(columns)(x.cuda()).cpu(), columns(x)
assert (got - want).abs().max().item() < 1e-6
""", TAPER_LOGS="schedule", TAPER_LOGS_OUT="/dev/stdout")
    lines = [line for line in out.splitlines() if "columns" in line or "kernel k" in line]
    assert "5 kernels" in out and not any("fused_sub" in line for line in lines), out


def test_products_by_copies_are_not_recorded():
    """A product of odd sizes takes memory for its copies: it stays outside of what is recorded, and as fast as without recording."""
    if not has_fake():
        return
    out = run("""
taper.manual_seed(0)
x, w = taper.randn(16, 24).bfloat16(), taper.randn(24, 13).bfloat16()
def f(x, w):
    y = (x * 2).exp() + x.amax(0) + x.amin(1, keepdim=True)
    z = (y @ w).float()
    return (z + z.amax(1, keepdim=True)).softmax(0).sum(1)
c = taper.compile(f, mode="reduce-overhead")
a, b = x.cuda(), w.cuda()
for i in range(4):
    n = taper._C._cuda_stats(0)
    got = c(a, b).cpu()
    m = taper._C._cuda_stats(0)
    assert (got - f(x, w)).abs().max().item() < 0.05, (got, f(x, w))
print(m["replayed"] - n["replayed"] >= 1, m["requests"] > n["requests"])
""", TAPER_CUDA_PRODUCTS="straight")
    assert out == "True True\n", out


def test_searches_for_wrong_values_are_left_out():
    """Trials are forked and look at elements on the host: on a device they say that they are left out, and the program runs. What is saved runs
    on the CPU."""
    if not has_fake():
        return
    body = """
import os, subprocess, sys
code = '''
import taper
def f(x, w): return taper.relu(x @ w) + 1
x, w = taper.randn(4, 5).cuda(), taper.randn(5, 6).cuda()
c = taper.compile(f)
for _ in range(2):
    assert taper.allclose(c(x, w), f(x, w))
print("ran")
'''
for env in (dict(TAPER_VALIDATE="1"), dict(TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4"), dict(TAPER_REPRO_AFTER="aot", TAPER_REPRO_LEVEL="4")):
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env})
    assert r.returncode == 0 and r.stdout == "ran\\n", (env, r.stdout, r.stderr)
    assert r.stderr.count("is left out") == 1 and "device 'cuda'" in r.stderr and "taper bisect" in r.stderr, (env, r.stderr)
"""
    run(body)
