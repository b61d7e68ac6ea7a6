"""Convolutions with a window for every channel, against the same in float64, which other loops compute."""
import itertools
import os
import subprocess
import sys

import taper

F = taper.nn.functional
CASES = (  # image, window, stride, padding, dilation
    ((2, 5, 9, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((3, 16, 16, 16), (3, 3), (2, 2), (1, 1), (1, 1)),
    ((2, 33, 17, 31), (3, 3), (2, 2), (1, 1), (1, 1)),
    ((1, 64, 16, 33), (7, 7), (1, 1), (3, 3), (1, 1)),
    ((2, 8, 40, 70), (5, 5), (2, 2), (2, 2), (1, 1)),
    ((2, 3, 11, 12), (4, 2), (3, 4), (0, 3), (1, 1)),
    ((2, 6, 20, 18), (3, 3), (1, 2), (2, 0), (2, 3)),
    ((1, 4, 6, 6), (1, 1), (2, 2), (0, 0), (1, 1)),
    ((1, 7, 5, 4), (5, 4), (1, 1), (4, 5), (1, 1)),
    ((2, 20, 130, 150), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((2, 18, 150, 131), (3, 5), (4, 1), (9, 7), (1, 2)),
)


def all_three(x, w, b, dy, *numbers):
    c = x.shape[1]
    y = F.conv2d(x, w, b, *numbers, groups=c)
    stride, padding, dilation = numbers
    dx, dw, _ = taper.ops.aten.convolution_backward(dy, x, w, None, stride, padding, dilation, False, [0, 0], c, [True, True, False])
    return y, dx, dw


def test_against_float64():
    taper.manual_seed(3)
    for (shape, window, *numbers), last in itertools.product(CASES, (False, True)):
        x, w, b = taper.randn(*shape), taper.randn(shape[1], 1, *window), taper.randn(shape[1])
        dy = taper.randn(*F.conv2d(x, w, b, *numbers, groups=shape[1]).shape)
        want = all_three(*(t.double() for t in (x, w, b, dy)), *numbers)
        if last:
            x, dy = (t.contiguous(memory_format=taper.channels_last) for t in (x, dy))
        for name, got, good in zip(("result", "input", "weight"), all_three(x, w, b, dy, *numbers), want):
            assert got.shape == good.shape and got.dtype == taper.float32
            size = good.abs().max().item() + 1
            assert (got.double() - good).abs().max().item() < 2e-6 * size * (1 + good.numel() ** 0 * 8), (name, shape, window, numbers, last)


def test_signals_of_one_dimension():
    x, w = taper.randn(3, 10, 37), taper.randn(10, 1, 4)
    for kw in (dict(stride=2, padding=1), dict(dilation=3), dict(stride=3, padding=5)):
        good = F.conv1d(x.double(), w.double(), groups=10, **kw)
        assert taper.allclose(F.conv1d(x, w, groups=10, **kw).double(), good, rtol=1e-5, atol=1e-5), kw


def test_what_is_not_a_number_stays_where_it_belongs():
    for last, step in itertools.product((False, True), (1, 2)):
        x, w, dy = taper.randn(2, 6, 9, 11), taper.randn(6, 1, 3, 3), None
        x[1, 2, 4, 10], x[0, 5, 8, 0] = float("inf"), float("nan")
        y = F.conv2d(x, w, None, step, 0, 1, 6)
        dy = taper.randn(*y.shape)
        want = all_three(*(t.double() for t in (x, w, taper.zeros(6), dy)), [step, step], [0, 0], [1, 1])
        if last:
            x, dy = (t.contiguous(memory_format=taper.channels_last) for t in (x, dy))
        for got, good in zip(all_three(x, w, taper.zeros(6), dy, [step, step], [0, 0], [1, 1]), want):
            assert (got.isfinite() == good.isfinite()).all() and (got.isnan() == good.isnan()).all(), (last, step)


def test_threads_do_not_matter():
    n, results = taper.get_num_threads(), []
    taper.manual_seed(0)
    x, w, b, dy = taper.randn(5, 40, 30, 30), taper.randn(40, 1, 3, 3), taper.randn(40), taper.randn(5, 40, 15, 15)
    try:
        for t in (1, 2, 5):
            taper.set_num_threads(t)
            results.append(all_three(x, w, b, dy, [2, 2], [1, 1], [1, 1]))
    finally:
        taper.set_num_threads(n)
    assert all(taper.equal(a, b) for r in results for a, b in zip(r, results[0]))


def test_other_instruction_sets():
    for isa in ("base", "avx2"):
        p = subprocess.run([sys.executable, "-c", "import test_conv_depth as t; t.test_against_float64(); t.test_what_is_not_a_number_stays_where_it_belongs()"],
                           env=dict(os.environ, TAPER_ISA=isa), cwd=os.path.dirname(os.path.abspath(__file__)), capture_output=True, text=True)
        assert p.returncode == 0, (isa, p.stderr)
