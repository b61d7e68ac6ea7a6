"""Views that cut a dimension in parts: the parts are loops of their own, and addresses come out without quotients."""
import os
import subprocess
import sys

import taper

F = taper.nn.functional


def groups(x, w, b):
    return taper.relu(F.group_norm(x, 2, w, b))


def uneven(x, w, b):  # the same loop cut by 4 and by 6: no common loops
    n, c, h, k = x.shape
    y = taper.sin(x).view(n, c * h * k)
    return y.view(n, -1, 4).sum(2), (y + 1).view(n, -1, 6).amax(2), y


def short(x, w, b):  # parts of two
    n, c, h, k = x.shape
    y = taper.exp(x).view(n, -1)
    s = y.sum(1, keepdim=True)
    return (y / s).view(n, -1, 2) * w[:2]


def shuffle(x, w, b):
    n, c, h, k = x.shape
    y = x.view(n, 2, c // 2, h, k).transpose(1, 2).reshape(n, c, h, k)
    return (y * w.view(1, c, 1, 1)).view(n, -1).sum(1), y.view(n, c // 4, 4, h * k).amax((2, 3))


def there_and_back(x, w, b):
    n, c, h, k = x.shape
    y = x.view(n, c * h, k).view(n * c, h * k) * 2
    return (y.view(n, c, h, k) * w.view(1, c, 1, 1) + b.view(1, c, 1, 1)).view(n, 2, -1).mean(2)


PROGRAMS = (groups, uneven, short, shuffle, there_and_back)


def test_cut_dimensions_give_eager_results():
    taper.manual_seed(2)
    for shape in ((4, 12, 8, 8), (3, 12, 4, 6), (2, 4, 2, 3), (1, 24, 5, 2), (5, 8, 1, 12)):
        x, w, b = taper.randn(*shape), taper.randn(shape[1]), taper.randn(shape[1])
        for p in PROGRAMS:
            for options in ({"isa": "avx512"}, {"isa": "avx2"}, {"emitter": "interpreter"}):
                taper._dynamo.reset()
                got, want = taper.compile(p, options=options)(x, w, b), p(x, w, b)
                for g, t in zip(*((got, want) if isinstance(got, tuple) else ((got,), (want,)))):
                    assert taper.allclose(g, t, rtol=1e-5, atol=1e-5), (p.__name__, shape, options)


def test_cut_dimensions_with_symbolic_sizes():
    for p in PROGRAMS:
        taper._dynamo.reset()
        f = taper.compile(p, dynamic=True)
        for n in (2, 3, 7):
            x, w, b = taper.randn(n, 8, 6, 4), taper.randn(8), taper.randn(8)
            got, want = f(x, w, b), p(x, w, b)
            for g, t in zip(*((got, want) if isinstance(got, tuple) else ((got,), (want,)))):
                assert taper.allclose(g, t, rtol=1e-5, atol=1e-5), (p.__name__, n)


def test_group_norm_is_one_kernel_without_quotients_in_its_loops():
    code = ("import taper\nF = taper.nn.functional\nx, w = taper.randn(4, 16, 8, 8), taper.randn(16)\n"
            "taper.compile(lambda x, w: taper.relu(F.group_norm(x, 2, w, w)))(x, w)\n")
    env = dict(os.environ, TAPER_LOGS="+kernel_code,schedule", TAPER_CACHE="0")
    log = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60).stderr
    assert ": 1 kernel," in log, log
    kernel = log[log.index("parallel for"):log.index("machine code")]
    assert " vi64 " not in kernel, kernel
