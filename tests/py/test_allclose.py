"""allclose, isclose, equal and assert_close on the values that trip comparisons."""
import taper
from taper import tensor

nan, inf = float("nan"), float("inf")


def test_allclose_on_nan_and_inf():
    c = lambda a, b, **k: taper.allclose(tensor(a), tensor(b), **k)
    assert c([1.0, inf, -inf], [1.0, inf, -inf]) and not c([inf], [-inf]) and not c([inf], [1e30])
    assert not c([nan], [nan]) and c([nan], [nan], equal_nan=True) and not c([nan], [1.0], equal_nan=True)
    assert c([1.0], [1.0 + 1e-6]) and not c([1.0], [1.001]) and c([1.0], [1.001], atol=1e-2)
    assert c([0.0], [1e-9]) and not c([0.0], [1e-7]) and c([], [])
    assert taper.isclose(tensor([1.0, nan]), tensor([1.0, nan])).tolist() == [True, False]
    assert taper.equal(tensor([1, 2]), tensor([1, 2])) and not taper.equal(tensor([1, 2]), tensor([1, 3]))


def fails(text, *a, **k):
    try:
        taper.testing.assert_close(*a, **k)
    except AssertionError as e:
        assert text in str(e), str(e)
        return
    raise AssertionError("assert_close accepted it")


def test_assert_close():
    ok = taper.testing.assert_close
    ok(tensor([1.0, inf]), tensor([1.0 + 1e-7, inf]))
    ok({"a": [tensor([1]), 2.0]}, {"a": [tensor([1]), 2.0]})
    ok(tensor([nan]), tensor([nan]), equal_nan=True)
    ok(tensor([1.0]), tensor([1.1]), rtol=0.2, atol=0)
    fails("Tensor-likes are not close!\n\nMismatched elements: 1 / 2 (50.0%)\nGreatest absolute difference: 1.0 at index (1,)",
          tensor([1.0, 2.0]), tensor([1.0, 3.0]))
    fails("Tensor-likes are not equal!", tensor([1, 2]), tensor([1, 3]))
    fails("The values for attribute 'dtype' do not match: taper.float32 != taper.float64.", tensor([1.0]), tensor([1.0]).double())
    fails("The values for attribute 'shape' do not match", tensor([1.0]), tensor([[1.0]]))
    fails("The failure occurred for item ['a'][1]", {"a": [1, 2.0]}, {"a": [1, 3.0]})
    fails("not close", tensor([nan]), tensor([nan]))
