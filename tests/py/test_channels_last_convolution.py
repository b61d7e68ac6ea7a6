"""Convolutions of channels_last tensors read and write them as they lie: same numbers as contiguous ones, no copies."""
import os
import subprocess
import sys

import taper

F = taper.nn.functional
CL, CL3 = taper.channels_last, taper.channels_last_3d

# batch, channels, size, results, window, stride, padding, dilation, groups
SHAPES = [
    (2, 64, (10, 9), 64, (3, 3), 1, 1, 1, 1),
    (2, 96, (7, 12), 40, (3, 3), 1, 0, 1, 1),
    (3, 3, (12, 11), 32, (3, 3), 1, 1, 1, 1),
    (2, 32, (11, 8), 48, (3, 3), 2, 1, 1, 1),
    (2, 20, (9, 9), 36, (3, 2), 1, 1, 1, 1),
    (1, 24, (13, 13), 17, (3, 3), 1, 2, 2, 1),
    (2, 64, (8, 8), 128, (3, 3), 1, 1, 1, 4),
    (2, 24, (8, 8), 48, (3, 3), 1, 1, 1, 2),
    (2, 64, (8, 8), 48, (1, 1), 1, 0, 1, 1),
    (2, 64, (8, 8), 48, (1, 1), 2, 0, 1, 1),
    (2, 16, (9, 7), 16, (3, 3), 1, 1, 1, 16),
    (1, 40, (3, 3), 32, (3, 3), 1, 0, 1, 1),
    (2, 24, (5, 6, 7), 32, (3, 2, 3), (1, 2, 1), 1, 1, 1),
]


def pair(t):
    """The same values in both layouts."""
    return t, t.contiguous(memory_format=CL if t.dim() == 4 else CL3)


def is_side(t):
    return t.is_contiguous(memory_format=CL if t.dim() == 4 else CL3)


def close(a, b, dtype, what):
    tol = 1e-9 if dtype == taper.float64 else 2e-3
    assert taper.allclose(a, b, rtol=tol, atol=tol), (what, (a - b).abs().max().item())


def test_equal_to_contiguous():
    for dtype in (taper.float32, taper.float64):
        for shape in SHAPES:
            n, c, size, o, k, s, p, d, g = shape
            conv = F.conv2d if len(size) == 2 else F.conv3d
            taper.manual_seed(0)
            xs = pair(taper.randn(n, c, *size, dtype=dtype))
            ws = pair(taper.randn(o, c // g, *k, dtype=dtype) * 0.1)
            b = taper.randn(o, dtype=dtype)
            ys = []
            for x in xs:
                for w in ws:
                    x, w, bias = x.detach().requires_grad_(), w.detach().requires_grad_(), b.clone().requires_grad_()
                    y = conv(x, w, bias, s, p, d, g)
                    (y * y.detach().cos()).sum().backward()
                    ys.append((y.detach(), x.grad, w.grad, bias.grad))
            assert is_side(ys[2][0]) and is_side(ys[3][0]) and is_side(ys[3][1]), shape
            for got in ys[1:]:
                for name, a, want in zip(("result", "input", "weight", "bias"), got, ys[0]):
                    close(a, want, dtype, (shape, dtype, name))


def test_transposed():
    for dtype in (taper.float32, taper.float64):
        for c, o, k, s, p, op, g in ((32, 48, 3, 2, 1, 1, 1), (64, 32, 2, 2, 0, 0, 2), (48, 16, 1, 1, 0, 0, 1)):
            taper.manual_seed(1)
            xs, ws = pair(taper.randn(2, c, 6, 5, dtype=dtype)), pair(taper.randn(c, o // g, k, k, dtype=dtype) * 0.1)
            b = taper.randn(o, dtype=dtype)
            got = []
            for x, w in zip(xs, ws):
                x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
                y = F.conv_transpose2d(x, w, b, s, p, op, g)
                (y * y.detach().sin()).sum().backward()
                got.append((y.detach(), x.grad, w.grad))
            assert is_side(got[1][0])
            for a, want in zip(got[1], got[0]):
                close(a, want, dtype, (c, o, k, s, p, op, g))


def test_compiled_chain():
    def f(x, w, v):
        return F.max_pool2d(F.conv2d(F.conv2d(x, w, None, 1, 1).relu(), v, None, 2, 1) + 1, 2)
    taper.manual_seed(2)
    x, w, v = taper.randn(2, 16, 16, 16), taper.randn(32, 16, 3, 3) * 0.1, taper.randn(16, 32, 3, 3) * 0.1
    want = f(x, w, v)
    x, w, v = (t.contiguous(memory_format=CL) for t in (x, w, v))
    got = taper.compile(f)(x, w, v)
    assert is_side(got) and got.stride() == f(x, w, v).stride()
    close(got, want, taper.float32, "chain")


def test_two_threads_give_the_same():
    taper.manual_seed(3)
    x, w = (t.contiguous(memory_format=CL) for t in (taper.randn(1, 48, 30, 30), taper.randn(64, 48, 3, 3)))
    before = taper.get_num_threads()
    try:
        taper.set_num_threads(1)
        one = F.conv2d(x, w, None, 1, 1)
        taper.set_num_threads(3)
        assert taper.equal(one, F.conv2d(x, w, None, 1, 1))
    finally:
        taper.set_num_threads(before)


def test_nothing_is_copied():
    """Most tensor bytes alive during the call beyond its result."""
    taper.manual_seed(4)
    x = taper.randn(4, 64, 32, 32).contiguous(memory_format=CL)
    dy = taper.randn(4, 64, 32, 32).contiguous(memory_format=CL)
    w = taper.randn(64, 64, 3, 3).contiguous(memory_format=CL)

    def extra(fn):
        fn()
        before = taper._C._memory(True)[0]
        y = fn()
        most = taper._C._memory()[1] - before
        return most - sum(t.numel() * 4 for t in (y if isinstance(y, tuple) else (y,)) if t is not None)
    with taper.no_grad():
        assert extra(lambda: F.conv2d(x, w, None, 1, 1)) < 4096
        for mask in ([True, False, False], [False, True, False], [False, False, True]):
            assert extra(lambda: tuple(taper.ops.aten.convolution_backward(
                dy, x, w, [64], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask))) < 4096, mask


def test_avx2():
    if os.environ.get("TAPER_ISA"):
        return
    code = "import test_channels_last_convolution as t; t.test_equal_to_contiguous(); t.test_transposed(); t.test_compiled_chain()"
    here = os.path.dirname(os.path.abspath(__file__))
    r = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, timeout=120,
                       env={**os.environ, "TAPER_ISA": "avx2", "PYTHONPATH": here + os.pathsep + os.environ.get("PYTHONPATH", "")})
    assert r.returncode == 0, r.stderr
