"""Reductions and scans: values, shapes, empty inputs, errors. Facts, no other library."""
import ctypes
import math
import taper


def raises(cls, fn, text=""):
    try:
        fn()
    except cls as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"{cls.__name__} was expected")


def make(values, *shape):
    t = taper.zeros(len(values), dtype=taper.float64)
    (ctypes.c_double * len(values)).from_address(t.data_ptr())[:] = values
    return t.view(list(shape)) if shape else t


def test_sums_over_dimensions():
    x = make(list(range(24)), 2, 3, 4)
    assert x.sum().item() == 276 and x.sum(0).tolist() == [[12 + 2 * (4 * i + j) for j in range(4)] for i in range(3)]
    assert x.sum((0, 2)).tolist() == [60.0, 92.0, 124.0] and x.sum(-1, keepdim=True).shape == (2, 3, 1)
    assert x.transpose(0, 2).sum(0).tolist() == [[6.0, 54.0], [22.0, 70.0], [38.0, 86.0]]
    assert x.mean().item() == 11.5 and x.prod(0).shape == (3, 4)
    assert taper.ones(5, dtype=taper.bool).sum().dtype == taper.int64
    assert taper.zeros(0).sum().item() == 0 and taper.zeros(0).prod().item() == 1


def test_long_sums_are_accurate():
    n = 1 << 20
    assert taper.full([n], 0.1).sum().item() == float(taper.full([1], 0.1).item() * n) or \
        abs(taper.full([n], 0.1).sum().item() - n * 0.1) / (n * 0.1) < 1e-7
    x = taper.ones(n, dtype=taper.float16)
    assert x.sum().item() == math.inf and x.mean().item() == 1.0
    assert taper.ones(3, n // 4).sum(0).sum().item() == 3 * (n // 4)


def test_extremes_and_positions():
    nan = math.nan
    x = make([3, 1, 2, 9, 9, -4], 2, 3)
    v, i = x.max(1)
    assert v.tolist() == [3, 9] and i.tolist() == [0, 0] and x.argmin().item() == 5
    assert x.amax(0).tolist() == [9, 9, 2] and x.min().item() == -4 and x.argmax(0).tolist() == [1, 1, 0]
    y = make([1, nan, 2])
    assert math.isnan(y.max().item()) and y.argmax().item() == 1 and math.isnan(y.amin().item())
    assert y.nansum().item() == 3 and y.nanmean().item() == 1.5
    raises(RuntimeError, lambda: taper.zeros(0).max(), "max(): Expected reduction dim to be specified")
    raises(IndexError, lambda: taper.zeros(2, 0).max(1), "Expected reduction dim 1 to have non-zero size")


def test_spread():
    x = make([1, 2, 3, 4], 2, 2)
    assert abs(x.var().item() - 5 / 3) < 1e-15 and x.var(correction=0).item() == 1.25
    assert x.std(1).tolist() == [math.sqrt(0.5)] * 2 and x.var(0, False).tolist() == [1.0, 1.0]
    v, m = taper.var_mean(x, 1)
    assert v.tolist() == [0.5, 0.5] and m.tolist() == [1.5, 3.5]
    big = make([1e9 + i for i in (4, 7, 13, 16)])
    assert abs(big.var().item() - 30) < 1e-6
    raises(RuntimeError, lambda: taper.ones(3, dtype=taper.int64).mean(), "could not infer output dtype")


def test_norms_and_logsumexp():
    x = make([3, -4, 0], 3)
    assert x.norm().item() == 5 and x.norm(1).item() == 7 and x.norm(math.inf).item() == 4
    assert x.norm(0).item() == 2 and abs(x.norm(3).item() - 91 ** (1 / 3)) < 1e-14
    assert taper.full([2], 1e30).norm().item() > 1.4e30
    y = make([1000, 1000], 2)
    assert abs(y.logsumexp(0).item() - (1000 + math.log(2))) < 1e-12
    assert make([-math.inf, -math.inf]).logsumexp(0).item() == -math.inf


def test_softmax():
    x = make([0, math.log(3), 1000, 1000], 2, 2)
    for t in (x.softmax(1), x.log_softmax(1).exp()):
        got = t.tolist()
        assert all(abs(a - b) < 1e-12 for r, w in zip(got, [[0.25, 0.75], [0.5, 0.5]]) for a, b in zip(r, w)), got
    assert [round(v, 12) for v in x.softmax(0).sum(0).tolist()] == [1, 1]
    assert x.softmax(0, dtype=taper.float32).dtype == taper.float32


def test_scans():
    x = make([1, 2, 3, 4, 5, 6], 2, 3)
    assert x.cumsum(1).tolist() == [[1, 3, 6], [4, 9, 15]] and x.cumsum(0).tolist() == [[1, 2, 3], [5, 7, 9]]
    assert x.cumprod(1).tolist() == [[1, 2, 6], [4, 20, 120]]
    v, i = make([1, 3, 3, 2]).cummax(0)
    assert v.tolist() == [1, 3, 3, 3] and i.tolist() == [0, 1, 2, 2]
    assert abs(make([0, 0, 0]).logcumsumexp(0).tolist()[2] - math.log(3)) < 1e-15


def test_any_all_count():
    x = make([0, 1, 0, 0], 2, 2)
    assert x.any().item() is True and x.all().item() is False and x.any(1).tolist() == [True, False]
    assert x.count_nonzero().item() == 1 and taper.zeros(0).all().item() is True


def test_rows_of_every_length():
    """Short rows and the ends of long ones are folded like the rest: every element once, NaN and infinities seen."""
    for n in (*range(1, 40), 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 263, 300, 511, 520, 1000):
        vals = [((i * 37) % 101 - 50) / 16 + 0.01 for i in range(n)]
        x = taper.tensor([vals, vals[::-1]])
        a = [float(v) for v in x[0].tolist()]
        assert abs(x.sum(1)[0].item() - math.fsum(a)) < 1e-4 * max(1, abs(math.fsum(a))), n
        assert x.amax(1).tolist() == [max(a)] * 2 and x.amin(1).tolist() == [min(a)] * 2, n
        small = [1 + ((i * 29) % 17 - 8) / 64 for i in range(n)]
        want = math.prod(taper.tensor(small).tolist())
        assert abs(taper.tensor([small, small]).prod(1)[1].item() / want - 1) < 1e-5, n
        assert abs(taper.tensor([vals]).norm(dim=1).item() - math.sqrt(math.fsum(v * v for v in a))) < 1e-4 * math.sqrt(n), n
        for k in {0, n // 2, n - 1}:
            bad = list(vals)
            bad[k] = math.nan
            y = taper.tensor([bad])
            assert math.isnan(y.amax(1).item()) and math.isnan(y.amin(1).item()) and math.isnan(y.sum(1).item()) and math.isnan(y.prod(1).item()), (n, k)
            assert abs(y.nansum(1).item() - math.fsum(a[:k] + a[k + 1:])) < 1e-3 * max(1, n / 50), (n, k)
            bad[k] = -math.inf
            y = taper.tensor([bad])
            assert y.amin(1).item() == -math.inf and (n == 1 or y.amax(1).item() == max(a[:k] + a[k + 1:])), (n, k)
            bad[k] = 0.0
            assert taper.tensor([bad]).prod(1).item() == 0
