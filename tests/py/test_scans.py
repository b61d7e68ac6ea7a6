"""Running sums, products, extremes and logarithms of sums as loops of kernels: the values of eager, in its order."""
import os
import re
import subprocess
import sys

import taper

INF, NAN = float("inf"), float("nan")
SCANS = {
    "cumsum": lambda x, d: taper.cumsum(x, d),
    "cumsum between": lambda x, d: taper.cumsum(x * 2 + 1, d) * 3 - x,
    "cumprod": lambda x, d: taper.cumprod(x, d) + 1,
    "two": lambda x, d: taper.cumsum(x, d) - taper.cumsum(x * x, d),
    "logcumsumexp": lambda x, d: taper.logcumsumexp(x * 1, d) + 1,
    "cummax": lambda x, d: taper.cummax(x * 2, d)[0] + 1,
    "cummin": lambda x, d: taper.cummin(x, d)[0],
    "places": lambda x, d: taper.cummax(x + 1, d)[1] * 2,
    "both": lambda x, d: (lambda m: m[0] + m[1])(taper.cummin(x * 1, d)),
    "reversed": lambda x, d: taper.cumsum(x.flip(d), d).flip(d),
    "turned": lambda x, d: taper.cumsum(x.transpose(0, -1), d) * 2,
    "shares": lambda x, d: (lambda c: c / c.sum(d, keepdim=True))(taper.cumsum(x.abs() + 1, d).double()),
}
HALF = (taper.float16, taper.bfloat16)


def sample(shape, dt):
    g = taper.randn(*shape)
    x = g.to(dt) if dt.is_floating_point else (g * 5).to(taper.int64).abs().to(dt)
    if dt.is_floating_point and x.numel() > 20:
        for at, v in ((7, NAN), (11, INF), (3, -INF), (4, -INF)):
            x.view(-1)[at] = v
    return x


def agree(name, x, d, dynamic=False, **options):
    f = SCANS[name]
    try:
        want = f(x, d)
    except (RuntimeError, NotImplementedError):
        return
    taper._dynamo.reset()
    got = taper.compile(f, dynamic=dynamic, options=options)(x, d)
    what = (name, x.dtype, tuple(x.shape), x.stride(), d, dynamic, options)
    assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride(), what
    if x.dtype in HALF or name in ("logcumsumexp", "shares"):
        tol = 3e-2 if x.dtype in HALF else 1e-5
        assert taper.allclose(got.double(), want.double(), rtol=tol, atol=tol * 3, equal_nan=True), what
    else:  # sums and products are made in the same order
        assert taper.equal(taper.nan_to_num(got.double(), nan=12345.0), taper.nan_to_num(want.double(), nan=12345.0)), what


def test_scans_are_those_of_eager():
    taper.manual_seed(0)
    for dt in (taper.float32, taper.float64, taper.float16, taper.bfloat16, taper.int64, taper.int32, taper.uint8, taper.bool):
        for shape in ((40,), (1000,), (7, 33), (70, 40), (4, 9, 37), (3, 40, 5), (1,), (0, 5), (5, 1), (5, 128)):
            x = sample(shape, dt)
            for y in (x,) if len(shape) < 2 else (x, x.transpose(0, 1), sample(shape[:-1] + (2 * shape[-1],), dt)[..., ::2]):
                for name in SCANS:
                    for d in range(len(shape)):
                        if dt != taper.bool or name in ("cumsum", "cumprod", "cummax"):
                            agree(name, y, d)
    for name in SCANS:
        for d in (0, 1):
            agree(name, sample((17, 70), taper.float32), d, dynamic=True)
            agree(name, sample((40, 96), taper.int64), d, dynamic=True)


def test_every_engine_scans_the_same():
    taper.manual_seed(1)
    for name in SCANS:
        for dt in (taper.float32, taper.float64, taper.int32, taper.bfloat16):
            for shape in ((5, 70), (1, 130)):
                for d in (0, 1):
                    for engine in ({"emitter": "interpreter"}, {"emitter": "x64", "isa": "avx2"}):
                        agree(name, sample(shape, dt), d, **engine)
    for name in ("cumsum between", "logcumsumexp", "cummax"):
        agree(name, sample((5, 70), taper.float32), 1, emitter="c")
        agree(name, sample((5, 70), taper.float32), 0, emitter="c")


def test_gradients():
    taper.manual_seed(2)
    for name in ("cumsum", "cumsum between", "cumprod", "logcumsumexp", "cummax", "cummin", "reversed"):
        for d in (0, 1):
            x0, grads = taper.randn(6, 80, dtype=taper.float64), []
            for g in (SCANS[name], taper.compile(SCANS[name])):
                taper._dynamo.reset()
                x = x0.clone().requires_grad_()
                (g(x, d) * taper.linspace(0, 1, 80, dtype=taper.float64)).sin().sum().backward()
                grads.append(x.grad)
            assert taper.allclose(*grads, rtol=1e-8, atol=1e-8), (name, d)


def schedule(body):
    r = subprocess.run([sys.executable, "-c", "import taper\n" + body], stderr=subprocess.PIPE, text=True, timeout=120,
                       env={**os.environ, "TAPER_LOGS": "schedule,fusion", "TAPER_CACHE": "0"})
    assert r.returncode == 0, r.stderr
    return [tuple(map(int, m)) for m in re.findall(r"schedule of \w+: (\d+) kernels?, \d+ products?, (\d+) library calls?", r.stderr)], r.stderr


def test_which_scans_are_kernels():
    for program, want in (("taper.cumsum(x * 2 + 1, -1) * 3", (1, 0)), ("taper.cumsum(x, 0) * 3", (1, 0)), ("taper.logcumsumexp(x, -1) + 1", (1, 0)),
                          ("taper.logcumsumexp(x, 0) + 1", (1, 0)), ("taper.cummax(x, 1)[0] * 2", (1, 0)), ("taper.cummin(x, 0)[0] * 2", (1, 0)),
                          ("taper.cumsum(x.long() + 1, -1) * 3", (1, 0)), ("taper.cumsum(x, -1)", (0, 1)),
                          ("taper.cumsum(x.exp(), -1).log()", (2, 1))):  # functions of whole registers around a call
        got, log = schedule(f"taper.compile(lambda x: {program})(taper.randn(60, 100))")
        assert got == [want], (program, got, log)
