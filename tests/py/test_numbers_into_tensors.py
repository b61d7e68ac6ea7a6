"""Python numbers that become elements: converted alike by every operator that takes one, eager and compiled."""
import taper
import taper._dynamo
import taper.nn.functional as F

BACKENDS = ("eager", "aot_eager", "inductor")
MASK = [[True, False, True], [False, True, False]]


def writers(v):
    m, i = taper.tensor(MASK), taper.tensor([1])
    return {
        "fill_": lambda x: x.fill_(v),
        "copy_": lambda x: x.copy_(v),
        "full_like": lambda x: taper.full_like(x, v),
        "new_full": lambda x: x.new_full((2, 3), v),
        "masked_fill": lambda x: x.masked_fill(m, v),
        "masked_fill_": lambda x: x.masked_fill_(m, v),
        "index_fill": lambda x: x.index_fill(1, i, v),
        "fill_diagonal_": lambda x: x.fill_diagonal_(v),
        "pad": lambda x: F.pad(x, (1, 1), value=v),
        "scatter": lambda x: x.scatter(1, taper.tensor([[0]]), v),
        "setitem": lambda x: x.__setitem__((slice(0, 1), 1), v) or x,
        "set by mask": lambda x: x.__setitem__(m, v) or x,
        "scalar_tensor": lambda x: taper.scalar_tensor(v, dtype=x.dtype),
    }


def outcome(f, x):
    try:
        return f(x).tolist()
    except RuntimeError as e:
        return str(e).splitlines()[0]


def every(v, dtype):
    """What each way of writing v leaves, the same in eager mode and compiled."""
    for name, f in writers(v).items():
        want = outcome(f, taper.zeros(2, 3, dtype=dtype))
        for backend in BACKENDS:
            taper._dynamo.reset()
            got = outcome(taper.compile(f, backend=backend), taper.zeros(2, 3, dtype=dtype))
            assert got == want, (name, v, dtype, backend, got, want)
        yield name, want


def elements(value):
    return [e for row in value for e in elements(row)] if isinstance(value, list) else [value]


def test_what_is_not_zero_is_true():
    for v in (0.5, -0.5, 1e-300, float("nan"), 2, True):
        for name, got in every(v, taper.bool):
            assert True in elements(got) and all(type(e) is bool for e in elements(got)), (name, v, got)
    for v in (0, 0.0, -0.0, False):
        for name, got in every(v, taper.bool):
            assert True not in elements(got), (name, v, got)


def test_fractions_are_cut_off():
    for v, want in ((2.7, 2), (-2.7, -2), (0.5, 0), (True, 1)):
        for name, got in every(v, taper.int32):
            assert want in elements(got), (name, v, got)


def test_what_does_not_fit_is_refused_everywhere():
    for v, dtype in ((300, taper.uint8), (-0.5, taper.uint8), (float("nan"), taper.int32), (1e10, taper.int32), (-129, taper.int8)):
        for name, got in every(v, dtype):
            assert isinstance(got, str) and "without overflow" in got, (name, v, dtype, got)
    assert taper.zeros(2, dtype=taper.uint8).fill_(-1).tolist() == [255, 255]  # whole numbers wrap once


def test_numbers_have_the_type_of_the_tensors_they_meet():
    for dtype, near in ((taper.bfloat16, 3.140625), (taper.float16, 3.140625)):
        x = taper.tensor([3.14, 1.0, near, 0.0], dtype=dtype)
        for f, want in (
            (lambda x: x == 3.14, [True, False, True, False]),
            (lambda x: x != 3.14, [False, True, False, True]),
            (lambda x: x > 3.14, [False] * 4),
            (lambda x: x <= 3.14, [True] * 4),
            (lambda x: taper.fmod(x, 3.14) == 0, [True, False, True, True]),
            (lambda x: x - 3.14 == 0, [True, False, True, False]),
        ):
            assert f(x).tolist() == want, (dtype, f(x))
    for backend in BACKENDS:
        x = taper.tensor([3.14, 1.0], dtype=taper.bfloat16)
        assert taper.compile(lambda x: x == 3.14, backend=backend)(x).tolist() == [True, False]


def test_numbers_beside_narrow_integers_have_their_type():
    """-1 beside uint8 is 255, 256 is 0: in comparisons, shifts and divisions, in every way of running."""
    import operator

    ops = [getattr(operator, n) for n in ("lt", "le", "gt", "ge", "eq", "ne", "add", "mul", "floordiv", "mod", "lshift", "rshift", "and_")]
    widths = {taper.uint8: (0, 256), taper.int8: (-128, 128), taper.int16: (-(2**15), 2**15)}
    for dt, (low, high) in widths.items():
        x = taper.tensor([0, 1, 3]).to(dt)
        for op in ops:
            for n in (-1, 300, 255, 256, -129, 70000, 2**31):
                wrapped = (n - low) % (high - low) + low

                def outcome(f):
                    try:
                        return f(x).tolist()
                    except RuntimeError as e:
                        return "ZeroDivisionError" in str(e)

                want = outcome(lambda x: op(x, taper.tensor(wrapped, dtype=dt)))
                f = lambda x: op(x, n)
                assert outcome(f) == want, (dt, op, n)
                for backend in ("aot_eager", "inductor"):
                    taper._dynamo.reset()
                    assert outcome(taper.compile(f, backend=backend)) == want, (dt, op, n, backend)
