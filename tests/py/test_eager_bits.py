"""Eager operators and compiled kernels are one lowering: every pointwise row gives the same bits both ways."""
import itertools
import shutil
import sys
import unittest

import taper
from taper import _C
from test_grad_table import PW, call_of, params

FLOATS = (taper.float32, taper.float64, taper.float16, taper.bfloat16)
INF, NAN = float("inf"), float("nan")
# 0 of both signs, denormals, limits of the types, where functions change their way, halves and whole numbers
POINTS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.5, 3.0, 7.0, 1e-3, -1e-5, 5e-8, -6e-5, 1e-40, -1e-40, 2.3e-308, 5e-324, 20.0, -20.5, 88.8, -88.8,
          -104.5, 710.0, -745.5, 65504.0, 1e10, -3e38, 3.4e38, 1e300, 0.999999, 1.0000001, 31000.25, 1.5e6, INF, -INF, NAN]
# arguments that are no tensors, by name; what is not here has a default
NUMBERS = {"alpha": [1, 2.5], "value": [1, -0.3], "weight": [0.3, 0.75], "exponent": [2, 3, 0.5, -1, -0.5, 1.7, -2, 0], "min": [-0.5, None, 0.0],
           "max": [0.7, 0.0, -0.0], "negative_slope": [0.01], "threshold": [0.5], "min_val": [-1.0, 0.0], "max_val": [2.0, 0.0], "lambd": [0.4], "beta": [1, 1.3],
           "eps": [None, 0.1], "scale": [1, 1.05], "input_scale": [1, 0.7], "is_result": [False, True], "self_is_result": [False],
           "approximate": ["none", "tanh"], "rounding_mode": [None, "trunc", "floor"], "decimals": [2], "n": [1], "nan": [None, 1.5],
           "posinf": [None, 9.0], "neginf": [None, -9.0]}
WHOLE = {"gcd", "lcm", "bitwise", "__"}  # of whole numbers


def rows():
    return [r for r in _C._schemas() if r[3] & PW and not r[0].startswith(tuple(WHOLE))]


def operand(k, n, dtype):
    """Values of operand k: all pairs of points come up between operands 0 and 1, and numbers between them."""
    i = taper.arange(n)
    at = (i % len(POINTS)) if k == 0 else (i // len(POINTS) + 5 * k) % len(POINTS)
    t = taper.tensor(POINTS, dtype=taper.float64)[at]
    some = taper.sin(i.double() * (12.9898 + k)) * 43758.5453
    near = (some - some.floor()) * (8 if k else 30) - (3 if k else 12)
    return taper.where(i % 3 == k % 3, near, t).to(dtype)


def laid(k, how, dtype):
    if how == "plain":
        return operand(k, 1403, dtype)
    if how == "stepped":
        return operand(k, 2 * 531, dtype)[::2] if k != 1 else operand(k, 531, dtype)
    if how == "turned":
        return operand(k, 17 * 9, dtype).view(17, 9).t() if k != 1 else operand(k, 9 * 17, dtype).view(9, 17)
    if how == "spread":
        return operand(k, 33, dtype)[7 * k + 1] if k == 1 else operand(k, 19, dtype) if k else operand(k, 5 * 19, dtype).view(5, 19)
    return operand(k, 11, dtype)[k + 4]  # no dimensions


LAYOUTS = ("plain", "stepped", "turned", "spread", "one")


def calls(row, dtype, layouts):
    """(what, arguments): every layout, every choice of the other arguments."""
    given = []
    k = itertools.count()
    for type_, name, default, _ in params(row[1]):
        if type_ == "Tensor" and name in ("mask", "condition"):
            given.append(lambda how, c, k=next(k): laid(k, how, taper.float32) > 0.5)
        elif type_ == "Tensor" and name == "n":  # the degree of a polynomial, as many steps
            given.append(lambda how, c, k=next(k): laid(k, how, dtype).clamp(-3, 40))
        elif type_ == "Tensor":
            given.append(lambda how, c, k=next(k): laid(k, how, dtype))
        else:
            given.append(lambda how, c, v=NUMBERS[name]: v[c % len(v)])
    choices = max([len(NUMBERS[n]) for t, n, _, _ in params(row[1]) if t != "Tensor"] or [1])
    for h, how in enumerate(layouts):
        for c in range(choices):
            if how == "plain" or c == h % choices:
                yield f"{how}, {c}", [g(how, c) for g in given]
    if row[0] in ("clamp", "clamp.Tensor"):
        return
    if row[0].split(".")[0] in ("add", "sub", "mul", "div", "pow", "atan2", "fmod", "remainder", "maximum", "xlogy", "lt", "floor_divide"):
        for number in (3.14, 2, -0.7):
            args = [g("plain", 0) for g in given]
            try:
                call_of(row[0], row[1])(args[0], number, *args[2:])
            except (TypeError, RuntimeError):
                continue
            yield f"with {number}", [args[0], number, *args[2:]]


def differ(a, b):
    if isinstance(a, (tuple, list)):
        return next((d for d in map(differ, a, b) if d), None)
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{b.dtype}{tuple(b.shape)} instead of {a.dtype}{tuple(a.shape)}"
    a, b = a.contiguous(), b.contiguous()
    bad = a != b
    if a.dtype.is_floating_point:
        kind = {2: taper.int16, 4: taper.int32, 8: taper.int64}[a.element_size()]
        bad = (a.view(kind) != b.view(kind)) & ~(a.isnan() & b.isnan())
    if not bad.any():
        return None
    i = bad.flatten().int().argmax().item()
    return f"{int(bad.sum())} of {a.numel()} differ, [{i}]: compiled {b.flatten()[i].item()!r}, eager {a.flatten()[i].item()!r}"


def cases(row, dtype, layouts):
    call = call_of(row[0], row[1])
    for what, args in calls(row, dtype, layouts):
        try:
            yield what, call, args, call(*args)
        except (RuntimeError, NotImplementedError, TypeError):  # this type, these numbers: refused both ways
            continue


def together(some, options, layouts=LAYOUTS):
    """What differs between eager calls of the rows and one compiled function that makes all of them; how many there were."""
    found = [(row, dtype, *case) for row in some for dtype in FLOATS for case in cases(row, dtype, layouts)]

    def f(args):
        return [call(*a) for (_, _, _, call, _, _), a in zip(found, args)]
    taper._dynamo.reset()
    got = taper.compile(f, options=options)([args for _, _, _, _, args, _ in found])
    bad = [f"{row[0]} {dtype} ({what}): {why}" for (row, dtype, what, _, _, want), have in zip(found, got) for why in [differ(want, have)] if why]
    return len(found), bad


def walk(some, options, layouts=LAYOUTS):
    n, bad = map(list, zip(*(together([row], options, layouts) for row in some)))
    return sum(n), sum(bad, [])


def check(n, bad, least):
    assert not bad and n >= least, f"{len(bad)} of {n}:\n" + "\n".join(bad)


def test_machine_code():
    check(*walk(rows(), {}), 3000)


def test_machine_code_of_a_lower_instruction_set():
    check(*walk(rows(), {"isa": "avx2"}, ["plain", "stepped"]), 1500)


def test_the_interpreter():
    check(*walk(rows()[1::2], {"emitter": "interpreter"}, ["plain"]), 400)


def test_emitted_c():
    if not shutil.which("cc"):
        raise unittest.SkipTest("there is no C compiler")
    check(*together(rows()[1::8], {"emitter": "c"}, ["plain"]), 100)


if __name__ == "__main__":
    check(*walk([r for r in rows() if r[0] in sys.argv[1:]], {}), 1)
