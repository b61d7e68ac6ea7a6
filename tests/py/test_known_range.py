"""exp of what is known not to be positive is cheaper: it is used where that is certain, and is as exact as exp."""
import math
import os
import subprocess
import sys

import taper

CODE = """
import taper
x = taper.linspace(-3, 3, 35).view(5, 7)
s = taper.linspace(-3, 3, 36).view(6, 6)
print(taper.compile(lambda x: {0})({1}).sum().item())
"""


def log(text, arg="x", **env):
    done = subprocess.run([sys.executable, "-c", CODE.format(text, arg)], capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, TAPER_LOGS="kernel_code", **env))
    assert done.returncode == 0, done.stderr[-800:]
    return done.stderr.splitlines()


def kernels(*args, **env):
    return [line.split("=", 1)[1].split()[1] for line in log(*args, **env) if " = " in line and " exp" in line]


def test_it_is_used_where_the_sign_is_certain():
    for text in ("taper.softmax(x, -1)", "taper.softmax(x, 0)", "(x - x.amax(1, keepdim=True)).exp()", "(x - x.amax()).exp()",
                 "(-x.abs()).exp()", "(-x * x).exp()", "taper.log_softmax(x, 1)"):
        assert set(kernels(text)) <= {"expn", "expns"}, text


def test_it_is_not_used_where_it_is_not():
    assert set(kernels("(x - x.amax(1)).exp()", "s")) == {"exp"}  # along the wrong dimension
    for text in ("x.exp()", "(x - x.amin(1, keepdim=True)).exp()", "(2 * x - x.amax(1, keepdim=True)).exp()",
                 "taper.sub(x, x.amax(1, keepdim=True), alpha=-2).exp()", "(x.amax(1, keepdim=True) - x).exp()", "(-(x * s[:5, :1])).exp()"):
        assert set(kernels(text)) == {"exp"}, text
    refused = dict(TAPER_BISECT_SUBSYSTEM="range", TAPER_BISECT_MAX="-1")
    assert set(kernels("taper.softmax(x, -1)", **refused)) == {"exp"}


def test_infinities_nan_and_tiny_results():
    inf, nan = math.inf, math.nan
    rows = [[0, -inf, -90, -100, -103.9, -104.1, -1e30, -0.0], [inf, 0, 1, -inf, 3, 4, 5, 6], [-inf] * 8, [nan, 1, 2, 3, 4, 5, 6, 7],
            [7, 6, 5, 4, 3, 2, 1, nan], [-3e38, 3e38, 0, 1, -1, 2, -2, 3]]
    for n in (8, 24, 64, 100):
        x = taper.tensor([(row * 13)[:n] for row in rows])
        for f in (lambda x: (x - x.amax(-1, keepdim=True)).exp(), lambda x: taper.softmax(x, -1), lambda x: x.amax(1) + x.amin(1)):
            for isa in ("auto", "avx2"):
                got, want = taper.compile(f, options={"isa": isa})(x), f(x)
                assert taper.allclose(got, want, rtol=3e-7, atol=1.5e-45, equal_nan=True), (n, isa, got, want)


def test_close_to_exp_over_the_range():
    x = -taper.linspace(0, 105, 100003)
    got = taper.compile(lambda x: (-x.abs()).exp())(x).double()
    want = x.double().exp()
    assert ((got - want).abs() <= 1.5 * 2.0 ** -23 * want + 2.0 ** -149).all()


def test_places_that_fit_into_32_bits_leave_vectors_whole():
    for text in ("taper.nn.functional.pad(x * 2, (3, 5))", "taper.cat([x * 2, x + 1], 1).relu()", "taper.tril(x * 2)",
                 "x + taper.arange(7)", "taper.where(taper.tril(taper.ones(5, 7, dtype=taper.bool)), x, -1.0).softmax(1)"):
        heads = [line for line in log(text) if " lanes " in line]
        assert heads and all(" lanes 16 " in line for line in heads), (text, heads)
    assert " lanes 8 " in "".join(log("(x + taper.arange(7) * (1 << 40))"))
    x = taper.arange(0, 300).view(3, 100).float()
    for f in (lambda x: taper.tril(x * 2, -1), lambda x: taper.nn.functional.pad(x * 2, (70, -30)), lambda x: x + taper.arange(100) * 30000000,
              lambda x: taper.triu(x + 1, 50) + taper.arange(99, -1, -1)):
        for options in ({}, {"isa": "avx2"}, {"emitter": "interpreter"}):
            assert taper.equal(taper.compile(f, options=options)(x), f(x)), options
