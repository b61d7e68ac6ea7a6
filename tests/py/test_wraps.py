"""functools.wraps inside compiled code."""
import functools

import taper


def outside(x: "a tensor", k=2):
    """Its text."""
    return x * k


def marked(x):
    return x + 1


marked.mark = 7


def logged(fn):
    @functools.wraps(fn)
    def inner(*args, **kw):
        return fn(*args, **kw) + 1
    return inner


def test_wrapping_inside_the_graph():
    x = taper.ones(2)

    def f(x):
        g = logged(outside)
        return g(x, k=3), g.__name__, g.__doc__, g.__qualname__, g.__module__, g.__annotations__, g.__wrapped__ is outside
    want, got = f(x), taper.compile(f, fullgraph=True)(x)
    assert taper.equal(want[0], got[0]) and want[1:] == got[1:], (want, got)

    def twice(x):
        return logged(logged(outside))(x)
    assert taper.equal(taper.compile(twice, fullgraph=True)(x), twice(x))


def test_attributes_of_the_wrapped_function_come_along():
    x = taper.ones(2)

    def f(x):
        g = logged(marked)
        return g(x) * g.mark
    c = taper.compile(f)
    assert taper.equal(c(x), f(x))
    marked.mark = 9
    try:
        assert taper.equal(c(x), f(x)) and f(x)[0] == 27
    finally:
        marked.mark = 7


def test_a_wrapper_that_is_kept():
    x = taper.ones(2)

    def f(x):
        return x * 2, logged(outside)
    y, g = taper.compile(f)(x)
    assert g.__name__ == "outside" and g.__wrapped__ is outside and taper.equal(g(x), taper.full((2,), 3.0))


def made(x, k):
    def closed(y: int) -> None:
        """Its text."""
        return y * k
    closed.value, closed.twin = x * k, closed
    return closed


def test_attributes_of_functions_that_are_kept():
    c = taper.compile(lambda x, k: made(x, k))
    x = taper.ones(2)
    for k in (2.0, 3.0):
        g = c(x, k)
        assert g.value.tolist() == [k, k] and g.twin is g and g(x).tolist() == [k, k]
        assert (g.__doc__, g.__module__, g.__annotations__) == ("Its text.", __name__, {"y": int, "return": None})
