"""Functions that choose between rows, and _foreach_ lists."""
import taper

T = taper.tensor


def test_unique_returns_what_was_asked():
    x = T([[3, 1], [3, 2]])
    assert taper.unique(x).tolist() == [1, 2, 3] and x.unique(dim=1).tolist() == [[1, 3], [2, 3]]
    u, c = taper.unique(x, return_counts=True)
    assert u.tolist() == [1, 2, 3] and c.tolist() == [1, 1, 2]
    assert taper.unique_consecutive(T([1, 1, 2, 1])).tolist() == [1, 2, 1]
    assert T([1, 1, 2]).unique_consecutive(return_inverse=True)[1].tolist() == [0, 0, 1]


def test_nonzero_as_tuple():
    r, c = T([[0, 1], [2, 0]]).nonzero(as_tuple=True)
    assert r.tolist() == [0, 1] and c.tolist() == [1, 0]


def test_norm_spellings():
    x = T([[3.0, 4.0], [6.0, 8.0]])
    assert x.norm(dim=1).tolist() == [5, 10] and taper.norm(x, "fro", dim=1, keepdim=True).shape == (2, 1)
    assert x.norm(1).item() == 21 and x.norm(dtype=taper.float64).dtype == taper.float64


def test_foreach():
    a, b = [T([1.0, 2.0]), T([3.0])], [T([10.0, 20.0]), T([30.0])]
    assert [t.tolist() for t in taper._foreach_add(a, b)] == [[11, 22], [33]]
    assert [t.tolist() for t in taper._foreach_mul(a, 2)] == [[2, 4], [6]]
    assert [t.tolist() for t in taper._foreach_pow(a, [2, 3])] == [[1, 4], [27]]
    taper._foreach_lerp_(a, b, 0.5)
    assert [t.tolist() for t in a] == [[5.5, 11], [16.5]]
    assert [t.item() for t in taper._foreach_norm([T([3.0, 4.0])])] == [5]
    taper._foreach_zero_(a)
    assert a[0].tolist() == [0, 0]
    try:
        taper._foreach_add(a, b[:1])
    except RuntimeError as e:
        assert "same number of tensors, got 2 and 1" in str(e)
    else:
        raise AssertionError
