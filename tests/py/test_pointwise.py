"""Pointwise operators: values, promotion, in-place conversion, errors. Facts, no other library."""
import math
import taper


def raises(cls, fn, text=""):
    try:
        fn()
    except cls as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"{cls.__name__} was expected")


def ramp(n, lo, hi):
    """n floats from lo to hi, made with the operators at hand."""
    t = taper.zeros(n, dtype=taper.float64)
    import ctypes
    (ctypes.c_double * n).from_address(t.data_ptr())[:] = [lo + (hi - lo) * i / (n - 1) for i in range(n)]
    return t


def close(a, b, rel=4e-16):
    return (math.isnan(a) and math.isnan(b)) or a == b or abs(a - b) <= rel * abs(b) + 1e-300


def test_functions_agree_with_libm():
    for name, lo, hi in [("exp", -700, 700), ("log", 1e-6, 1e6), ("sin", -1e4, 1e4), ("cos", -1e4, 1e4),
                         ("tan", -1.5, 1.5), ("asin", -1, 1), ("acos", -1, 1), ("atan", -50, 50),
                         ("sinh", -20, 20), ("cosh", -20, 20), ("tanh", -20, 20), ("asinh", -1e3, 1e3),
                         ("acosh", 1, 1e3), ("atanh", -0.999, 0.999), ("expm1", -5, 5), ("log1p", -0.9, 9),
                         ("erf", -4, 4), ("erfc", -4, 20), ("lgamma", 0.1, 50), ("sqrt", 0, 9), ("log2", 0.1, 99)]:
        x = ramp(1001, lo, hi)
        got = getattr(taper, name)(x).tolist()
        f = getattr(math, name)
        for v, g in zip(x.tolist(), got):
            w = f(v)
            assert close(g, w, 3e-15) or abs(g - w) < 3e-16 * 4, (name, v, g, w)


def test_special_values():
    inf, nan = math.inf, math.nan
    x = taper.zeros(5)
    import ctypes
    (ctypes.c_float * 5).from_address(x.data_ptr())[:] = [0.0, inf, -inf, nan, -1.0]
    def same(t, want):
        got = t.tolist()
        assert all(close(g, w, 1e-6) for g, w in zip(got, want)), (got, want)
    same(x.exp(), [1, inf, 0, nan, math.exp(-1)])
    same(x.log(), [-inf, inf, nan, nan, nan])
    same(x.tanh(), [0, 1, -1, nan, math.tanh(-1)])
    same(x.sigmoid(), [0.5, 1, 0, nan, 1 / (1 + math.e)])
    same(x.sin(), [0, nan, nan, nan, math.sin(-1)])
    same(x.relu(), [0, inf, 0, nan, 0])
    same(x.erf(), [0, 1, -1, nan, math.erf(-1)])
    assert x.isnan().tolist() == [False, False, False, True, False]
    assert x.isinf().tolist() == [False, True, True, False, False]
    same(x.nan_to_num(), [0, 3.4028234663852886e38, -3.4028234663852886e38, 0, -1])


def test_promotion():
    i, f, b = taper.ones(2, dtype=taper.int64), taper.ones(2), taper.ones(2, dtype=taper.bool)
    assert (i + f).dtype == taper.float32 and (i / i).dtype == taper.float32 and (b + 1).dtype == taper.int64
    assert (i + 1.5).dtype == taper.float32 and i.exp().dtype == taper.float32 and (i < f).dtype == taper.bool
    h = taper.ones(2, dtype=taper.float16)
    assert (h + f).dtype == taper.float32 and (h + 1.5).dtype == taper.float16
    assert (h + taper.ones(2, dtype=taper.bfloat16)).dtype == taper.float32
    u = taper.full([2], 200, dtype=taper.uint8)
    assert (u + u).tolist() == [144, 144] and (u + taper.ones(2, dtype=taper.int8)).dtype == taper.int16
    assert i.clamp(0.5).dtype == taper.float32


def test_inplace_converts_while_writing():
    x = taper.ones(3)
    x.add_(taper.full([3], 0.5, dtype=taper.float64))
    assert x.tolist() == [1.5] * 3 and x.dtype == taper.float32
    x.gt_(1)
    assert x.tolist() == [1.0] * 3
    raises(RuntimeError, lambda: taper.ones(2, dtype=taper.int64).add_(0.5),
           "result type Float can't be cast to the desired output type Long")
    raises(RuntimeError, lambda: taper.ones(1).add_(taper.ones(2)), "doesn't match the broadcast shape [2]")


def test_integer_division():
    a, b = taper.full([2], -7, dtype=taper.int32), taper.full([2], 2, dtype=taper.int32)
    assert (a // b).tolist() == [-4, -4] and (a % b).tolist() == [1, 1] and a.fmod(b).tolist() == [-1, -1]
    assert taper.div(a, b, rounding_mode="trunc").tolist() == [-3, -3]
    raises(RuntimeError, lambda: a // 0, "ZeroDivisionError")
    raises(RuntimeError, lambda: taper.div(a, b, rounding_mode="up"), "rounding_mode")


def test_strided_and_broadcast_operands():
    x = taper.zeros(3, 4) + ramp(4, 0, 3)
    assert x.dtype == taper.float64
    t = x.transpose(0, 1)
    y = t + taper.full([4, 1], 10.0)
    assert y.tolist() == [[10.0 + i] * 3 for i in range(4)] and y.stride() == (1, 4)
    assert taper.where(t > 1, t, -1).tolist() == [[-1.0] * 3] * 2 + [[2.0] * 3, [3.0] * 3]


def test_bad_types():
    b = taper.ones(2, dtype=taper.bool)
    raises(RuntimeError, lambda: -b, "Negation, the `-` operator, on a bool tensor")
    raises(RuntimeError, lambda: b - b, "with two bool tensors")
    raises(NotImplementedError, lambda: taper.ones(2) & taper.ones(2), "not implemented for 'Float'")
    raises(RuntimeError, lambda: taper.where(taper.ones(2), 1, 2), "condition to be a boolean tensor")


def test_tails_of_gelu_and_erfc():
    """Where the values leave the normal numbers, and what the formula gives at infinity."""
    inf = float("inf")
    g = taper.nn.functional.gelu(taper.tensor([-12.0, -13.5, -40.0, -1e30, -inf, 0.0, -0.0, 40.0, inf, float("nan")])).tolist()
    assert all(v == 0 and math.copysign(1, v) < 0 for v in g[:4]) and g[4] != g[4], g
    assert math.copysign(1, g[5]) > 0 > math.copysign(1, g[6]) and g[7] == 40 and g[8] == inf and g[9] != g[9]
    for x in (9.0, 9.25, 9.4, 9.7, 10.0):
        for v in (taper.erfc(taper.full((9,), x))[4].item(), taper.compile(taper.erfc)(taper.full((9,), x))[4].item()):
            assert abs(v - math.erfc(x)) <= max(4e-7 * math.erfc(x), 3e-45), (x, v, math.erfc(x))
    assert taper.erfc(taper.tensor([10.3, 30.0, inf, -10.3, -inf])).tolist() == [0, 0, 0, 2, 2]
