"""Modes, medians of all elements, counts, unique slices and draws of categories on CUDA, against the CPU; on the libcuda of the tests."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_cuda import has_fake, long_under_sanitizers, run  # noqa: E402

HEAD = """
n = float("nan")
def check(why, f, *args):  # equal to the bit but for NaN, and nothing on the host
    before = taper._C._cuda_stats(0)["hosted"]
    got, want = f(*(a.cuda() for a in args)), f(*args)
    assert taper._C._cuda_stats(0)["hosted"] == before, why
    got, want = (x if isinstance(x, tuple) else (x,) for x in (got, want))
    for a, b in zip(got, want):
        a = a.cpu()
        assert a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride(), (why, a, b)
        if a.is_floating_point():
            a, b = a.nan_to_num(77.0), b.nan_to_num(77.0)
        assert taper.equal(a, b), (why, a, b)
taper.manual_seed(0)
"""


def test_orders_and_counts():
    long_under_sanitizers()
    if not has_fake():
        return
    run(HEAD + """
x = taper.randint(0, 5, (6, 17)).float()
x[0, :9] = n
for d in 0, 1:
    check("mode", lambda t: tuple(taper.mode(t, d)), x)
    check("mode, kept", lambda t: tuple(taper.mode(t, d, True)), taper.randint(0, 3, (4, 5)))
check("mode, NaN", lambda t: tuple(taper.mode(t)), taper.tensor([n, n, 1, 2, 2, n]))
check("median", taper.median, x)
check("nanmedian", taper.nanmedian, x)
b = taper.randint(0, 9, (100,))
check("bincount", taper.bincount, b)
check("bincount, longer", lambda t: taper.bincount(t, minlength=20), b.int())
for w in taper.rand(100), taper.rand(100).double(), taper.arange(100):
    check("bincount, weights", taper.bincount, b, w)
check("histc", lambda t: taper.histc(t, 7), taper.randn(50))
check("histc, range", lambda t: taper.histc(t, 7, -1, 1), taper.randn(5, 10).bfloat16())
for f in lambda t: taper.bincount(t), lambda t: taper.histc(t.float() * n, 3):
    for device in "cpu", "cuda":
        try:
            f(taper.tensor([1, -1], device=device))
            raise SystemExit("no error")
        except RuntimeError as e:
            assert "non-negative" in str(e) or "not finite" in str(e), e
""")


def test_unique_slices():
    long_under_sanitizers()
    if not has_fake():
        return
    run(HEAD + """
u = taper.randint(0, 2, (12, 3)).float()
def unique(d, **kw):
    return lambda t: taper.unique(t, dim=d, **kw)
both = dict(return_inverse=True, return_counts=True)
for d in 0, 1:
    check("unique", unique(d, **both), u)
check("values alone", unique(0), u.long())
check("three dimensions", unique(1, **both), taper.randint(0, 2, (2, 9, 2)))
check("NaN", unique(0, **both), taper.tensor([[1, n], [1, n], [0, 2], [0.0, 2]]))
check("all equal", unique(0, **both), taper.ones(5, 2))
check("neighbours", lambda t: taper.unique_consecutive(t, dim=0, **both), u)
""")


def test_draws_of_categories():
    if not has_fake():
        return
    run(HEAD + """
w = taper.tensor([[0.0, 1, 3, 0], [2, 0, 0, 2]], device="cuda")
m = taper.multinomial(w, 3000, replacement=True).cpu()
assert set(m[0].tolist()) == {1, 2} and set(m[1].tolist()) == {0, 3}
assert abs((m[0] == 2).float().mean().item() - 0.75) < 0.04 and abs((m[1] == 3).float().mean().item() - 0.5) < 0.04
m = taper.multinomial(w, 2).cpu().sort(-1)[0]  # each once
assert m.tolist() == [[1, 2], [0, 3]]
one = taper.cat([taper.multinomial(w[0].half(), 1) for _ in range(200)]).cpu()
assert set(one.tolist()) == {1, 2} and 100 < (one == 2).sum().item() < 190
for bad, why in (taper.tensor([1.0, -1]), "either"), (taper.tensor([0.0, 0]), "sum of probabilities"), (taper.tensor([1.0, n]), "either"):
    for t in bad, bad.cuda():
        try:
            taper.multinomial(t, 1)
            raise SystemExit("no error")
        except RuntimeError as e:
            assert why in str(e), e
""")
