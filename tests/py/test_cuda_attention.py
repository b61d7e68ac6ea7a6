"""scaled_dot_product_attention on CUDA in one kernel, eager calls and compiled ones, against the CPU; on the libcuda of the tests."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_cuda  # noqa: E402
from test_cuda import has_fake, long_under_sanitizers  # noqa: E402

HEAD = """
taper.manual_seed(0)
S = F.scaled_dot_product_attention
def stats(*names):
    return [taper._C._cuda_stats(0)[n] for n in names]
def near(got, want, tol=1.2e-2):
    for i, (a, b) in enumerate(zip(got, want)):
        worst = (a.cpu().float() - b.float()).abs().max().item() / b.float().abs().max().item()
        assert worst <= tol, (i, worst)
def grads(f, q, k, v, *more, **kw):
    a = [t.detach().requires_grad_() for t in (q, k, v)]
    o = f(*a, *more, **kw)
    (o.float() * taper.arange(o.numel(), device=o.device).reshape(o.shape).remainder(7)).sum().backward()
    return [o.detach()] + [t.grad for t in a]
def agree(q, k, v, *mask, f=S, tol=1.2e-2, rows=3, **kw):  # one kernel forward and two back, nothing on the host
    before = stats("flashes", "hosted")
    got = grads(f, *(t.cuda() for t in (q, k, v, *mask)), **kw)
    made, hosted = (x - y for x, y in zip(stats("flashes", "hosted"), before))
    assert made == rows and hosted == 0, (made, hosted)
    near(got, grads(S, *(t.float() if t.is_floating_point() else t for t in (q, k, v, *mask)), **kw), tol)
q, k, v = (taper.randn(2, 4, 40, 32).bfloat16() for _ in range(3))
"""


def run(body, **env):
    return test_cuda.run(HEAD + body, **env)


def test_masks_and_shared_keys():
    long_under_sanitizers()
    if not has_fake():
        return
    for dt in "bfloat16", "half":
        run(f"""
q, k, v = (t.{dt}() for t in (q, k, v))
agree(q, k, v)
agree(q, k, v, is_causal=True)
agree(q, k[:, :2], v[:, :2], enable_gqa=True, is_causal=True)
m = taper.rand(40, 40) > 0.3
m[3] = False  # zeros, and gradients of 0
agree(q, k, v, m)
agree(q, k, v, (taper.arange(40) < 33).expand(2, 1, 1, 40))
agree(q, k, v, taper.randn(4, 40, 40).{dt}())
agree(q, k, v, taper.randn(2, 1, 1, 40).{dt}())
low = taper.where(taper.rand(40, 40) > 0.3, 0.0, {"-3e38" if dt == "bfloat16" else "-6e4"}).{dt}()
low[5] = low.min()
agree(q, k, v, low)
agree(q[0], k[0], v[0])
agree(q[0, 0], k[0, 0], v[0, 0], scale=0.3)
agree(q, k, v, f=taper.compile(S, fullgraph=True))
agree(q, k, v, m, f=taper.compile(S, fullgraph=True))
""", FAKE_CUDA_MAJOR="8" if dt == "half" else "9")


def test_heads_of_64_and_128():
    """By products of a warpgroup on compute capability 9.0, by those of a warp on others."""
    long_under_sanitizers()
    if not has_fake():
        return
    for major in "8", "9":
        run("""
for d, n in (64, 150), (128, 70):
    q = taper.randn(1, 2, n, d).bfloat16()
    k, v = (taper.randn(1, 1, n, d).bfloat16() for _ in range(2))
    agree(q, k, v, enable_gqa=True, is_causal=True)
""", FAKE_CUDA_MAJOR=major)


def test_heads_as_projections_have_them():
    """Read by their strides; results lie as those of the query do, so that nothing is copied behind them."""
    if not has_fake():
        return
    run("""
x = taper.randn(2, 40, 3 * 4 * 32).bfloat16()
def heads(x):
    return x.view(2, 40, 3, 4, 32).permute(2, 0, 3, 1, 4).unbind(0)
def attend(x):
    return S(*heads(x), is_causal=True).transpose(1, 2)
on = x.cuda()
before = stats("calls")
o = attend(on)
assert stats("calls") == before and o.is_contiguous()
near([o], [attend(x.float())])
near([S(*heads(on)[:2], heads(on)[2].transpose(-1, -2).contiguous().transpose(-1, -2))], [S(*heads(x.float()))])  # elements of a row lie apart
near([S(*(t[..., 1:17] for t in heads(on)))], [S(*(t[..., 1:17] for t in heads(x.float())))])  # no row begins at 16 bytes
g = on.detach().requires_grad_()
attend(g).float().square().sum().backward()
c = x.float().requires_grad_()
attend(c).square().sum().backward()
near([g.grad], [c.grad])
""")


def test_no_copies_around_it_in_a_program():
    if not has_fake():
        return
    log = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"taper_test_cuda_attention_{os.getpid()}.log")
    run("""
w = taper.randn(128, 3 * 128, device="cuda").bfloat16()
f = taper.compile(lambda x: S(*(x @ w).view(2, 40, 3, 4, 32).permute(2, 0, 3, 1, 4).unbind(0), is_causal=True).transpose(1, 2).reshape(80, 128) @ w, fullgraph=True)
with taper.no_grad():
    f(taper.randn(80, 128, device="cuda").bfloat16())
""", TAPER_LOGS="schedule", TAPER_LOGS_OUT=log)
    with open(log) as out:
        lines = [x.split("]")[-1].strip() for x in out if "_schedule" in x]
    os.unlink(log)
    at = next(i for i, x in enumerate(lines) if "__compiled_fn_1" in x)
    assert [x.split()[1:3] for x in lines[at + 1:at + 4]] == [["product", "mm"], ["product", "_flash_attention"], ["product", "mm_1"]], lines


def test_dropout_draws_what_a_program_draws():
    """The numbers are those of dropout of the whole matrix, whether its rows begin at a block of numbers or not; backward draws them again."""
    long_under_sanitizers()
    if not has_fake():
        return
    run("""
def spelled_out(q, k, v):
    p = F.dropout((q.float() @ k.float().transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1), 0.25)
    return p @ v.float()
for n in 40, 37:
    q, k, v = (taper.randn(2, 2, n, 32, device="cuda").bfloat16() for _ in range(3))
    for f in S, taper.compile(S, fullgraph=True):
        grads(f, q, k, v, dropout_p=0.25)  # compiled: checks of the tests read graphs back, which draws numbers
        taper.manual_seed(3)
        before = stats("flashes")[0]
        got = grads(f, q, k, v, dropout_p=0.25)
        assert stats("flashes")[0] == before + 3
        taper.manual_seed(3)
        near(got, [t.cpu() for t in grads(spelled_out, q, k, v)])
    assert not taper.equal(S(q, k, v, dropout_p=0.25), S(q, k, v, dropout_p=0.25))
""")


def test_gradients_of_masks_and_of_gradients():
    """They have formulas, not kernels."""
    if not has_fake():
        return
    run("""
m = taper.randn(40, 40).bfloat16()
def grad_of_mask(q, k, v, m):
    m = m.detach().requires_grad_()
    S(q, k, v, m).float().square().sum().backward()
    return [m.grad]
def second(q, k, v):
    q = q.detach().requires_grad_()
    g, = taper.autograd.grad(S(q, k, v, is_causal=True).float().square().sum(), q, create_graph=True)
    g.float().sum().backward()
    return [q.grad]
near(grad_of_mask(*(t.cuda() for t in (q, k, v, m))), grad_of_mask(*(t.float() for t in (q, k, v, m))), 0.05)
near(second(*(t.cuda() for t in (q, k, v))), second(*(t.float() for t in (q, k, v))), 0.05)
""")


def test_the_row_on_the_cpu():
    """What replays a graph without the device computes the same, numbers of rows too."""
    if not has_fake():
        return
    run("""
ops = taper.ops.aten
for mask in None, taper.rand(2, 4, 40, 40) > 0.2, taper.randn(2, 4, 40, 40).bfloat16():
    state = taper.tensor([5, 7])
    arg = [mask, state, 0.2, False, 0.2]
    there = [t.cuda() if isinstance(t, taper.Tensor) else t for t in arg]
    here, o = [q, k, v], [q.cuda(), k.cuda(), v.cuda()]
    want, got = ops._flash_attention(*here, *arg), ops._flash_attention(*o, *there)
    near(got, want)
    g = taper.randn(2, 4, 40, 32).bfloat16()
    a, b = ops._flash_grad_query(g, *here, *arg, want[1], want[0]), ops._flash_grad_query(g.cuda(), *o, *there, got[1], got[0])
    near(b, a, 0.02)
    near(ops._flash_grad_key(g.cuda(), *o, *there, got[1], b[1]), ops._flash_grad_key(g, *here, *arg, want[1], a[1]), 0.02)
""")
