"""Kernels that read a large operand across its rows do so in strips: same elements, on every engine."""
import os
import re
import subprocess
import sys

import taper

ENGINES = ({}, {"isa": "avx2"}, {"emitter": "interpreter"})
SIZES = ((256, 512), (301, 203), (512, 130), (65, 1024), (17, 4096))


def programs():
    return {
        "copy": lambda x, y: x.t().contiguous(),
        "add": lambda x, y: x.t() + y,
        "row": lambda x, y: x.t() * y[0] + 1,
        "two results": lambda x, y: (x.t() + y, (x.t() - y).relu()),
        "both ways": lambda x, y: (x + y.t()).t().contiguous() * 2,
    }


def same(a, b):
    for p, q in zip(a if isinstance(a, tuple) else (a,), b if isinstance(b, tuple) else (b,)):
        assert p.stride() == q.stride() and taper.equal(p, q)


def test_matrices():
    for options in ENGINES:
        for m, n in SIZES if "emitter" not in options else SIZES[:2]:
            taper.manual_seed(m)
            x, y = taper.randn(m, n), taper.randn(n, m)
            for name, f in programs().items():
                taper._dynamo.reset()
                same(taper.compile(f, options=options)(x, y), f(x, y))


def test_types():
    for dt in (taper.float64, taper.float16, taper.int64, taper.int8, taper.bool):
        x, y = (taper.randn(260, 300) * 20).to(dt), (taper.randn(300, 260) * 20).to(dt)
        taper._dynamo.reset()
        f = (lambda x, y: x.t() | y) if dt == taper.bool else (lambda x, y: x.t() + y)
        same(taper.compile(f)(x, y), f(x, y))


def test_more_dimensions():
    taper.manual_seed(0)
    x = taper.randn(3, 40, 50, 30)
    for order in ((0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 3, 2), (2, 0, 1, 3)):
        taper._dynamo.reset()
        f = lambda x: x.permute(*order).contiguous() * 3
        same(taper.compile(f)(x), f(x))


def test_the_strips_are_in_the_kernel():
    """A loop along the operand stands between the strips and the vectors; small operands need none."""
    def loops(n):
        code = f"import taper; taper.compile(lambda x: x.t().contiguous(), options={{'disk_cache': False}})(taper.randn({n}, {n}))"
        r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                           env={**os.environ, "TAPER_LOGS": "kernel_code"})
        assert r.returncode == 0, r.stderr
        return re.findall(r"(parallel|vector)? ?for %", r.stderr)
    assert loops(512) == ["parallel", "", "vector"], loops(512)
    assert loops(64) == ["parallel", "vector"], loops(64)
