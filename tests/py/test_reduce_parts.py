"""One number from many: reduced in parts that threads share, with the same result for every number of threads."""
import os
import subprocess
import sys

import taper

PROGRAMS = [lambda x: x.sum(), lambda x: (x * x).mean(), lambda x: x.amax(), lambda x: x.amin(), lambda x: x.view(1, -1).sum(1, keepdim=True),
            lambda x: taper.softmax(x, 0), lambda x: (x > 0).sum(), lambda x: (x * 9).to(taper.int32).sum(), lambda x: x.double().sum(),
            lambda x: x.var(), lambda x: x.norm(), lambda x: x.amin() + x.sum() * x, lambda x: x[:262150].sum(), lambda x: x[::2].sum(),
            lambda x: x.half().sum()]


def test_the_same_for_every_number_of_threads():
    before = taper.get_num_threads()
    try:
        x = taper.randn(1 << 20)
        for i, f in enumerate(PROGRAMS):
            want, results = f(x), []
            for threads in (1, 2, 3):
                taper.set_num_threads(threads)
                taper._dynamo.reset()
                results.append(taper.compile(f)(x))
                assert taper.equal(results[0], results[-1]), i
            got = results[0]
            assert got.shape == want.shape and got.dtype == want.dtype, i
            assert taper.allclose(got.double(), want.double(), rtol=1e-3 if got.dtype == taper.float16 else 1e-5, atol=1e-3), (i, got, want)
    finally:
        taper.set_num_threads(before)


def test_nan_and_gradients():
    x = taper.randn(1 << 18)
    x[12345] = float("nan")
    assert taper.compile(lambda x: x.amax())(x).isnan() and taper.compile(lambda x: x.sum())(x).isnan()
    y = taper.randn(1 << 18, requires_grad=True)
    taper.compile(lambda y: (y * y).sum())(y).backward()
    assert taper.allclose(y.grad, 2 * y.detach())


def test_which_ones():
    code = "import taper; taper.compile(lambda x, y, z, h: (x.sum(), y.sum(), z.sum(), h.sum(), x.view(2, -1).sum(1)))(taper.ones(300000), " \
           "taper.ones(262147), taper.ones(1000), taper.ones(300000).half())"
    log = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "TAPER_LOGS": "fusion"}).stderr
    assert log.count("parts, which threads share") == 1 and "sum_1 is made of 60 parts" in log, log
