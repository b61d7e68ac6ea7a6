"""Convolutions on CUDA by cuDNN, without a GPU: a libcudnn of plain loops (tests/gpu/fake_cudnn.c) on the memory of the libcuda of the tests."""
import os

import taper
from test_cuda import FAKE, has_fake, long_under_sanitizers, run

DNN = os.path.join(os.path.dirname(FAKE), "libtaper_fakecudnn.so")
HEAD = """
def stat(name): return taper._C._cuda_stats(0)[name]

CASES = [  # function, input, weight, arguments
    (F.conv2d, (2, 4, 9, 8), (6, 4, 3, 3), {}),
    (F.conv2d, (2, 4, 9, 8), (6, 4, 3, 2), dict(stride=2, padding=1)),
    (F.conv2d, (2, 4, 9, 8), (6, 4, 3, 3), dict(stride=(1, 2), padding=(2, 0), dilation=(2, 3))),
    (F.conv2d, (1, 4, 6, 7), (6, 2, 3, 3), dict(groups=2, padding="same")),
    (F.conv2d, (2, 6, 6, 5), (12, 1, 3, 3), dict(groups=6, padding=1)),
    (F.conv2d, (3, 8, 5, 5), (4, 8, 1, 1), dict(stride=2)),
    (F.conv2d, (2, 1, 5, 5), (4, 1, 3, 3), {}),
    (F.conv2d, (2, 3, 5, 5), (1, 3, 5, 5), {}),
    (F.conv2d, (3, 6, 5), (2, 3, 2, 2), {}),
    (F.conv1d, (2, 4, 11), (6, 2, 3), dict(stride=2, padding=2, dilation=2, groups=2)),
    (F.conv3d, (1, 2, 4, 5, 6), (3, 2, 2, 3, 3), dict(stride=(1, 2, 1), padding=1)),
    (F.conv_transpose2d, (2, 4, 5, 4), (4, 3, 3, 3), dict(stride=2, padding=1, output_padding=1)),
    (F.conv_transpose2d, (2, 4, 5, 4), (4, 3, 3, 2), dict(stride=3, dilation=2, groups=2)),
    (F.conv_transpose1d, (2, 4, 5), (4, 3, 3), dict(stride=2)),
]

def outs(kw, transposed, w): return w[1] * kw.get("groups", 1) if transposed else w[0]

def results(f, x, w, b, kw, dev, dt, last, compiled, mask=(True, True, True)):
    t = [v.detach().clone().to(dt).to(dev) for v in (x, w, b)]
    fmt = {4: taper.channels_last, 5: taper.channels_last_3d}
    if last:
        t = [v.contiguous(memory_format=fmt[v.ndim]) if v.ndim in fmt else v for v in t]
    for v, m in zip(t, mask):
        v.requires_grad_(m)
    def step(x, w, b): return f(x, w, b, **kw)
    y = (taper.compile(step) if compiled else step)(*t)
    g = taper.arange(y.numel(), dtype=taper.float32).reshape(y.shape).sin().to(dt).to(dev)
    y.backward(g)
    return [y] + [v.grad for v in t if v.grad is not None]

def compare(case, dt, last, compiled, mask=(True, True, True)):
    f, xs, ws, kw = case
    taper.manual_seed(0)
    v = taper.randn(xs), taper.randn(ws), taper.randn(outs(kw, f is F.conv_transpose2d or f is F.conv_transpose1d, ws))
    v = [t.to(dt).to(taper.float32) for t in v]
    want = results(f, *v, kw, "cpu", dt, last, False, mask)
    got = results(f, *v, kw, "cuda", dt, last, compiled, mask)
    tol = 2e-5 if dt is taper.float32 else 0.06 if dt is taper.bfloat16 else 0.01
    assert len(want) == len(got) == 1 + sum(mask)
    for i, (a, b) in enumerate(zip(want, got)):
        assert a.shape == b.shape and a.dtype == b.dtype, (case, i)
        assert all(p == q for p, q, n in zip(a.stride(), b.stride(), a.shape) if n > 1), (case, i, a.stride(), b.stride())
        bad = ((a.float() - b.cpu().float()).abs() - tol * (1 + a.float().abs())).max().item()
        assert bad <= 0, (case, dt, last, compiled, i, bad)
"""


def conv(body, library=DNN, **env):
    return run(HEAD + body, TAPER_CUDNN_LIBRARY=library, **env)


def test_equal_to_the_cpu():
    """Every case, eager and compiled, forward and backward: three calls of cuDNN each, and nothing on the host."""
    long_under_sanitizers()
    if not has_fake():
        return
    out = conv("""
for case in CASES:
    for compiled in (False, True):
        n = stat("convolved")
        compare(case, taper.float32, False, compiled)
        assert stat("convolved") == n + 3, (case, compiled, stat("convolved") - n)
print(stat("hosted"))
""")
    assert out == "0\n", out


def test_types_and_layouts():
    long_under_sanitizers()
    if not has_fake():
        return
    out = conv("""
for dt in (taper.float32, taper.bfloat16, taper.float16):
    for last in (False, True):
        for i, case in enumerate(CASES):
            if dt is not taper.float32 and i not in (1, 4, 9, 11):
                continue
            n = stat("convolved")
            compare(case, dt, last, i % 2 == 0)
            assert stat("convolved") == n + 3, (case, dt, last, stat("convolved") - n)
print(stat("hosted"))
""")
    assert out == "0\n", out


def test_masks():
    """Only the gradients that are wanted are computed."""
    if not has_fake():
        return
    conv("""
for mask in ((True, False, False), (False, True, True), (False, False, True)):
    for compiled in (False, True):
        n = stat("convolved")
        compare(CASES[1], taper.float32, False, compiled, mask)
        assert stat("convolved") == n + 1 + mask[0] + mask[1], mask
""")


def test_without_the_library():
    """Absent, switched off, or without an algorithm: products of patches, with the same results. (The cache would know programs of before.)"""
    if not has_fake():
        return
    body = """
for case in (CASES[1], CASES[4], CASES[9], CASES[12]):
    compare(case, taper.float32, False, True)
compare(CASES[2], taper.float32, True, False)
print(stat("convolved"), stat("hosted"))
"""
    assert conv(body, "/nowhere/libcudnn.so.9") == "0 0\n"
    assert conv(body, "") == "0 0\n"  # one of another driver's memory is not looked for
    assert conv(body, TAPER_CONVOLUTIONS="own") == "0 0\n"
    assert conv(body, FAKE_CUDNN_REFUSES="all", TAPER_CACHE="0") == "0 0\n"
    assert conv(body, FAKE_CUDNN_REFUSES="weight", TAPER_CACHE="0") == "10 0\n"


def test_others_stay_products():
    """Float64, and a transposed convolution with more elements than its windows reach."""
    if not has_fake():
        return
    conv("""
x, w = taper.randn(1, 2, 4, 4, dtype=taper.float64), taper.randn(3, 2, 3, 3, dtype=taper.float64)
assert (F.conv2d(x.cuda(), w.cuda()).cpu() - F.conv2d(x, w)).abs().max() < 1e-12
x, w = taper.randn(1, 2, 4, 4), taper.randn(2, 3, 3, 3)
kw = dict(stride=1, dilation=3, output_padding=2)
assert (F.conv_transpose2d(x.cuda(), w.cuda(), **kw).cpu() - F.conv_transpose2d(x, w, **kw)).abs().max() < 1e-5
x = taper.zeros(0, 2, 4, 4, device="cuda")
assert F.conv2d(x, taper.ones(3, 2, 3, 3, device="cuda")).shape == (0, 3, 2, 2)
assert stat("convolved") == 0
""")


def test_sizes_that_change():
    """Sizes that are not known when the program is made: cuDNN is asked when it runs, and the host stands in where it refuses."""
    if not has_fake():
        return
    body = """
w = taper.randn(3, 2, 3, 3)
wc = w.cuda()
f = taper.compile(lambda x: F.conv2d(x, wc, padding=1).relu())
for n in (2, 3, 5):
    x = taper.randn(n, 2, 4, 5)
    xc = x.cuda()
    taper._dynamo.mark_dynamic(xc, 0)
    assert (f(xc).cpu() - F.conv2d(x, w, padding=1).relu()).abs().max() < 1e-5
assert taper._dynamo.utils.counters["stats"]["unique_graphs"] == 1
print(stat("convolved"), stat("hosted"))
"""
    assert conv(body) == "3 0\n"
    assert conv(body, FAKE_CUDNN_REFUSES="forward", TAPER_CACHE="0") == "0 3\n"


def test_algorithms_that_are_refused():
    """An algorithm that is refused when it is called gives way to the next; where none is left the host computes it."""
    if not has_fake():
        return
    body = """
for compiled in (False, True):
    compare(CASES[1], taper.float32, False, compiled)
    taper._dynamo.reset()  # other numbers in the same place would be symbolic
    compare(CASES[9], taper.bfloat16, False, compiled)
print(stat("convolved"), stat("hosted"))
"""
    assert conv(body, FAKE_CUDNN_UNSUPPORTED="1") == "12 0\n"
    assert conv(body, FAKE_CUDNN_UNSUPPORTED="2", TAPER_CACHE="0") == "0 6\n"


def test_training_a_net():
    """A small net with batch norm: three steps equal those of the CPU, eager, compiled and with recorded launches."""
    long_under_sanitizers()
    if not has_fake():
        return
    conv("""
def losses(dev, how):
    taper.manual_seed(1)
    net = taper.nn.Sequential(taper.nn.Conv2d(2, 4, 3, padding=1, bias=False), taper.nn.BatchNorm2d(4), taper.nn.ReLU(),
                              taper.nn.Conv2d(4, 4, 3, stride=2), taper.nn.ReLU(), taper.nn.Flatten(), taper.nn.Linear(16, 3))
    x, t = taper.randn(4, 2, 6, 6), taper.tensor([0, 1, 2, 1])
    net = net.to(dev)
    opt = taper.optim.SGD(net.parameters(), lr=0.1)
    run = net if how is None else taper.compile(net, **how)
    x, t, out = x.to(dev), t.to(dev), []
    for _ in range(6):
        opt.zero_grad()
        loss = F.cross_entropy(run(x), t)
        loss.backward()
        opt.step()
        out.append(loss.item())
    return out

want = losses("cpu", None)
for how in (None, {}, dict(mode="reduce-overhead")):
    n, r = stat("convolved"), stat("replayed")
    got = losses("cuda", how)
    assert all(abs(a - b) < 1e-4 for a, b in zip(want, got)), (how, want, got)
    assert stat("convolved") > n
    assert not how or stat("replayed") > r
assert want[0] > want[-1] and stat("hosted") == 0
""")


def test_addresses():
    """Images and weights that begin between two multiples of 16 bytes are copied first."""
    if not has_fake():
        return
    conv("""
v = [taper.randn(3 * 2 * 5 * 5 + 1), taper.randn(4 * 2 * 3 * 3 + 3), taper.randn(3 * 4 * 3 * 3 + 1)]
for dev in ("cpu", "cuda"):
    a = [t.to(dev) for t in v]
    x, w, g = a[0][1:].view(3, 2, 5, 5), a[1][3:].view(4, 2, 3, 3), a[2][1:].view(3, 4, 3, 3)
    r = [F.conv2d(x, w), *taper.ops.aten.convolution_backward(g, x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False])[:2]]
    if dev == "cpu":
        want = r
assert all((p - q.cpu()).abs().max() < 1e-5 for p, q in zip(want, r))
assert stat("convolved") == 3 and stat("hosted") == 0, (stat("convolved"), stat("hosted"))
""")


def test_images_between_convolutions():
    """Of narrow floats they are kept with channels last where few copies do it; the results have the usual strides."""
    if not has_fake():
        return
    body = """
def net(x, w, u, s):
    for _ in range(3):
        x = x + F.relu(F.conv2d(F.relu(F.conv2d(x, w, padding=1)), u) * s)
    return x, x.mean((2, 3))

taper.manual_seed(0)
t = [taper.randn(2, 4, 6, 5), taper.randn(8, 4, 3, 3) / 6, taper.randn(4, 8, 1, 1) / 3, taper.rand(1, 4, 1, 1)]
for dt, tol in ((taper.bfloat16, 0.1), (taper.float32, 1e-4)):
    with taper.no_grad():
        want = net(*[v.to(dt) for v in t])
        got = taper.compile(net)(*[v.to(dt).cuda() for v in t])
    for a, b in zip(want, got):
        assert a.stride() == b.stride() and (a.float() - b.cpu().float()).abs().max() < tol, (a.stride(), b.stride())
    train = [v.to(dt).cuda().requires_grad_() for v in t]
    host = [v.detach().to(dt).requires_grad_() for v in t]
    taper.compile(net)(*train)[1].float().sum().backward()
    net(*host)[1].float().sum().backward()
    for a, b in zip(host, train):
        assert a.grad.stride() == b.grad.stride() and (a.grad.float() - b.grad.cpu().float()).abs().max() < 10 * tol
assert stat("hosted") == 0
"""
    for env, kept in (({}, 1), ({"TAPER_BISECT_SUBSYSTEM": "layout", "TAPER_BISECT_MAX": "-1"}, 0)):
        kept *= 2 # without gradients, and forward and backward together
        head = "import taper\nimport taper.nn.functional as F\n" + HEAD
        out = run(f"import subprocess, sys, os\nr = subprocess.run([sys.executable, '-c', {head + body!r}], capture_output=True, text=True, "
                  "env={**os.environ, 'TAPER_LOGS': '+inductor'})\nassert r.returncode == 0, r.stderr[-3000:]\nprint(r.stderr)",
                  TAPER_CUDNN_LIBRARY=DNN, **env)
        assert out.count("are kept with channels last") == kept, [x for x in out.split("\n") if "images" in x]


def test_training_keeps_images_as_they_are():
    """Forward, what is kept for backward, backward and pooling: copies turn what comes in and goes out, nothing between two layers, also where one of
    two summands is an input. Results and gradients are those of eager execution and have its strides."""
    if not has_fake():
        return
    body = """
import re
def normed(x, w):
    y = F.conv2d(x, w, padding=w.shape[2] // 2)
    return F.batch_norm(y, None, None, None, None, True)
def net(x, *w):
    for i in range(0, len(w), 2):
        x = F.relu(x + normed(F.relu(normed(x, w[i])), w[i + 1]))
    return F.max_pool2d(x, 3, 2, 1)

taper.manual_seed(0)
t = [taper.randn(4, 8, 6, 5)] + [taper.randn(8, 8, 3, 3) / 8, taper.randn(8, 8, 1, 1) / 3] * 3
def step(f):
    a = [v.bfloat16().cuda().requires_grad_() for v in t]
    y = f(*a)
    g = taper.arange(y.numel(), dtype=taper.float32).reshape(y.shape).sin().bfloat16().cuda()
    y.backward(g)
    return [y] + [v.grad for v in a]
want = step(net)
print("compiled")
for i, (a, b) in enumerate(zip(want, step(taper.compile(net)))):
    d, most = (a.float() - b.float()).abs().max().item(), a.float().abs().max().item()
    assert a.stride() == b.stride() and d <= 0.03 * most, (i, a.stride(), b.stride(), d, most)
assert stat("hosted") == 0
"""
    out = conv("import os, sys\nsys.stderr = sys.stdout\nos.dup2(1, 2)\n" + body, TAPER_LOGS="+inductor,post_grad_graphs")
    text = out[out.index("compiled"):]
    assert text.count("are kept with channels last") == 1, [x for x in text.split("\n") if "images" in x]
    halves = text.split("_backward =====")
    assert len(halves) == 2
    for half, turned in zip(halves, (2, 3)): # forward: the image, the result; backward: the image once more, the gradients of both
        assert "._conv_" in half
        copies = [x for x in half.split("\n") if "= taper.clone(" in x and "bf16[4, 8, " in x]
        assert len(copies) <= turned, copies


def test_failures_are_errors():
    """Sizes that do not fit, and a call that fails: with its status."""
    if not has_fake():
        return
    conv("""
def refuses(f, *text):
    try:
        f()
    except RuntimeError as e:
        assert all(t in str(e) for t in text), e
    else:
        assert False, text

row = taper.ops.aten._conv_grad_input
refuses(lambda: row(taper.randn(1, 3, 4, 4), taper.randn(3, 2, 3, 3), [1, 2, 9, 9], [1, 1], [0, 0], [1, 1], 1), "does not have the sizes")
refuses(lambda: row(taper.randn(1, 3, 4, 4), taper.randn(3, 2, 3, 3), [1, 2, 6], [1, 1], [0, 0], [1, 1], 1), "expected 4 sizes")
x, w = taper.ones(1, 2, 4, 4, device="cuda"), taper.ones(3, 2, 3, 3, device="cuda")
refuses(lambda: F.conv2d(x, w), "cuDNN failed with status 5000 (CUDNN_STATUS_EXECUTION_FAILED)")
""", FAKE_CUDNN_FAILS="1")


def test_rows_on_the_cpu():
    """The rows that stand for what a device computes have kernels of the CPU: the gradients of convolution."""
    x, w = taper.randn(2, 4, 7, 6).requires_grad_(), taper.randn(6, 2, 3, 3).requires_grad_()
    y = taper.nn.functional.conv2d(x, w, stride=2, padding=1, groups=2)
    g = taper.randn(y.shape)
    y.backward(g)
    rows, num = taper.ops.aten, ([2, 2], [1, 1], [1, 1], 2)
    assert taper.equal(rows._conv_forward(x.detach(), w.detach(), *num), y)
    assert taper.allclose(rows._conv_grad_input(g, w.detach(), [2, 4, 7, 6], *num), x.grad, atol=1e-5)
    assert taper.allclose(rows._conv_grad_weight(g, x.detach(), [6, 2, 3, 3], *num), w.grad, atol=1e-5)


def test_log():
    if not has_fake():
        return
    for library, text in ((DNN, "by cuDNN"), ("/nowhere/x.so", "products of patches")):
        e = run("import subprocess, sys, os\n"
                "r = subprocess.run([sys.executable, '-c', 'import taper\\nimport taper.nn.functional as F\\n"
                "F.conv2d(taper.ones(1, 1, 3, 3, device=\"cuda\"), taper.ones(1, 1, 2, 2, device=\"cuda\"))'],"
                " capture_output=True, text=True, env={**os.environ, 'TAPER_LOGS': '+inductor'})\n"
                "print(r.stderr)", TAPER_CUDNN_LIBRARY=library)
        assert "convolutions on CUDA: " + text in e, e


def test_recorded_with_large_buffers():
    """Buffers that would be asked for one by one lie in one block where launches are recorded: the second call records, later ones replay."""
    long_under_sanitizers()
    if not has_fake():
        return
    out = conv("""
taper.manual_seed(0)
sizes = [4, 20, 3, 24, 5, 32, 2]
w = [taper.randn(o, i, 1, 1, device="cuda") * 0.3 for i, o in zip(sizes, sizes[1:])]
x = taper.randn(1, 4, 20, 24, device="cuda")
def f(x):
    for v in w:
        x = F.conv2d(x, v).relu()
    return x.sum()
c = taper.compile(f, mode="reduce-overhead")
with taper.no_grad():
    want = f(x).item()
    for i in range(4):
        before = taper._C._cuda_stats(0)
        got = c(x).item()
        after = taper._C._cuda_stats(0)
        assert abs(got - want) < 1e-3 * abs(want), (got, want)
        print([after[k] - before[k] for k in ("recorded", "replayed", "convolved")] + [i > 0 and after["requests"] - before["requests"]])
""")
    assert out == "[0, 0, 6, False]\n[1, 1, 6, 0]\n[0, 1, 0, 0]\n[0, 1, 0, 0]\n", out
