"""Ordering, searching and data-dependent sizes. Facts, no other library."""
import math
import taper


def raises(cls, fn, text=""):
    try:
        fn()
    except cls as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"{cls.__name__} was expected")


T = taper.tensor


def test_sort_is_stable_and_puts_nan_last():
    v, i = T([3.0, math.nan, -1.0, 3.0, -math.inf]).sort()
    assert v.tolist()[:4] == [-math.inf, -1, 3, 3] and i.tolist() == [4, 2, 0, 3, 1]
    v, i = T([1, 2, 1, 2]).sort(descending=True)
    assert v.tolist() == [2, 2, 1, 1] and i.tolist() == [1, 3, 0, 2]
    x = T([[3, 1], [2, 9]])
    assert x.sort(0)[0].tolist() == [[2, 1], [3, 9]] and x.argsort(1).tolist() == [[1, 0], [0, 1]]


def test_long_sorts():
    n = 50000
    x = taper.randperm(n)
    assert (x.sort()[0] == taper.arange(n)).all().item()
    y = (x - n // 2).to(taper.float64) * 1e-3
    assert y.sort(descending=True)[0].tolist() == sorted(y.tolist(), reverse=True)
    assert x.topk(3)[0].tolist() == [n - 1, n - 2, n - 3] and x.kthvalue(10)[0].item() == 9


def test_selection():
    x = T([5.0, 1.0, 4.0, 2.0])
    v, i = x.topk(2, largest=False)
    assert v.tolist() == [1, 2] and i.tolist() == [1, 3]
    assert x.median().item() == 2 and x.quantile(0.5).item() == 3 and x.kthvalue(3)[0].item() == 4
    assert T([1, 2, 2, 1, 3]).mode()[0].item() == 1
    assert math.isnan(T([1, math.nan]).median().item()) and T([1, math.nan]).nanmedian().item() == 1
    raises(RuntimeError, lambda: x.topk(9), "selected index k out of range")
    raises(IndexError, lambda: x.sort(2), "Dimension out of range")


def test_counts_and_positions():
    x = T([[0, 2], [3, 0]])
    assert x.nonzero().tolist() == [[0, 1], [1, 0]] and taper.zeros(3).nonzero().shape == (0, 1)
    assert T([1, 1, 3]).bincount().tolist() == [0, 2, 0, 1] and T([1.0, 2.0, 1.0]).histc(4, 0, 3).tolist() == [0, 2, 1, 0]
    u, inv, cnt = taper._unique2(T([3, 1, 3]), True, True, True)
    assert u.tolist() == [1, 3] and inv.tolist() == [1, 0, 1] and cnt.tolist() == [1, 2]
    raises(RuntimeError, lambda: T([-1]).bincount(), "bincount only supports 1-d non-negative integral inputs.")


def test_searches():
    b = T([1.0, 3.0, 5.0])
    assert taper.searchsorted(b, T([3.0, 6.0, 0.0])).tolist() == [1, 3, 0]
    assert taper.bucketize(T([3.0]), b, right=True).tolist() == [2] and taper.bucketize(4.0, b).item() == 2
    assert taper.isin(T([1, 2, 3]), T([2, 5])).tolist() == [False, True, False]
    assert taper.equal(b, T([1, 3, 5])) is True and taper.equal(b, b[:2]) is False
    assert taper.allclose(b, b + 1e-7) is True and taper.allclose(b, b + 1) is False
