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


def test_bounds_of_random_integers():
    """random_(to) counts from 0; random_(from, to) may span any 64-bit range."""
    x = taper.zeros(100, dtype=taper.int64)
    assert 0 <= x.random_(5).min().item() and x.max().item() < 5
    assert taper.zeros(100).random_(3).max().item() < 3
    assert 7 <= x.random_(7, 9).min().item() and x.max().item() < 9
    raises(RuntimeError, lambda: x.random_(-5), "random_ expects 'from' to be less than 'to', but got from=0 >= to=-5")


def test_integers_beyond_64_bits():
    """An int no 64-bit integer can hold is an error, not a float and not its nearest neighbour."""
    x, i = taper.ones(3), taper.ones(3, dtype=taper.int64)
    for call in (lambda: x + 2 ** 64, lambda: i + 2 ** 64, lambda: i.fill_(-2 ** 63 - 1), lambda: taper.full((2,), 2 ** 65)):
        raises(OverflowError, call, "int too big to convert")
    for call in (lambda: i + 2 ** 63, lambda: i.fill_(2 ** 63), lambda: taper.full_like(i, 2 ** 63), lambda: i.masked_fill(i == 1, 2.0 ** 63)):
        raises(RuntimeError, call, "value cannot be converted to type int64_t without overflow")
    raises(ValueError, lambda: x.narrow(0, 2 ** 64, 1), "Overflow when unpacking long long")
    raises(TypeError, lambda: taper.zeros(1, 2 ** 64), "argument 'size' failed to unpack the object at pos 2")
    assert (x * 2 ** 63).tolist() == [2.0 ** 63] * 3
    assert taper.arange(-2 ** 62, 2 ** 62, 2 ** 61).tolist() == [-2 ** 62, -2 ** 61, 0, 2 ** 61]
    raises(RuntimeError, lambda: x.expand(-5, 3), "is negative")
    raises(RuntimeError, lambda: x.expand(2 ** 61, 3), "numel: integer multiplication overflow")


def test_integers_that_would_look_like_symbols():
    """2**62 and more: exact in tensors and as numbers; those that look like symbols a clear error, never a wrong answer."""
    big = 2 ** 62 + 1
    t, x = taper.tensor([big, 1]), taper.arange(6.0).view(2, 3)
    assert t.tolist() == [big, 1] and (t + taper.tensor(1)).tolist() == [big + 1, 2] and t.max().item() == big
    for n in (big, 2 ** 63 - 1, -2 ** 63, -big):
        a = taper.zeros(3, dtype=taper.int64)
        a[0] = n
        assert a.tolist() == [n, 0, 0] and (a == n).tolist() == [True, False, False] and a.clone().fill_(n).tolist() == [n] * 3
        assert (a | n).tolist() == [n] * 3 and taper.full((2,), n).tolist() == [n] * 2 and taper.where(a == 0, n, a).tolist() == [n] * 3
        assert a.masked_fill(a == 0, n).tolist() == [n] * 3 and a.clamp(n, n).tolist() == [n] * 3
        assert taper.compile(lambda v: v + n)(taper.zeros(2, dtype=taper.int64)).tolist() == [n, n]
    assert taper.arange(big, big + 2).tolist() == [big, big + 1]
    assert taper.randint(2 ** 63 - 2, 2 ** 63 - 1, (3,)).tolist() == [2 ** 63 - 2] * 3
    tag = 0x5A5A << 48
    for call in (lambda: t + tag, lambda: t == tag, lambda: t.clamp(max=tag), lambda: t.fill_(tag), lambda: taper.full((2,), tag),
                 lambda: taper.arange(tag, tag + 2), lambda: t.__setitem__(0, tag), lambda: t.clamp(max=taper.tensor(tag).item())):
        try:
            r = call()
        except RuntimeError as e:
            assert f"integers from {tag} to" in str(e), e
        else:
            raise AssertionError(f"no error: {r}")
    raises(RuntimeError, lambda: x.tensor_split(big), "pieces of one tensor are too many")
    raises(RuntimeError, lambda: taper.zeros(0).chunk(2 ** 40), "pieces of one tensor are too many")
    raises(RuntimeError, lambda: taper.zeros(1).expand(2 ** 40).split(1), "pieces of one tensor are too many")
    for call in (lambda: x.view(taper.tensor(big)), lambda: x.narrow(0, big, 1), lambda: x.sum(big), lambda: x.roll(big, 0),
                 lambda: taper.zeros(big), lambda: x.select(0, taper.tensor(big)), lambda: x[big]):
        try:
            call()
        except (RuntimeError, IndexError, TypeError):
            continue
        raise AssertionError("no error")
    assert (x + 2 ** 62).tolist()[0][0] == 2.0 ** 62 and x.clamp(max=2 ** 63 - 1).tolist() == x.tolist()
    assert x[:, :2 ** 63 - 1].tolist() == x.tolist()


def test_nothing_given_is_ignored():
    """Arguments that a call does not take are an error, not silently dropped."""
    F, x, v = taper.nn.functional, taper.ones(2, 3), taper.ones(3)
    for call in (lambda: F.relu6(v, 1, 2), lambda: F.selu(v, True, -1), lambda: F.selu_(v, 0), lambda: F.mish(v, [1], 2), lambda: x.is_conj(v),
                 lambda: x.is_complex(1, 2), lambda: x.resolve_neg([1]), lambda: taper.dstack(x), lambda: taper.hstack(x, x),
                 lambda: taper.expm1_(x, out=v), lambda: x.greater(True, out=v), lambda: taper.blackman_window(3, True, -100),
                 lambda: taper.hann_window(v), lambda: taper.diff([1, 2]), lambda: taper.vander(None), lambda: taper.cov(3)):
        raises(TypeError, call)
    raises(RuntimeError, lambda: F.kl_div(taper.tensor(2), v), "Integral inputs not supported")
    raises(TypeError, lambda: x.cpu(v), "takes 0 positional arguments")
    raises(TypeError, lambda: taper.can_cast(v, x), "must be dtype")
    raises(ValueError, lambda: F.interpolate(x), "either size or scale_factor should be defined")
    raises(RuntimeError, lambda: F.threshold(taper.tensor([3, 7]), float("nan"), 1), "without overflow")
    raises(TypeError, lambda: taper.set_autocast_cpu_dtype("float"), "dtype")
    assert F.elu(v, 1.0, True) is v and F.elu_(v, 2.0) is v
