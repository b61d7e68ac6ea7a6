"""Matrix products of compiled programs: into planned memory, with what follows run on their rows."""
import os
import subprocess
import sys

import taper
from taper import nn
from taper.nn import functional as F


def same(fn, *args, tol=1e-5):
    want = fn(*args)
    for threads in (1, 2, 3):
        taper.set_num_threads(threads)
        got = taper.compile(fn)(*args)
        taper.set_num_threads(2)
        for g, w in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,)):
            assert g.shape == w.shape and g.stride() == w.stride()
            assert (g - w).abs().max().item() <= tol * (1 + w.abs().max().item()) if w.numel() else True


def test_pointwise_on_the_rows():
    taper.manual_seed(0)
    for m, k, n in ((64, 48, 96), (7, 300, 33), (1, 16, 5), (3, 5, 2), (130, 70, 5000), (0, 4, 4), (4, 0, 8)):
        x, w, b, r = taper.randn(m, k), taper.randn(n, k), taper.randn(n), taper.randn(m, n)
        same(lambda: F.gelu(F.linear(x, w, b)))
        same(lambda: taper.relu(x @ w.t() + r) * 2)
        same(lambda: (F.linear(x, w), taper.sin(F.linear(x, w, b))))
        same(lambda: (taper.mm(x, w.t()).double() * 2).sum(0), tol=1e-4)


def test_reductions_on_the_rows():
    taper.manual_seed(1)
    x, w, b, r, g, h = (taper.randn(*s) for s in ((4, 12, 64), (80, 64), (80,), (4, 12, 80), (80,), (80,)))
    same(lambda: F.layer_norm(F.linear(x, w, b) + r, (80,), g, h))
    same(lambda: taper.softmax(taper.bmm(x, x.transpose(1, 2)), -1))
    same(lambda: taper.bmm(x, x.transpose(1, 2)).sum(1))  # other rows: not on the product's
    same(lambda: taper.softmax(F.linear(x, w), 0))
    same(lambda: F.linear(x, w).t() if F.linear(x, w).dim() == 2 else F.linear(x, w).transpose(0, 2) + 1)


def test_views_keep_the_product_alive():
    """The parts of a split look at the product's memory, which must not be used again while they are."""
    taper.manual_seed(2)
    x, w, b = taper.randn(32, 16), taper.randn(48, 16), taper.randn(48)

    def f():
        q, k, v = F.linear(x, w, b).split(16, dim=1)
        s = taper.softmax(taper.mm(q, k.t()), -1)
        u = taper.mm(taper.mm(s, s) * 2, s) + taper.mm(s, taper.mm(s, s))
        return taper.mm(u, v) + q, k

    same(f, tol=1e-4)

    def g():
        a, c = (x * 2 + 1).chunk(2, dim=1)
        y = taper.mm(taper.mm(x, x.t()), taper.mm(x, x.t()))
        return taper.mm(y, a) + c

    same(g, tol=1e-4)


def test_float64_and_symbolic_sizes():
    taper.manual_seed(3)
    w, b = taper.randn(24, 40).double(), taper.randn(24).double()
    f = taper.compile(lambda x: F.gelu(F.linear(x, w, b)), dynamic=True)
    for m in (5, 9, 64, 1, 33):
        x = taper.randn(m, 40).double()
        assert (f(x) - F.gelu(F.linear(x, w, b))).abs().max().item() < 1e-12


def test_gradients_through_products():
    taper.manual_seed(4)
    net = nn.Sequential(nn.Linear(40, 64), nn.GELU(), nn.Linear(64, 40), nn.LayerNorm(40)).double()
    x = taper.randn(20, 40).double()
    (net(x) ** 2).sum().backward()
    want = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    (taper.compile(net)(x) ** 2).sum().backward()
    for p, w in zip(net.parameters(), want):
        assert (p.grad - w).abs().max().item() < 1e-9


PROGRAM = """
import taper
from taper.nn import functional as F
x, w, b = taper.randn(64, 32), taper.randn(48, 32), taper.randn(48)
taper.compile(lambda: F.gelu(F.linear(x, w, b)))()
"""


def run(**env):
    e = dict(os.environ, **env)
    return subprocess.run([sys.executable, "-c", PROGRAM], env=e, capture_output=True, text=True, check=True).stderr


def test_the_schedule_says_so():
    log = run(TAPER_LOGS="schedule,fusion")
    assert "product addmm = addmm" in log and "on its rows: gelu" in log and "on the rows of the product" in log, log


def test_blas_is_behind_the_same_interface():
    code = PROGRAM.replace("taper.compile", "y = taper.compile") + "print(float((y - F.gelu(F.linear(x, w, b))).abs().max()) < 1e-5)"
    for env in ({"TAPER_PRODUCTS": "blas"}, {"TAPER_ISA": "base"}, {"TAPER_ISA": "avx2"}):
        r = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, **env), capture_output=True, text=True)
        assert r.stdout.strip() == "True", (env, r.stderr)


def test_sums_of_products_are_added_in_place():
    taper.manual_seed(5)
    x = [taper.randn(8, 16).double() for _ in range(6)]
    w = taper.randn(16, 16).double().requires_grad_(True)

    def f(w):
        h = x[0]
        for y in x[1:]:
            h = taper.tanh(h @ w + y)
        return h.sum() + (w * 2).sum()

    f(w).backward()
    want, w.grad = w.grad.clone(), None
    taper.compile(f)(w).backward()
    assert (w.grad - want).abs().max().item() < 1e-12
    a, b = taper.randn(5, 7), taper.randn(7, 3)
    same(lambda: (a @ b + a @ b * 2, (a @ b) + (a @ b) + (a @ (b + 1))), tol=1e-5)


def test_products_of_bool_are_refused_in_graphs_too():
    def f(a):
        a = a >= 1
        a @ a.mT  # nobody reads it
        return a
    for backend in (None, "eager", "aot_eager", "inductor"):
        taper._dynamo.reset()
        try:
            (taper.compile(f, backend=backend) if backend else f)(taper.arange(6).view(3, 2))
        except NotImplementedError as e:
            assert "not implemented for 'Bool'" in str(e)
        else:
            raise AssertionError(f"{backend}: no error")
