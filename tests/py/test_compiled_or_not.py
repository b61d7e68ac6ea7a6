"""Whether a function runs compiled: what debuggers see, what is_compiling() answers, and what counts as a recompile."""
import sys

import taper


def helper(x):
    y = x + 1
    return y * 2


def plain(x):
    z = helper(x)
    return z - 1


class Layer(taper.nn.Module):
    def forward(self, x):
        return x + 1


def lines_of(f, *args):
    seen = []

    def trace(frame, event, arg):
        if frame.f_code.co_filename == __file__ and event == "line":
            seen.append((frame.f_code.co_name, frame.f_lineno - frame.f_code.co_firstlineno))
        return trace
    was = sys.gettrace()
    sys.settrace(trace)
    try:
        r = f(*args)
    finally:
        sys.settrace(was)
    return r, seen


def test_trace_functions_see_the_lines():
    want = [("plain", 1), ("helper", 1), ("helper", 2), ("plain", 2)]
    for compiled in (taper.compile(plain), taper.compile(plain, fullgraph=True, backend="eager")):
        for warm in (False, True):
            r, seen = lines_of(compiled, taper.ones(2))
            assert r.tolist() == [3.0, 3.0] and seen == want
            assert compiled(taper.ones(2)).tolist() == [3.0, 3.0]
    layer = Layer()
    layer.compile()
    for m in (taper.compile(Layer()), layer):
        m(taper.ones(1))
        assert lines_of(m, taper.ones(1))[1] == [("forward", 1)]


def test_the_ledger_says_so():
    taper._dynamo.reset()
    c = taper.compile(lambda x: x * 3, backend="eager")
    for _ in range(3):
        lines_of(c, taper.ones(2))
    rows = [row for row in taper._C._capture_ledger() if "trace function" in str(row[8])]
    assert len(rows) == 1 and rows[0][0] == "<lambda>" and rows[0][7] == 3


def test_a_trace_function_set_on_the_way():
    seen = []

    def trace(frame, event, arg):
        seen.append(frame.f_code.co_name)
        return trace

    def f(x, on):
        x = x + 1
        if on:
            sys.settrace(trace)
        x = helper(x)
        sys.settrace(None)
        return x * 2
    was = sys.gettrace()
    try:
        assert taper.compile(f, backend="eager")(taper.ones(1), True).tolist() == [12.0] and "helper" in seen
    finally:
        sys.settrace(was)


def asks():
    return taper.compiler.is_compiling()


def asks_later():
    for _ in range(1):
        yield asks()


def test_is_compiling_does_not_depend_on_what_is_captured():
    def by_lambda(x):
        return x, (lambda: taper.compiler.is_compiling())()

    def by_generator(x):
        return x, list(asks_later())[0]

    def after_a_break(x):
        taper._dynamo.graph_break()
        return x, asks()

    def with_work(x):
        return x + 1, asks()

    def callback(x):
        return x, sorted([1], key=lambda k: asks() or 1)[0] == 1 and max([0], key=lambda k: 1) == 0 and asks()
    for f in (by_lambda, by_generator, after_a_break, with_work, callback):
        assert f(taper.ones(1))[1] is False
        c = taper.compile(f, backend="eager")
        assert [c(taper.ones(1))[1] for _ in range(3)] == [True] * 3, f.__name__
        assert not asks()

    @taper.compiler.disable
    def left_alone():
        return asks()
    assert taper.compile(lambda x: (x + 1, left_alone()), backend="eager")(taper.ones(1))[1] is False
    assert taper.compile(lambda x: x * 2 if taper.compiler.is_exporting() else x + 1, fullgraph=True)(taper.ones(2)).tolist() == [2.0, 2.0]


def test_what_had_nothing_to_compile_is_no_recompile():
    @taper.compiler.disable
    def inner(x):
        return x

    f = taper.compile(lambda x: inner(x), backend="eager")
    g = taper.compile(lambda x: x + 1, backend="eager")
    f(taper.ones(3)), g(taper.ones(3))
    with taper.compiler.set_stance("fail_on_recompile"):
        for _ in range(5):
            f(taper.ones(3))
            g(taper.ones(3))
        try:
            g(taper.ones(4))
        except RuntimeError as e:
            assert "recompile" in str(e)
        else:
            raise AssertionError("no error")
