"""Pooling keeps a byte a result for backward when it is compiled; results and gradients stay those of eager."""
import random

import taper
from taper import _C
from taper.nn import functional as F


def test_offsets_say_what_indices_say():
    rng = random.Random(1)
    for _ in range(60):
        k = [rng.randint(1, 4), rng.randint(1, 4)]
        d = [rng.randint(1, 2), rng.randint(1, 3)]
        s = [rng.randint(1, 3), rng.randint(1, 3)]
        p = [rng.randint(0, ((a - 1) * b + 1) // 2) for a, b in zip(k, d)]
        shape = [2, 3, rng.randint(3, 9), rng.randint(3, 9)][rng.randint(0, 1):]
        ceil = rng.random() < 0.5
        x = taper.randn(shape, dtype=rng.choice([taper.float32, taper.float64]))
        try:
            want, index = _C._call("max_pool2d_with_indices", x, k, s, p, d, ceil)
        except RuntimeError:
            continue  # the window is larger than the image
        got, offset = _C._call("_max_pool2d_with_offsets", x, k, s, p, d, ceil)
        assert offset.dtype == taper.int8 and taper.equal(got, want)
        g = taper.randn(want.shape, dtype=x.dtype)
        a = _C._call("max_pool2d_with_indices_backward", g, x, k, s, p, d, ceil, index)
        b = _C._call("_max_pool2d_offsets_backward", g, offset, list(x.shape), k, s, p, d)
        assert taper.equal(a, b), (k, s, p, d, shape, ceil)


def test_compiled_pooling_keeps_bytes():
    def f(x):
        return (F.max_pool2d(x.sin(), 2).sum((2, 3)), F.max_pool2d(x.cos(), 3, 2, 1).relu())

    for b in ("aot_eager", "aot_eager_decomp_partition", "inductor"):
        for dynamic in (False, True):
            taper._dynamo.reset()
            x = taper.randn(2, 3, 8, 8, requires_grad=True)
            y = x.detach().clone().requires_grad_()
            for fn, t in ((f, x), (taper.compile(f, backend=b, dynamic=dynamic), y)):
                p, q = fn(t)
                ((p * p).sum() + (q * q).sum()).backward()
            assert taper.allclose(x.grad, y.grad, atol=1e-5), (b, dynamic)


def test_indices_that_are_returned_stay_indices():
    def f(x):
        v, i = F.max_pool2d(x, 2, return_indices=True)
        return v * 2, i

    for b in ("aot_eager_decomp_partition", "inductor"):
        x = taper.randn(1, 2, 6, 6, requires_grad=True)
        v, i = taper.compile(f, backend=b)(x)
        assert i.dtype == taper.int64 and taper.equal(i, f(x)[1])
        v.sum().backward()
        assert x.grad.sum().item() == 2 * v.numel()
