"""What images with channels last are made of on CUDA, on the libcuda of the tests: sums of columns, statistics of channels, borders."""
from test_cuda import has_fake, long_under_sanitizers, run

HEAD = """
import os, re, sys
sys.stderr = sys.stdout
os.dup2(1, 2)
def off(a, b): return (a.cpu().double() - b.double()).abs().max().item() / (1e-9 + b.double().abs().max().item())
"""


def steps(out):
    return [x.split("] ", 1)[1] for x in out.split("\n") if "[__schedule]   " in x]


def test_sums_of_columns():
    """Rows are shared out in groups, whose partial results are then summed as rows: in any layout, with and without the dimensions."""
    long_under_sanitizers()
    if not has_fake():
        return
    run(HEAD + """
taper.manual_seed(0)
for shape, last, dims in (((4, 16, 20, 20), True, (0, 2, 3)), ((4, 16, 20, 20), False, (0, 2, 3)), ((700, 33), False, (0,)), ((64, 3, 7, 31), True, (0, 2, 3)),
                          ((31, 5, 128), False, (0, 1)), ((2, 8, 40, 40), True, (2, 3)), ((16411, 2), False, (0,)), ((3, 24, 17, 19), True, (0, 1, 2, 3))):
    for dt in (taper.float32, taper.bfloat16):
        x = taper.randn(*shape).to(dt)
        x = x.contiguous(memory_format=taper.channels_last) if last else x
        for keep in (False, True):
            f = lambda x: x.sum(dims, keepdim=keep, dtype=taper.float32)
            y, want = taper.compile(f)(x.cuda()), x.double().sum(dims, keepdim=keep)
            assert y.shape == want.shape and y.is_contiguous() and off(y, want) < 1e-5, (shape, last, dims, dt, keep, off(y, want))
        taper._dynamo.reset()
""")


def test_sums_of_the_same_elements_share_a_kernel():
    """Mean and variance of channels: the two sums of deviations read the image once."""
    long_under_sanitizers()
    if not has_fake():
        return
    out = run(HEAD + """
x = taper.randn(8, 16, 16, 16).contiguous(memory_format=taper.channels_last)
def f(x):
    m = x.mean((0, 2, 3), keepdim=True)
    d = x - m
    return d.sum((0, 2, 3)), (d * d).sum((0, 2, 3)), x.abs().sum((1,))
for a, b in zip(taper.compile(f)(x.cuda()), f(x.double())):
    assert (a.cpu().double() - b).abs().max().item() < 1e-3 + 1e-5 * (b.abs().max().item())
""", TAPER_LOGS="schedule")
    assert sum("red_sum_sum" in x or "red_sub_sum_sum" in x for x in steps(out)) == 1, steps(out)


def test_roots_of_channels_are_computed_once():
    """Not for every element; in narrow floats they stay as exact as inside of a kernel."""
    long_under_sanitizers()
    if not has_fake():
        return
    out = run(HEAD + """
taper.manual_seed(0)
x = taper.randn(4, 16, 128, 129).bfloat16()
v = [t.bfloat16() for t in (taper.randn(16), taper.rand(16) + 0.1, taper.randn(16), taper.randn(16))]
f = lambda x, *v: F.relu(F.batch_norm(x, *v))
want = f(x.double(), *[t.double() for t in v])
with taper.no_grad():
    y = taper.compile(f)(x.cuda(), *[t.cuda() for t in v])
assert off(y, want) < 2.0 ** -8, off(y, want)
assert ((y.cpu().double() - want).abs() <= want.abs() * 2.0 ** -8 + 0.02).all()
""", TAPER_LOGS="schedule")
    assert [x.split(":")[0].split("kernel ")[1] for x in steps(out)] == ["k0_fused_mul", "k1_fused_relu"], steps(out)


def test_borders_are_not_stored():
    """Pooling reads the image where it lies, forward and backward, in both layouts."""
    long_under_sanitizers()
    if not has_fake():
        return
    for last in (False, True):
        out = run(HEAD + f"""
taper.manual_seed(0)
x = (taper.randint(0, 50, (2, 5, 9, 11)) / 7).float() # equal ones, of which the first counts
x[0, 0, 3, 3] = float("nan")
x = x.contiguous(memory_format=taper.channels_last) if {last} else x
r = []
for dev in ("cpu", "cuda"):
    a = x.detach().to(dev).requires_grad_()
    f = lambda a: F.max_pool2d(a * 2, 3, 2, 1) + F.max_pool2d(a * 2, (2, 3), (2, 1), (0, 1), 1, True)[:, :, :5, :6]
    y = (taper.compile(f) if dev == "cuda" else f)(a)
    y.backward(taper.arange(y.numel(), dtype=taper.float32).reshape(y.shape).to(dev))
    r.append((y, a.grad))
for p, q in zip(*r):
    assert p.stride() == q.stride() and taper.allclose(p, q.cpu(), equal_nan=True), (p - q.cpu()).abs().max()
""", TAPER_LOGS="schedule")
        assert steps(out) and not any("kernel" in x and "fused_constant_pad_nd" in x for x in steps(out)), steps(out)
