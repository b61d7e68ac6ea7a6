"""Products of bfloat16 and float16: eager and compiled give the same bits, and stay near float64."""
import os
import subprocess
import sys

import taper
from taper import nn
from taper.nn import functional as F

EPS = {taper.bfloat16: 2.0 ** -8, taper.float16: 2.0 ** -11}


def near(got, want, dt, depth):
    """One rounding of the result, and sums of `depth` terms in float32."""
    err = (got.double() - want).abs()
    room = EPS[dt] * want.abs() + (2.0 ** -20) * depth
    assert (err <= room).all(), (err - room).max().item()


def shapes():
    return ((1, 40, 70), (4, 64, 32), (7, 33, 65), (16, 128, 96), (64, 700, 48), (130, 64, 200), (33, 1, 5))


def test_products_against_float64_and_compiled():
    taper.manual_seed(0)
    for dt in EPS:
        for m, k, n in shapes():
            x, w, b = (taper.randn(*s).to(dt) for s in ((m, k), (n, k), (n,)))
            r = taper.randn(m, n).to(dt)
            calls = ((lambda: x @ w.t(), x.double() @ w.double().t()),
                     (lambda: F.linear(x, w, b), x.double() @ w.double().t() + b.double()),
                     (lambda: taper.addmm(r, x, w.t(), beta=0.5, alpha=2),
                      0.5 * r.double() + 2 * (x.double() @ w.double().t())),
                     (lambda: w @ x.t(), w.double() @ x.double().t()))
            for call, want in calls:
                got = call()
                near(got, want, dt, 4 * k ** 0.5 + 8)
                assert taper.equal(taper.compile(call)(), got)
        q, p = taper.randn(6, 20, 36).to(dt), taper.randn(6, 36, 44).to(dt)
        got = taper.bmm(q, p)
        near(got, taper.bmm(q.double(), p.double()), dt, 64)
        assert taper.equal(taper.compile(lambda: taper.bmm(q, p))(), got)
        s = q.transpose(1, 2)
        assert taper.equal(taper.compile(lambda: taper.bmm(s, q))(), taper.bmm(s, q))


def test_what_follows_runs_on_rounded_rows():
    taper.manual_seed(1)
    x, w, b = (taper.randn(*s).to(taper.bfloat16) for s in ((48, 64), (96, 64), (96,)))

    def f():
        return F.gelu(F.linear(x, w, b)), taper.softmax(x @ w.t(), -1)

    for got, want in zip(taper.compile(f)(), f()):
        assert taper.equal(got, want)


def test_training_in_bfloat16():
    def losses(compiled):
        taper.manual_seed(2)
        net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).to(taper.bfloat16)
        x, y = taper.randn(40, 32).to(taper.bfloat16), taper.randn(40, 8).to(taper.bfloat16)
        run = taper.compile(net) if compiled else net
        out = []
        for _ in range(6):
            for p in net.parameters():
                p.grad = None
            loss = F.mse_loss(run(x), y)
            loss.backward()
            with taper.no_grad():
                for p in net.parameters():
                    p -= 0.1 * p.grad
            out.append(loss.item())
        return out

    eager, compiled = losses(False), losses(True)
    assert eager[-1] < eager[0]
    assert all(abs(a - b) <= 0.02 * abs(a) for a, b in zip(eager, compiled)), (eager, compiled)


def test_autocast_multiplies_bfloat16():
    taper.manual_seed(3)
    net, x = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 16)), taper.randn(24, 64)

    def f(v):
        with taper.autocast("cpu", dtype=taper.bfloat16):
            return net(v)

    with taper.no_grad():
        want, got = f(x), taper.compile(f)(x)
        assert want.dtype == taper.bfloat16 and taper.equal(got, want)
        assert (want.float() - net(x)).abs().max().item() < 0.03


def test_thread_count_changes_no_bit():
    taper.manual_seed(4)
    x, w = taper.randn(200, 600).to(taper.bfloat16), taper.randn(300, 600).to(taper.bfloat16)
    results = []
    for threads in (1, 2, 3, 5):
        taper.set_num_threads(threads)
        results.append((x @ w.t(), (x.float() @ w.float().t())))
    taper.set_num_threads(2)
    for r in results[1:]:
        assert taper.equal(r[0], results[0][0]) and taper.equal(r[1], results[0][1])


def test_medium_precision():
    taper.manual_seed(5)
    x, w = taper.randn(96, 256), taper.randn(256, 80)
    exact = x.double() @ w.double()
    highest = x @ w
    taper.set_float32_matmul_precision("medium")
    try:
        medium, compiled = x @ w, taper.compile(lambda: x @ w)()
    finally:
        taper.set_float32_matmul_precision("highest")
    assert taper.equal(x @ w, highest) and taper.equal(medium, compiled)
    assert medium.dtype == taper.float32
    assert (medium.double() - exact).abs().max().item() < 0.25
    assert (highest.double() - exact).abs().max().item() < 1e-3


def test_convolutions_of_bfloat16():
    """Forward and both gradients against float64; eager and compiled alike, whatever the thread count."""
    taper.manual_seed(7)
    bf = taper.bfloat16
    for c, o, size, kernel, kw in ((16, 32, 12, 3, {"padding": 1}), (8, 16, 40, 3, {}), (32, 24, 9, 1, {}), (4, 16, 11, 5, {"stride": 2, "padding": 2}),
                                   (16, 16, 10, 3, {"padding": 2, "dilation": 2}), (3, 16, 30, 3, {"padding": 1})):
        x, w, b = (taper.randn(*s).to(bf) for s in ((3, c, size, size), (o, c, kernel, kernel), (o,)))
        want_in = [t.double().requires_grad_() for t in (x, w, b)]
        want = F.conv2d(*want_in, **kw)
        g = taper.randn(*want.shape).to(bf)
        want.backward(g.double())
        results = []
        for threads in (1, 3):
            taper.set_num_threads(threads)
            for fn in (F.conv2d, taper.compile(lambda x, w, b, **k: F.conv2d(x, w, b, **k))):
                leaves = [t.clone().requires_grad_() for t in (x, w, b)]
                y = fn(*leaves, **kw)
                y.backward(g)
                results.append([y.detach()] + [t.grad for t in leaves])
        taper.set_num_threads(2)
        near(results[0][0], want.detach(), bf, 100)
        for got, t in zip(results[0][1:], want_in):
            near(got, t.grad, bf, 400)
        for r in results[1:]:
            assert all(taper.equal(p, q) for p, q in zip(r, results[0]))


def test_other_units_agree():
    """Without units for bf16, and by BLAS: the same to the last bits of bf16."""
    program = """if True:
        import taper
        taper.manual_seed(6)
        x, w, b = (taper.randn(*s).to(taper.bfloat16) for s in ((40, 96), (72, 96), (72,)))
        f = lambda: taper.nn.functional.linear(x, w, b)
        y = taper.compile(f)()
        assert (y.float() - f().float()).abs().max().item() <= 0.13
        want = x.double() @ w.double().t() + b.double()
        assert ((y.double() - want).abs() <= 2.0 ** -8 * want.abs() + 1e-3).all()
        z = taper.compile(lambda: taper.bmm(x[None], w.t()[None]))()
        assert ((z.double() - x.double() @ w.double().t()).abs() <= 0.13).all()
    """
    for env in ({"TAPER_UNITS": "none"}, {"TAPER_UNITS": "avx512"}, {"TAPER_PRODUCTS": "blas"},
                {"TAPER_ISA": "avx2"}, {"TAPER_ISA": "base"}, {"TAPER_EMITTER": "c"}):
        subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, **env})
