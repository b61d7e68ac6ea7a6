"""Values that several passes over a row want: computed once, they wait in the memory of a result."""
import os
import subprocess
import sys

import taper

F = taper.nn.functional


def both(x, dim=-1):  # the exponentials are a result, too
    e = taper.exp(x - x.amax(dim, keepdim=True))
    return e, e / e.sum(dim, keepdim=True)


def chain(x):  # gelu waits for the exponentials, those for the quotient
    y = F.gelu(x)
    e = taper.exp(y - y.amax(-1, keepdim=True))
    return e * e.sum(-1, keepdim=True).reciprocal()


def two(x):  # two values wait at the same time, two results hold them
    a, b = taper.tanh(x), taper.sin(x)
    return a / a.sum(-1, keepdim=True) + b, b * b.amax(-1, keepdim=True) - a


def three(x):  # wanted in the first and the last of three passes
    a = taper.exp(x)
    s = a.sum(-1, keepdim=True)
    t = (x * s).amax(-1, keepdim=True)
    return a * t, x * s - t


def narrow(x):
    return F.softmax(x.bfloat16(), -1)


def padded(x):  # read under a mask by one of its users
    e = taper.exp(x)
    return F.pad(e, (1, 1)), e / e.sum(-1, keepdim=True)


PROGRAMS = (lambda x: F.softmax(x, -1), lambda x: F.softmax(x, 0), lambda x: F.log_softmax(x, -1), both, lambda x: both(x, 0),
            chain, two, three, narrow, padded)


def test_waiting_values_are_those_of_eager():
    taper.manual_seed(1)
    for rows, cols in ((7, 33), (64, 5), (3, 1), (40, 64)):
        x = taper.randn(rows, cols)
        for emitter, isa in (("x64", "avx512"), ("x64", "avx2"), ("interpreter", "auto")):
            for p in PROGRAMS:
                taper._dynamo.reset()
                got, want = taper.compile(p, options={"emitter": emitter, "isa": isa})(x), p(x)
                for g, w in zip(*((got, want) if isinstance(got, tuple) else ((got,), (want,)))):
                    tol = 1e-2 if p is narrow else 1e-5
                    assert taper.allclose(g.float(), w.float(), rtol=tol, atol=tol), (PROGRAMS.index(p), emitter, isa, rows, cols)


def test_waiting_values_in_c():
    x = taper.randn(6, 37)
    run = lambda x: tuple(p(x) for p in PROGRAMS[:8])  # noqa: E731: one C file
    flat = lambda r: [t for v in r for t in (v if isinstance(v, tuple) else (v,))]  # noqa: E731
    results = {}
    for e in ("x64", "c"):
        taper._dynamo.reset()
        results[e] = flat(taper.compile(run, options={"emitter": e})(x))
    for i, (a, b) in enumerate(zip(results["x64"], results["c"])):
        assert taper.equal(a, b), i


def test_softmax_computes_exponentials_once():
    code = ("import taper\nx = taper.randn(9, 40)\n"
            "taper.compile(lambda x: taper.softmax(x, -1))(x)\n")
    env = dict(os.environ, TAPER_LOGS="+kernel_code,fusion", TAPER_CACHE="0")
    log = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60).stderr
    assert "waits for later passes in the memory of" in log, log
    kernel = log[log.index("parallel for"):log.index("machine code")]
    assert kernel.count(" expns ") == 1 and " expn " not in kernel, kernel
