"""A run-time failure inside a compiled region shows the line that failed, not the first line of the function."""
import traceback

import taper


def pick(x, i):
    return x[i]


def direct(x, i):
    y = x + 1
    z = y.index_select(0, i)  # fails here
    return z * 2


def through(x, i):
    y = x + 1
    return pick(y, i)


def places(fn, backend):
    c = taper.compile(fn, backend=backend)
    x = taper.ones(4)
    c(x, taper.tensor([1, 2]))
    try:
        c(x, taper.tensor([1, 9]))
    except IndexError as e:
        return [(s.name, s.line) for s in traceback.extract_tb(e.__traceback__) if s.filename == __file__]
    raise AssertionError("no IndexError")


def test_the_failing_line_is_shown():
    for b in ("eager", "aot_eager", "inductor"):
        assert places(direct, b)[-1] == ("direct", "z = y.index_select(0, i)  # fails here"), b


def test_a_line_of_an_inlined_function_is_shown():
    for b in ("eager", "aot_eager", "inductor"):
        got = places(through, b)
        assert got[-1] == ("pick", "return x[i]") and got[-2][0] == "through", (b, got)
