"""Kernels that follow a convolution run on its planes as they are finished."""
import os
import subprocess
import sys

import taper

F = taper.nn.functional


def relu(x, w, b, **kw):
    return taper.relu(conv(x, w, b, **kw))


def conv(x, w, b, **kw):
    return (F.conv1d, F.conv2d, F.conv3d)[x.ndim - 3](x, w, b, **kw)


def norm(x, w, b, **kw):  # batch norm as in eval mode
    y = conv(x, w, None, **kw)
    return taper.relu(F.batch_norm(y, b * 0.1, b.abs() + 1, b, b + 1, False, 0.1, 1e-5))


def residual(x, w, b, **kw):
    y = conv(x, w, b, **kw)
    return taper.relu(y + taper.sin(y.detach() * 0 + 1)) * 2


def pooled(x, w, b, **kw):  # one value per plane
    y = conv(x, w, b, **kw)
    return y.mean(tuple(range(2, y.ndim))), taper.relu(y)


def plane_norm(x, w, b, **kw):
    return F.instance_norm(conv(x, w, b, **kw))


def used_twice(x, w, b, **kw):
    y = conv(x, w, b, **kw)
    return taper.tanh(y), y


PROGRAMS = (relu, norm, residual, pooled, plane_norm, used_twice)
CASES = (  # input, weight, arguments: lanes as places, as channels, steps, groups, depthwise, signals, volumes, declined ones
    ((3, 8, 20, 20), (24, 8, 3, 3), dict(padding=1)),
    ((2, 3, 33, 17), (16, 3, 5, 5), {}),
    ((5, 16, 9, 9), (40, 16, 3, 3), dict(stride=2, padding=1)),
    ((2, 16, 12, 12), (32, 4, 3, 3), dict(groups=4)),
    ((2, 24, 16, 16), (24, 1, 3, 3), dict(groups=24, padding=1)),
    ((1, 32, 7, 7), (64, 32, 1, 1), {}),
    ((4, 8, 50), (20, 8, 7), dict(padding=3)),
    ((1, 4, 6, 10, 18), (8, 4, 3, 3, 3), dict(padding=1)),
    ((2, 2, 5, 5), (3, 2, 3, 3), dict(stride=2)),
)


def pairs(got, want):
    return zip(*((got, want) if isinstance(got, tuple) else ((got,), (want,))))


def test_planes_give_eager_results():
    taper.manual_seed(6)
    for xs, ws, kw in CASES:
        x, w, b = taper.randn(*xs), taper.randn(*ws) * 0.2, taper.randn(ws[0])
        for p in PROGRAMS:
            f = lambda x, w, b: p(x, w, b, **kw)  # noqa: E731
            for options in ({}, {"isa": "avx2"}, {"emitter": "interpreter"}):
                taper._dynamo.reset()
                for g, t in pairs(taper.compile(f, options=options)(x, w, b), f(x, w, b)):
                    assert taper.allclose(g, t, rtol=1e-4, atol=1e-4), (p.__name__, xs, ws, kw, options)


def test_planes_in_other_types_and_sizes():
    for p in PROGRAMS:
        taper._dynamo.reset()
        f = taper.compile(p, dynamic=True)
        for n in (2, 3, 6):
            x, w, b = taper.randn(n, 4, 8, 8 + n), taper.randn(16, 4, 3, 3), taper.randn(16)
            for g, t in pairs(f(x, w, b), p(x, w, b)):
                assert taper.allclose(g, t, rtol=1e-4, atol=1e-4), (p.__name__, n)
        taper._dynamo.reset()
        x, w, b = (taper.randn(*s).double() for s in ((2, 8, 9, 9), (16, 8, 3, 3), (16,)))
        for g, t in pairs(taper.compile(p)(x, w, b), p(x, w, b)):
            assert taper.allclose(g, t, rtol=1e-10, atol=1e-10), p.__name__
        x, w, b = (taper.randn(*s).bfloat16() for s in ((2, 8, 9, 9), (16, 8, 3, 3), (16,)))
        for g, t in pairs(taper.compile(p)(x, w, b), p(x, w, b)):
            assert taper.allclose(g.float(), t.float(), rtol=5e-2, atol=0.2), p.__name__


def test_planes_do_not_depend_on_threads():
    x, w, b, n = taper.randn(5, 8, 30, 30), taper.randn(32, 8, 3, 3), taper.randn(32), taper.get_num_threads()
    for p in (norm, plane_norm):
        f, results = taper.compile(p), []
        for t in (1, 2, 5):
            taper.set_num_threads(t)
            results += [f(x, w, b) for _ in range(5)]
        taper.set_num_threads(n)
        assert all(taper.equal(r, results[0]) for r in results), p.__name__


def test_channels_last_stays_a_call():
    x, w, b = taper.randn(2, 8, 9, 9).contiguous(memory_format=taper.channels_last), taper.randn(16, 8, 3, 3), taper.randn(16)
    got, want = taper.compile(relu)(x, w, b), relu(x, w, b)
    assert taper.allclose(got, want, rtol=1e-4, atol=1e-4) and got.stride() == want.stride()


def test_the_log_says_so():
    code = ("import taper\nF = taper.nn.functional\nx, w = taper.randn(2, 8, 16, 16), taper.randn(16, 8, 3, 3)\n"
            "m = taper.nn.Sequential(taper.nn.Conv2d(8, 16, 3), taper.nn.BatchNorm2d(16), taper.nn.ReLU()).eval()\n"
            "with taper.no_grad():\n    taper.compile(m)(x)\n")
    env = dict(os.environ, TAPER_LOGS="schedule,fusion", TAPER_CACHE="0")
    log = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60).stderr
    assert "on the rows of the product" in log and "on its rows: relu" in log, log
