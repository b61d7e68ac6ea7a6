"""(sanitize: skip, it starts the program that was built without) What the tools behind taper doctor see: the truth of operators,
where a process died, rewrites of kernels named by their values."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")


def run(program, argv=None, cwd=None, **env):
    with tempfile.TemporaryDirectory() as own:
        d = cwd or own
        with open(os.path.join(d, "prog.py"), "w") as f:
            f.write(program)
        full = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        full.update(env, PYTHONPATH=os.path.join(ROOT, "python"))
        p = subprocess.run(argv or [sys.executable, "prog.py"], cwd=d, env=full, capture_output=True, text=True, timeout=300)
        return p.stdout, p.stderr, p.returncode


def audit(program):
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "audit")
        out, err, rc = run(program, TAPER_AUDIT=path, TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4", TAPER_COMPILE_DEBUG_DIR=d)
        assert rc == 0, (out, err)
        return open(path).read().splitlines() if os.path.exists(path) else []


def test_the_truth_of_every_operator_is_what_eager_gives():
    """Each row of columns_truth.c on values inside and outside of its domain: no false alarm."""
    assert not audit("""
import taper, taper.nn.functional as F
taper.manual_seed(0)
x = taper.cat([taper.randn(200) * 3, taper.tensor([0.0, -0.0, 1.0, -1.0, 20.5, -20.5, 0.5, float("nan"), float("inf"), -float("inf")])])
y = taper.randn(x.shape[0]) * 2
u = taper.rand(x.shape[0])
one = "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid sinc deg2rad rad2deg logit abs sign sgn floor ceil trunc frac round square neg".split()
two = "add sub mul div maximum minimum fmax fmin atan2 hypot copysign logaddexp logaddexp2 xlogy".split()
act = "relu leaky_relu elu gelu silu mish softplus logsigmoid hardtanh hardsigmoid hardswish hardshrink softshrink".split()
for name in one:
    taper.compile(lambda v, f=getattr(taper, name): f(v))(x)
    taper.compile(lambda v, f=getattr(taper, name): f(v))(u)
for name in two:
    taper.compile(lambda v, w, f=getattr(taper, name): f(v, w))(x, y)
for name in act:
    taper.compile(lambda v, f=getattr(F, name): f(v))(x)
g = taper.compile(lambda x, y, u: (taper.special.ndtr(x), taper.special.entr(u), taper.special.xlog1py(x, u), u.pow(x), x ** 3, u ** 0.3, taper.logit(u, eps=0.01),
                                   F.gelu(x, approximate="tanh"), F.threshold(x, 0.1, 20.0), taper.clamp(x, -0.5, 0.75), x.clamp(min=0.1), x.clamp(max=0.1),
                                   taper.lerp(x, y, 0.3), taper.addcmul(x, y, u, value=0.5), taper.addcdiv(x, y, u + 1, value=0.5), taper.where(x > y, x, y)))
g(x, y, u)
k = taper.compile(lambda x, y: (F.relu6(x), F.selu(x), F.celu(x, 0.7), F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y, beta=0.5), F.huber_loss(x, y, delta=0.7),
                                F.mse_loss(x, y, reduction="none"), F.huber_loss(x, y, reduction="sum"), x.view(20, -1).softmax(0), x.view(20, -1).log_softmax(-1),
                                x.view(2, 5, -1).softmax(1), x.view(2, 5, -1).logsumexp(1), x.view(2, 5, -1).logsumexp((0, 2), keepdim=True)))
k(taper.randn(200), taper.randn(200))
z = taper.randn(4, 5, 6).requires_grad_()
h = taper.compile(lambda z: (z.sum() + z.mean() + z.sum((0, 2)).sum() + z.mean(1, keepdim=True).sum() + z.amax(2).sum() + z.amin((0, 1)).sum() + z.prod(1).sum()
                             + F.silu(z).sum() + z.sigmoid().sum() + z.tanh().sum() + F.logsigmoid(z).sum() + z.transpose(0, 1)[1].sum() + z[1:, ::2].sum() + z.view(20, 6).t().sum()))
h(z).backward()
""")


def test_a_crash_tells_the_node_and_the_line():
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "prog.py"), "w") as f:
            f.write("import taper\n@taper.compile\ndef f(x):\n    return taper.relu(x * 2).sum()\nprint(f(taper.ones(3)))\n")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        env.update(PYTHONPATH=os.path.join(ROOT, "python"), TAPER_INJECT="relu:segv@gen")
        p = subprocess.run([TAPER, "doctor", "prog.py"], cwd=d, env=env, capture_output=True, text=True, timeout=300)
        first = p.stdout.splitlines()[0]
        assert p.returncode == 1 and re.search(r"the fault is in kernel '\w+' \(generated code\), at node '\w+'", first) and "prog.py:4" in first, (first, p.stderr)


def test_one_call_of_a_function_and_a_cell_are_examined():
    if not os.path.exists(os.path.join(ROOT, "build", "taper")):
        raise unittest.SkipTest("the program is not beside the package")
    program = """
import sys, taper
class Net(taper.nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
    def forward(self, x):
        return taper.relu(x * self.k) + 1
def plain(x):
    return x * 2
if __name__ == "__main__":
    from taper._dynamo.doctor import examine_cell
    v = taper.compiler.doctor(Net(3.0), taper.ones(2))
    print(v["status"], "relu" in v["operators"], "prog.py:8" in v["line"], repr(v) == v["verdict"] and v["verdict"] in v._repr_html_().replace("&#x27;", "'"))
    print(taper.compiler.doctor(plain, x=taper.ones(2))["status"])
    v = examine_cell("print(f(taper.ones(2)))", ["%load_ext taper\\nimport taper", "f = taper.compile(lambda x: taper.relu(x) * 3)"])
    print(v["status"], v["operators"])
    try:
        taper.compiler.doctor(lambda x: x, 1)
    except RuntimeError as e:
        print("by their name" in str(e))
"""
    out, err, rc = run(program, TAPER_INJECT="relu:accuracy@lower")
    assert rc == 0 and out.splitlines() == ["fault found True True True", "nothing wrong", "fault found relu", "True"], (out, err)


def test_kernels_are_named_by_their_values():
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "taper_quarantine"), "w") as f:
            f.write("taper 0.1.0\nrefuse vector:relu@prog.py:4\n")
        program = "import taper\n@taper.compile\ndef f(x):\n    return taper.relu(x * 2)\nprint(f(taper.ones(3)).tolist())\n"
        out, err, rc = run(program, cwd=d, TAPER_LOGS="inductor", TAPER_CACHE="0")
        assert rc == 0 and out.strip() == "[2.0, 2.0, 2.0]" and "1 rewrite refused" in err, (out, err)


def test_every_kernel_is_made_anew_when_asked():
    program = "import taper\nf = taper.compile(lambda x: x * 2 + 1)\ng = taper.compile(lambda y: y * 2 + 1)\nprint(f(taper.ones(3)).tolist(), g(taper.ones(3)).tolist())\n"
    for value, hits in (("1", True), ("0", False)):
        out, err, rc = run(program, TAPER_KERNEL_CACHE=value, TAPER_LOGS="+cache", TAPER_CACHE="0")
        assert rc == 0 and out.strip() == "[3.0, 3.0, 3.0] [3.0, 3.0, 3.0]", (out, err)
        assert ("kernel cache hit" in err) == hits, (value, err)


def test_a_crash_outside_of_operators_is_not_blamed_on_one():
    import json
    import subprocess
    import tempfile
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "p.py"), "w") as f:
            f.write("import os, signal, taper\nprint(taper.ones(2) + 1, flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)\n")
        r = subprocess.run([os.path.join(os.environ.get("TAPER_BUILD", "build"), "taper"), "doctor", "--json", "p.py"], cwd=d, capture_output=True, text=True)
        said = json.loads(r.stdout)
        assert r.returncode == 2 and not said["operators"], (r.returncode, said)
def test_the_truth_holds_in_other_types():
    """The same in float64 and in narrow types, whose rounding is another one: no false alarm."""
    assert not audit("""
import taper, taper.nn.functional as F
taper.manual_seed(0)
one = "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid sinc deg2rad rad2deg logit abs sign floor ceil trunc frac round square neg".split()
two = "add sub mul div maximum minimum fmax fmin atan2 hypot copysign logaddexp logaddexp2 xlogy pow".split()
act = "relu leaky_relu elu gelu silu mish softplus logsigmoid hardtanh hardsigmoid hardswish hardshrink softshrink selu celu relu6".split()
for dt in (taper.float64, taper.bfloat16, taper.float16):
    x = taper.cat([taper.randn(100) * 3, taper.tensor([0.0, -0.0, 1.0, -1.0, 9.5, -9.5, float("nan"), float("inf"), -float("inf")])]).to(dt)
    y, u = (taper.randn(x.shape[0]) * 2).to(dt), taper.rand(x.shape[0]).to(dt)
    for name in one:
        taper.compile(lambda v, f=getattr(taper, name): f(v))(x)
        taper.compile(lambda v, f=getattr(taper, name): f(v))(u)
    for name in two:
        taper.compile(lambda v, w, f=getattr(taper, name): f(v, w))(x, y)
        taper.compile(lambda v, w, f=getattr(taper, name): f(v, w))(u, y)
    for name in act:
        taper.compile(lambda v, f=getattr(F, name): f(v))(x)
    z = taper.randn(4, 6, 5).to(dt)
    taper.compile(lambda z: (z.sum(), z.mean((0, 2)), z.amax(1), z.prod(2), z.softmax(1), z.log_softmax(-1), z.logsumexp(0), z.std(1), z.var((0, 1)), z.norm(dim=1), z.cumsum(1), z.cumprod(2),
                             F.layer_norm(z, (5,)), F.group_norm(z, 2), z @ z.transpose(1, 2), z.flip(0), z.roll(2, 1), F.pad(z, (1, 2)), F.mse_loss(z, z * 2)))(z)
    taper.compile(lambda z: (F.max_pool2d(z, 2), F.avg_pool2d(z, 2, padding=1), F.cross_entropy(z[0], taper.tensor([1, 2, 0, 4, 3, 1])), F.linear(z, z[0]), F.glu(z, 1)))(z)
""")


def test_the_truth_of_orders_searches_scatters_and_sizes():
    """Each row of columns_truth_index.c, with ties, NaN and several types: no false alarm."""
    assert not audit("""
import taper, taper.nn.functional as F
taper.manual_seed(0)
for dt in (taper.float32, taper.float64, taper.bfloat16):
    x = ((taper.randn(5, 7) * 4).round() / 4).to(dt)
    x[1, 2] = float("nan")
    q = taper.linspace(-2, 2, 5).to(dt)
    i, v = taper.randint(0, 5, (3, 7)), taper.randn(3, 7).to(dt)
    taper.compile(lambda x: (x.sort(-1), x.sort(0, descending=True), taper.sort(x, dim=1, stable=True), taper.sort(x, dim=0, descending=True, stable=True), x.topk(3, 1), x.topk(2, 0, largest=False),
                             x.kthvalue(2, 1), x.argsort(0), taper.argsort(x, dim=1, stable=True), x.max(0), x.min(1), x.median(), x.max(), x.min(), x.cummax(1), x.cummin(0), x.nansum(), x.nansum(1)))(x)
    s = x[0].sort().values
    taper.compile(lambda s, q, x: (taper.searchsorted(s, q), taper.searchsorted(s, q, right=True), taper.bucketize(q, s), taper.bucketize(q, s, right=True), taper.isin(x, q), x.nan_to_num().logcumsumexp(1)))(s, q, x)
    x = x.nan_to_num()
    taper.compile(lambda x, i, v: (x.scatter_add(0, i, v), x.scatter(0, i, v), x.scatter(0, i, 2.0), x.index_add(0, i[:, 0], v, alpha=0.5), x.index_copy(0, taper.tensor([3, 0, 1]), v), x.index_fill(1, i[:, 0], 1.5),
                                   x[i[:, 0]], x[-i[:, 1]], x.take(i), x.index_put((i[:, 2],), v, accumulate=True), x.index_put((taper.tensor([0, 2, -1]),), v), x.mv(x[0]), x[0].dot(x[1])))(x, i, v)
    if dt != taper.bfloat16:
        taper.compile(lambda x: taper.histc(x, 7, -1.9, 2.2))(taper.randn(50).to(dt))
    z = taper.randn(2, 3, 6, 5).to(dt)
    for size in ((5, 7), (12, 10), (3, 2), (6, 5), (1, 1), (17, 4)):
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
            taper.compile(lambda z: F.interpolate(z, size=size, mode=mode))(z)
            if mode[0] == "b":
                taper.compile(lambda z: F.interpolate(z, size=size, mode=mode, align_corners=True))(z)
    for scale in (2, 1.5, 0.5, 2.3, 0.7):
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
            taper.compile(lambda z: F.interpolate(z, scale_factor=scale, mode=mode))(z)
    taper.compile(lambda z: (F.adaptive_avg_pool2d(z, (2, 3)), F.adaptive_avg_pool2d(z, 1), F.interpolate(z[0], size=11), F.interpolate(z[0], size=4, mode="linear"), F.interpolate(z[0], scale_factor=2.5, mode="linear")))(z)
    taper.compile(lambda: (taper.arange(7, dtype=dt), taper.arange(1, 4, 0.25, dtype=dt), taper.linspace(-1, 2, 9, dtype=dt), taper.eye(3, dtype=dt), taper.eye(2, 4, dtype=dt), taper.full((3,), 0.1, dtype=dt)))()
taper.compile(lambda: (taper.arange(9), taper.arange(2, 8), taper.arange(9, 0, -2), taper.arange(3, dtype=taper.uint8), taper.ones(2, dtype=taper.int32), taper.full((2,), -3), taper.full((2,), True)))()
n = taper.randint(-5, 5, (4, 6))
taper.compile(lambda n: (n.sort(1), taper.sort(n, dim=0, stable=True), n.topk(2, 1), n.max(1), n.cummax(0), taper.isin(n, taper.tensor([1, 2])), n.scatter_add(0, n.abs() % 4, n), n.index_add(0, taper.tensor([1, 1]), n[:2]),
                         taper.searchsorted(taper.tensor([-3, 0, 2]), n), n.argsort(1)))(n)
""")


def test_gradients_of_spread_operands_are_right():
    assert not audit("""
import taper
taper.manual_seed(0)
s, b = taper.randn(1, 4, requires_grad=True), taper.randn(3, 1, requires_grad=True)
taper.compile(lambda x: ((x * s + b) ** 2 / (b * b + 1)).sum())(taper.randn(3, 4)).backward()
""")


def doctor(program, *argv, stdin=None):
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "prog.py"), "w") as f:
            f.write(program)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        env.update(PYTHONPATH=os.path.join(ROOT, "python"), TAPER_CACHE_DIR=os.path.join(d, "cache"))
        p = subprocess.run([TAPER, "doctor", "prog.py", *argv], cwd=d, env=env, input=stdin, capture_output=True, text=True, timeout=300)
        return p.returncode, p.stdout


def test_every_run_reads_the_same_input():
    rc, out = doctor("""
import sys, taper
rows = [float(w) for w in sys.stdin.read().split()]
assert len(rows) == 3
print(taper.compile(lambda x: x.sum())(taper.tensor(rows)).item())
sys.exit(4)
""", stdin="1 2\n4\n")
    assert rc == 0 and "Nothing is wrong" in out, (rc, out)  # nor is a status of the program's own choice


def test_a_progress_bar_is_not_compared():
    rc, out = doctor("""
import sys, time, taper
f = taper.compile(lambda x: x.tanh().sum())
t = time.time()
for i in range(3):
    f(taper.ones(5))
    sys.stdout.write(f"\\r{i} of 3 [{time.time() - t:.4f}<{i * 0.1:.2f}, {1 / (time.time() - t):.1f}it/s]")
print("\\ndone", f(taper.ones(5)).item())
""")
    assert rc == 0, out


def test_the_truth_of_views_convolutions_and_matrices():
    """Each row of columns_truth_shape.c, and composites whose parts alone have formulas: no false alarm."""
    assert not audit("""
import taper, taper.nn.functional as F
taper.manual_seed(0)
for dt in (taper.float32, taper.float64, taper.bfloat16):
    x = taper.randn(4, 5, 6).to(dt)
    taper.compile(lambda x: (x[1], x[:, -2], x[..., 1:5:2], x[-3:], x.transpose(0, 2) * 1, x.permute(2, 0, 1), x.diagonal(1, 0, 2), x.diagonal(-2, 1, 2), x.unfold(2, 3, 2), x[0].t(), x[:1].expand(3, 5, 6),
                             x.narrow(1, 1, 3), x.view(20, 6), x.reshape(6, 20), x.unsqueeze(1).squeeze(1), x.movedim(0, -1), x.chunk(2, 1), x.split(2), x.unbind(0), x.t() if x.ndim < 3 else x, x.flatten(1), x.swapaxes(0, 1), x[:, None, 2], x.T if 0 else x.mT))(x)
    taper.compile(lambda x: (x.to(taper.int32), x.to(taper.int8), x.long(), x.bool(), x.float(), x.double(), (x > 0).to(dt), x.abs().to(taper.uint8)))(x)
    taper.compile(lambda x: (x.nonzero(), (x > 1).nonzero(), taper.masked_select(x, x > 0), x[x > 0.5], taper.bincount(x.abs().long().flatten()), x.repeat_interleave(2, 0)))(x)
for dt in (taper.float32, taper.float64):
    x = taper.randn(2, 4, 9, 8).to(dt)
    w, b = taper.randn(6, 2, 3, 2).to(dt), taper.randn(6).to(dt)
    taper.compile(lambda x: (F.conv2d(x, w, b, 2, 1, 1, 2), F.conv2d(x, w, None, 1, (0, 1), (2, 1), 2), F.conv2d(x, w, b, groups=2), F.conv1d(x[:, :, 0], w[:, :, 0], b, 1, 1, 2, 2), F.conv_transpose2d(x, w[:4], None, 2), F.conv2d(x, w, b, padding='same', groups=2),
                             F.conv3d(x[None], taper.ones(3, 2, 1, 2, 2, dtype=dt))))(x)
    m = (taper.randn(3, 4, 4) + 4 * taper.eye(4)).to(dt)
    taper.compile(lambda m: (taper.linalg.det(m), taper.det(m), taper.linalg.slogdet(m), taper.logdet(m), taper.linalg.inv(m), taper.linalg.solve(m, m[:, :, :2]), taper.linalg.cholesky(m @ m.mT), taper.linalg.cholesky(m @ m.mT, upper=True), taper.linalg.qr(m), taper.linalg.svdvals(m), taper.linalg.svd(m), taper.linalg.eigh(m @ m.mT), taper.linalg.lstsq(m, m[:, :, :1]).solution, taper.linalg.matrix_rank(m), taper.matrix_exp(m * 0.1), taper.linalg.eigvalsh(m @ m.mT), taper.linalg.pinv(m), taper.linalg.matrix_norm(m), taper.trace(m[0]), taper.kron(m[0], m[1]), taper.einsum('bij,bjk->ik', m, m), taper.cdist(m, m), taper.cov(m[0]), taper.corrcoef(m[0]), taper.nn.functional.cosine_similarity(m[0], m[1])))(m)
    g = (taper.rand(2, 3, 5, 2) * 2.4 - 1.2).to(dt)
    for mode in ("bilinear", "nearest", "bicubic"):
        for pad in ("zeros", "border", "reflection"):
            taper.compile(lambda x, g: (F.grid_sample(x, g, mode, pad, True), F.grid_sample(x, g, mode, pad, False)))(x, g)
n = taper.randint(0, 9, (4, 5))
taper.compile(lambda n: (n & 3, n | 4, n ^ 5, n > 3, (n > 3) & (n < 7), n // 2, n % 3, n.float(), n.nonzero(), n.unique(), n[n > 2], F.one_hot(n), n.sum(), n.cumsum(0), n[1:3], n.t()))(n)
p = taper.randn(3, 4, requires_grad=True)
taper.compile(lambda p: (F.normalize(p).sum() + F.interpolate(p[None, None], scale_factor=2, mode='bicubic').sum() + F.adaptive_avg_pool2d(p[None], 2).square().sum() + taper.cdist(p, p[:2]).sum() + p.diagonal().prod() + p[:, :3].inverse().sum() + F.embedding(taper.tensor([0, 2]), p).sum()))(p).backward()
""")


def test_the_truth_of_parts_places_transforms_and_draws():
    """Each row of columns_truth_move.c, columns_truth_math.c and columns_chance.c, complex numbers, ties, one rounding of narrow types: no
    false alarm."""
    assert not audit("""
import taper, taper.nn.functional as F
taper.manual_seed(0)
for dt in (taper.float32, taper.float64, taper.bfloat16, taper.float16):
    x, w = taper.randn(3, 4, 5).to(dt), taper.rand(4).to(dt)
    taper.compile(lambda x: (x.movedim((0, 1), (-1, -2)), x.movedim(2, 0), x.mT, x[0].T, x.flatten(1), x.flatten(), x.unflatten(2, (5, 1)), x.ravel(), x.squeeze((0, 1)),
                             x.chunk(3, 2), x.tensor_split(3, 2), x.tensor_split((1, 3), 1), x.vsplit(3), x.hsplit((1, 2)), x.split(2, 1), x.split((1, 3), 1), x.unbind(2)))(x)
    i, j = taper.tensor([0, -1, 2]), taper.tensor([[3], [-2]])
    taper.compile(lambda x: (x[i, :3].sum(), x[:, i, i], x[i, j], x[:, j], x[:, :, i], x[i[:, None], [1, 2], 0]))(x)
    taper.compile(lambda x: (x.repeat_interleave(2, 1), x.repeat_interleave(3), taper.masked_scatter(x, x > 0, taper.randn(60).to(dt)), F.prelu(x, w), F.prelu(x, w[:1]), F.prelu(x[0, 0], w[:1])))(x)
    n = taper.randint(0, 3, (2, 4, 5))
    for how in ("sum", "prod", "mean", "amax", "amin"):
        for with_self in (True, False):
            taper.compile(lambda x: (x.scatter_reduce(0, n, x[:2] * 2, how, include_self=with_self), x.index_reduce(1, taper.tensor([0, 3, 3]), x[:, :3] * 1.5, how, include_self=with_self) if how != "sum" else x))(x)
    taper.compile(lambda x: (x.half(), x.bfloat16(), x.float(), x.double(), x.to(taper.float16).float(), (x * 1.37).to(dt), taper.cat([x, x * 3]), taper.stack([x, x]).flip(0)))(x)
    y, v = taper.randn(3, 71).to(dt), taper.randn(40, 71).to(dt)
    taper.compile(lambda y, v: (y @ v.t(), F.linear(y, v), F.linear(y, v, v[:, 0]), taper.bmm(y[None], v.t()[None]), F.softmax(y, 1), F.layer_norm(y, (71,)), y.sum(1), y.mean(), y.cumsum(1), y.var(1), y.norm(dim=1), F.gelu(y), y.exp().log1p(), y.std(0)))(y, v)
for dt in (taper.float32, taper.float64):
    m = taper.randn(2, 4, 4).to(dt)
    taper.compile(lambda m: (taper.linalg.matrix_norm(m, 1), taper.linalg.matrix_norm(m, -1), taper.linalg.matrix_norm(m, float("inf"), dim=(0, 2)), taper.linalg.matrix_norm(m, -float("inf"), keepdim=True), taper.linalg.matrix_norm(m), taper.linalg.matrix_norm(m, "nuc"),
                             taper.linalg.matrix_exp(m), taper.linalg.norm(m[0], 1), taper.linalg.cond(m[0], 1)))(m)
    p, t = taper.randn(9, 2, 5).to(dt).requires_grad_(), taper.tensor([[1, 2, 2, 4], [3, 3, 1, 4]])
    taper.compile(lambda p: F.ctc_loss(p.log_softmax(-1), t, (9, 8), (4, 3)) + F.ctc_loss(p.log_softmax(-1), t[:, 1:], (9, 9), (3, 2), blank=0, reduction="sum"))(p).backward()
    x = taper.randn(3, 6, 5).to(dt).requires_grad_()
    z = taper.complex(taper.randn(3, 6).to(dt), taper.randn(3, 6).to(dt)).requires_grad_()
    for norm in (None, "ortho", "forward"):
        taper.compile(lambda x, z: (taper.fft.rfft(x, norm=norm).abs().sum() + taper.fft.fft2(x, norm=norm).real.sum() + taper.fft.irfft(z, norm=norm).sum() + taper.fft.irfft(z, n=7, norm=norm).sum() + taper.fft.ifft(z, dim=0, norm=norm).imag.sum() + taper.fft.rfft2(x, norm=norm).abs().sum()))(x, z).backward()
    taper.compile(lambda z: (z * z.conj() + z / (z + 3) - z.exp() * 2).abs().sum() + (z @ z.mT).real.sum() + z.sum().abs() + (z ** 2).imag.sum() + z.angle().sum() + taper.view_as_real(z).sum() + z.sqrt().abs().sum() + (z.sin() + z.tanh()).real.sum())(z).backward()
    q = taper.tensor([2.0, 2.0, 1.0, -1.0, -1.0, 0.0], dtype=dt, requires_grad=True)
    taper.compile(lambda q: q.amax() + q.amin() + q.max() + q.min(0).values + q.sort().values[1] + q.topk(2).values.sum() + q.abs().sum() + q.relu().sum() + q.clamp(-1, 1).sum() + taper.maximum(q, q * 2).sum() + q.cummax(0).values.sum() + q.kthvalue(2).values
                            + taper.zeros(3, dtype=dt).scatter_reduce(0, taper.tensor([0, 0, 1, 1, 1, 2]), q, "amax").sum() + F.max_pool1d(q[None], 2).sum() + q.prod() + q.norm(1) + q.norm(float("inf")))(q).backward()
    u = taper.rand(7).to(dt)
    taper.compile(lambda u: (taper.rand(5), taper.randn(20), taper.rand_like(u), taper.randn_like(u), taper.empty(6).uniform_(-1, 3), taper.empty(30).normal_(1, 2), taper.normal(u, 0.5), taper.normal(0.0, u + 1), taper.empty(4).exponential_(2), taper.empty(4).cauchy_(1, 2), taper.empty(4).log_normal_(),
                             taper.empty(4).geometric_(0.3), taper.bernoulli(u), taper.bernoulli(u, 0.2), taper.randint(5, (3,)), taper.randint(-3, 4, (2, 2)), taper.randint_like(u, 9), taper.multinomial(u, 9, replacement=True), taper.multinomial(u.expand(3, 7), 1), F.dropout(u, 0.3), F.dropout(u, 0.9)))(u)
a, b = taper.tensor([200, 3], dtype=taper.uint8), taper.tensor([-5, 7], dtype=taper.int8)
taper.compile(lambda a, b: (a + b, a * b.long(), a - b.to(taper.int32), a + 1, b * 1.5, taper.maximum(a, b), a.half() + b.bfloat16(), a.float() * taper.tensor(2.0, dtype=taper.float64), taper.tensor([1, 2, 0]).repeat_interleave(taper.tensor([2, 0, 3]))))(a, b)
""")


def test_a_module_of_the_library_has_the_line_that_calls_it():
    rc, out = doctor_json("import taper\nnet = taper.nn.Sequential(taper.nn.Linear(4, 4), taper.nn.ReLU())\nf = taper.compile(net)\nprint(\n    f(taper.ones(2, 4)))\n", TAPER_INJECT="relu:accuracy@lower")
    assert rc == 1 and "relu" in out["operators"] and "prog.py:5" in out["line"], out
    assert re.fullmatch(r"\d+ of \d+ elements, with n .*, where n is the place along dimension \d", out["elements"] or "1 of 2 elements, with n == 0, where n is the place along dimension 0"), out


def doctor_json(program, **env):
    import json
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "prog.py"), "w") as f:
            f.write(program)
        full = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
        full.update(env, PYTHONPATH=os.path.join(ROOT, "python"), TAPER_CACHE_DIR=os.path.join(d, "cache"))
        p = subprocess.run([TAPER, "doctor", "--json", "prog.py"], cwd=d, env=full, capture_output=True, text=True, timeout=300)
        return p.returncode, json.loads(p.stdout)
