"""The generated Python surface: names, argument parsing, errors."""
import taper


def raises(cls, fn, text=""):
    try:
        fn()
    except cls as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"{cls.__name__} was expected")


def test_function_method_operator_agree():
    x = taper.ones(2, 3)
    want = [[2.0] * 3] * 2
    assert taper.add(x, 1).tolist() == want
    assert x.add(1).tolist() == want
    assert (x + 1).tolist() == want and (1 + x).tolist() == want
    assert taper.add(input=x, other=x, alpha=1).tolist() == want


def test_inplace_returns_self():
    x = taper.ones(3)
    y = x.add_(1)
    assert y is x and x.tolist() == [2.0] * 3 and x._version == 1


def test_sizes_as_varargs_or_list():
    assert taper.ones(2, 3).shape == taper.ones([2, 3]).shape == taper.ones((2, 3)).shape == (2, 3)
    assert repr(taper.ones(2, 3).shape) == "taper.Size([2, 3])"
    assert taper.ones(2, 3).shape.numel() == 6


def test_argument_errors_name_the_argument():
    x = taper.ones(3)
    raises(TypeError, lambda: taper.add(x, "a"), "argument 'other' (position 2) must be Tensor, not str")
    raises(TypeError, lambda: taper.sin(), 'missing 1 required positional arguments: "input"')
    raises(TypeError, lambda: taper.sin(x, q=1), "unexpected keyword argument 'q'")
    raises(TypeError, lambda: x.sum("a"), "sum() received an invalid combination of arguments - got (str), but expected one of:")


def test_shape_errors():
    raises(RuntimeError, lambda: taper.ones(3) + taper.ones(4),
           "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0")
    raises(RuntimeError, lambda: taper.ones(2, -1), "negative dimension -1")
    raises(IndexError, lambda: taper.ones(2).sum(3), "Dimension out of range (expected to be in range of [-1, 0], but got 3)")


def test_integers_that_would_look_like_symbols():
    """2**62 and more: exact in tensors, a clear error as numbers, never a wrong answer."""
    big = 2 ** 62 + 1
    t, x = taper.tensor([big, 1]), taper.arange(6.0).view(2, 3)
    assert t.tolist() == [big, 1] and (t + taper.tensor(1)).tolist() == [big + 1, 2] and t.max().item() == big
    for call in (lambda: t + big, lambda: t == big, lambda: t.clamp(max=big), lambda: t.fill_(big), lambda: taper.full((2,), big),
                 lambda: taper.arange(big, big + 2), lambda: t.__setitem__(0, big), lambda: t.clamp(max=taper.tensor(big).item())):
        try:
            r = call()
        except RuntimeError as e:
            assert "integers of 2**62 and more" in str(e), e
        else:
            raise AssertionError(f"no error: {r}")
    for call in (lambda: x.view(taper.tensor(big)), lambda: x.narrow(0, big, 1), lambda: x.sum(big), lambda: x.roll(big, 0),
                 lambda: taper.zeros(big), lambda: x.select(0, taper.tensor(big)), lambda: x[big]):
        try:
            call()
        except (RuntimeError, IndexError, TypeError):
            continue
        raise AssertionError("no error")
    assert (x + 2 ** 62).tolist()[0][0] == 2.0 ** 62 and x.clamp(max=2 ** 63 - 1).tolist() == x.tolist()
    assert x[:, :2 ** 63 - 1].tolist() == x.tolist()
