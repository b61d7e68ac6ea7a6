"""What kernels cannot have: executable memory, 32-bit sizes, few inputs. It works, or one line says how it goes on."""
import os
import subprocess
import sys
import unittest

import taper

PROGRAM = """
import ctypes, resource, sys, taper, taper.nn.functional
taper.compile(lambda x: x + 1, backend="eager")(taper.ones(2))  # what is imported on the way
if "deny" in sys.argv:  # from here on nothing that was written may become executable
    sys.exit(77) if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) else None
if "files" in sys.argv:  # nor can it be mapped a second time
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
def f(x, w):
    return (taper.sin(x) @ w).relu().sum(1), taper.softmax(x, 1)
taper.manual_seed(1)
x, w = taper.randn(8, 8), taper.randn(8, 8, requires_grad=True)
y = taper.compile(f)(x, w)
y[0].sum().backward()
conv = taper.nn.functional.conv2d(taper.ones(1, 16, 8, 8), taper.ones(16, 16, 3, 3), padding=1)
print([round(v, 4) for v in y[0].tolist()], round(w.grad.sum().item(), 4), conv.sum().item())
"""


def run(*args):
    return subprocess.run([sys.executable, "-c", PROGRAM, *args], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "TAPER_CACHE": "0"})


def test_without_executable_memory_kernels_are_interpreted():
    denied, strict, plain = run("deny", "files"), run("deny"), run()
    if denied.returncode == 77:
        raise unittest.SkipTest("this kernel cannot forbid executable memory")
    assert strict.returncode == 0 and strict.stdout == plain.stdout and not strict.stderr, strict.stderr  # it takes no such change
    assert denied.returncode == 0 and denied.stdout == plain.stdout, denied.stderr
    lines = denied.stderr.splitlines()
    assert len(lines) == 1 and "kernels are interpreted, which is slow" in lines[0], denied.stderr


EAGER = """
import ctypes, resource, sys, taper
F = taper.nn.functional
if "deny" in sys.argv:
    sys.exit(77) if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) else None
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
x = taper.arange(-40, 41) / 7
for t in (x, x.double(), x.half(), x.bfloat16(), x[::2], x[4]):
    for f in (taper.sin, taper.exp, F.gelu, lambda t: t.abs() ** 1.7, lambda t: taper.atan2(t, t + 1), lambda t: F.elu(t, 0.3), lambda t: t.sigmoid_()):
        print(f(t.clone()).tolist())
big = taper.ones(1 << 22)
for _ in range(20):  # what needs no mathematics is not interpreted
    big = (big * 2 + 1 - big).clamp(0, 3).sqrt()
"""


def test_eager_operators_without_executable_memory_give_the_same_bits():
    denied, plain = (subprocess.run([sys.executable, "-c", EAGER, *args], capture_output=True, text=True, timeout=100) for args in (["deny"], []))
    if denied.returncode == 77:
        raise unittest.SkipTest("this kernel cannot forbid executable memory")
    assert denied.returncode == 0 and denied.stdout == plain.stdout and plain.stdout.count("[") == 35, denied.stderr
    assert denied.stderr.count("\n") <= 1 and not plain.stderr, denied.stderr


def test_sizes_beyond_32_bits():
    n = 2 ** 31 + 3
    x = taper.ones(1, dtype=taper.int8).expand(n)

    def f(x):
        return (x * 1).sum()
    assert taper.compile(f)(x).item() == n
    taper._dynamo.reset()
    assert taper.compile(f, dynamic=True)(x[:n - 2]).item() == n - 2


def test_kernels_of_thousands_of_inputs():
    xs = [taper.full((3,), float(i)) for i in range(2000)]

    def total(xs):
        s = xs[0]
        for x in xs[1:]:
            s = s + x
        return s
    assert taper.compile(total, fullgraph=True)(xs).tolist() == [1999000.0] * 3
    for emitter in ("c", "interpreter"):
        taper._dynamo.reset()
        assert taper.compile(total, fullgraph=True, options={"emitter": emitter})(xs[:300]).tolist() == [44850.0] * 3
    joined = taper.compile(lambda xs: taper.cat(xs) * 2, fullgraph=True)(xs)
    assert joined.shape == (6000,) and joined.sum().item() == 2 * 3 * 1999000.0


def test_many_results():
    def f(x):
        return [x + i for i in range(500)]
    assert [y[0].item() for y in taper.compile(f)(taper.zeros(2))] == list(range(500))


def available():
    with open("/proc/meminfo") as f:
        return next((int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable")), 0)


def test_places_beyond_32_bits():
    """(sanitize: skip, it takes five gigabytes)"""
    n = 2 ** 31 + 3
    if available() < 8 << 30:
        raise unittest.SkipTest("not enough memory")
    big = taper.zeros(n, dtype=taper.int8)
    big[n - 1], big[5] = 7, 3
    at = taper.tensor([n - 1, 5, 2 ** 31, -1])
    assert taper.compile(lambda x, i: x[i] * 2 + 1)(big, at).tolist() == [15, 7, 1, 15]  # read there
    assert taper.compile(lambda x, i: taper.gather(x, 0, i) * 2)(big, at[:2]).tolist() == [14, 6]
    assert taper.compile(lambda x: (x * 2).argmax())(big).item() == n - 1  # counted
    assert taper.compile(lambda x: x[-2:] + 1)(big).tolist() == [1, 8]
    out = taper.compile(lambda x: x * 2 + 1)(big)  # written
    assert out[-1].item() == 15 and out[2 ** 31].item() == 1 and out[5].item() == 7
    del out
    out = taper.compile(lambda x, y: taper.cat([x, y * 2]))(big, big[:9])
    assert out.shape == (n + 9,) and out[n - 1].item() == 7 and out[n + 5].item() == 6
    del out
    out = taper.compile(lambda x, i: x.index_put((i,), (i * 0 + 4).to(taper.int8)))(big, at[2:3])
    assert out[2 ** 31].item() == 4 and out[n - 1].item() == 7


def test_thousands_of_buffers_alive_at_once():
    """Where so many buffers meet, they get their places in the order of time: none may lie in another that is still read."""
    def f(x, w):
        y = x
        parts = []
        for i in range(2600):
            y = (y @ w).tanh()
            if i % 100 == 0:
                parts.append(y[: 1 + i % 3].sum())
        (y.sum() + sum(parts)).backward()
        return x.grad, w.grad

    seen = []
    for compiled in (False, True):
        taper.manual_seed(3)
        x, w = taper.randn(5, 8, requires_grad=True), (taper.randn(8, 8) * 0.4).requires_grad_()
        seen.append((taper.compile(f) if compiled else f)(x, w))
    for a, b in zip(*seen):
        assert taper.allclose(a, b, rtol=1e-3, atol=1e-4)


def test_many_results_on_one_memory():
    def f(x):
        y = x * 2
        return [y[i] for i in range(600)] + [y, y.t(), y[0], y]

    for grad in (False, True):
        x = taper.arange(1200.0).view(600, 2).requires_grad_(grad)
        got, want = taper.compile(f)(x), f(x)
        assert got[600] is got[603] and all(g.data_ptr() - got[600].data_ptr() == w.data_ptr() - want[600].data_ptr() for g, w in zip(got, want))
        assert all(g.tolist() == w.tolist() for g, w in zip(got, want))
