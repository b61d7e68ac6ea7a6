"""How often things compile, how deep calls are followed, what the marks on functions do."""
import gc
import os
import subprocess
import sys
import threading
import weakref

import taper
import taper._dynamo as dynamo
from taper import nn
from taper._dynamo.utils import counters


def graphs():
    return counters["stats"]["unique_graphs"]


def fresh():
    dynamo.reset()
    counters.clear()


def test_appending_in_a_broken_loop_does_not_recompile_for_each_length():
    def f(x, n):
        out = []
        for i in range(n):
            out.append(x * i)
            print(end="")
        return out
    fresh()
    got = taper.compile(f, backend="eager")(taper.ones(2), 30)
    assert [t.tolist() for t in got] == [[float(i)] * 2 for i in range(30)] and graphs() <= 3, graphs()


def test_a_list_that_is_appended_to_may_be_looked_at_later():
    def f(x, l, m):
        l.append(x + 1)
        n = len(m)
        l.append(x * 2)
        return n, l[0], l[-1], len(l), m is l
    for share in (False, True):
        for start in ([], [7], [7, 8]):
            fresh()
            c = taper.compile(f, backend="eager")
            for _ in range(3):
                l, k = list(start), list(start)
                want = f(taper.ones(2), k, k if share else [1])
                got = c(taper.ones(2), l, l if share else [1])
                assert repr(got) == repr(want) and repr(l) == repr(k), (got, want)


def test_one_list_under_two_names_is_told_from_two_lists():
    def f(x, a, b):
        a.append(x)
        b.append(x + 1)
        return x * 2
    fresh()
    c = taper.compile(f, backend="eager")
    for same in (False, True, False, True):
        a, b = [], []
        if same:
            b = a
        c(taper.ones(1), a, b)
        assert [t.tolist() for t in a] == ([[1.0], [2.0]] if same else [[1.0]]), (same, a)


class Chain(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.l = inner, nn.Linear(2, 2)

    def forward(self, x):
        x = self.l(x)
        return x if self.inner is None else self.inner(x)


def test_a_chain_of_a_hundred_nested_modules_is_one_graph():
    m = None
    for _ in range(100):
        m = Chain(m)
    x = taper.ones(1, 2)
    seen = []

    def run():
        fresh()
        c = taper.compile(m, backend="eager", fullgraph=True)
        seen.append((c(x).tolist() == m(x).tolist(), graphs()))
    run()
    t = threading.Thread(target=run)  # with a thread's smaller stack, too
    t.start()
    t.join()
    assert seen == [(True, 1), (True, 1)], seen


def test_recursion_deeper_than_inlining_goes():
    def down(x, n):
        return x if n == 0 else down(x + 1, n - 1)
    x = taper.zeros(1)
    for n, most in ((300, 1), (700, 4)):
        fresh()
        assert taper.compile(down, backend="eager")(x, n).item() == n and 1 <= graphs() <= most
    fresh()
    try:
        taper.compile(down, backend="eager")(x, 5000)
    except RecursionError:
        pass
    else:
        raise AssertionError("no RecursionError")


def test_deleting_a_model_frees_its_entries():
    class M(nn.Module):
        def forward(self, x):
            return x * self.k
    fresh()

    def use():
        m = M()
        m.k = taper.ones(3)
        c = taper.compile(m, backend="eager")
        c(taper.ones(3))
        return weakref.ref(m), weakref.ref(m.k)
    refs = [use() for _ in range(3)]
    gc.collect()
    assert all(r() is None for pair in refs for r in pair), refs


ACCUMULATED = """
import taper
def f(x): return x + 1
for n in range(2, 9):
    c = taper.compile(f, backend=lambda gm, inputs: gm.forward, dynamic=False)
    with taper._dynamo.config.patch(accumulated_cache_size_limit=4):
        assert c(taper.ones(n)).tolist() == [2.0] * n
print(taper._dynamo.utils.counters["stats"]["unique_graphs"])
"""


def python(program):
    env = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(taper.__file__)))
    r = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    return r.stdout, r.stderr


def test_the_accumulated_limit_counts_all_backends_of_a_function():
    out, err = python(ACCUMULATED)
    assert out.strip() == "4", out
    text = [line.split("] ")[-1] for line in err.splitlines()]
    assert text[0] == "taper._dynamo hit config.accumulated_cache_size_limit (4)", text
    assert text[1].startswith("    function: 'f' (<string>:3)") and text[2].startswith("    last reason: "), text


def test_run_uses_what_is_compiled_and_compiles_nothing():
    fresh()
    c = taper.compile(lambda x: x.sin() + 1, backend="eager", dynamic=False)
    r = dynamo.run(c)
    r(taper.ones(3))
    assert graphs() == 0
    c(taper.ones(3))
    r(taper.ones(3)), r(taper.ones(4))
    assert graphs() == 1
    c(taper.ones(4))
    assert graphs() == 2


def test_optimize_assert_raises_at_the_first_break():
    def f(x):
        print(end="")
        return x + 1
    fresh()
    try:
        dynamo.optimize_assert("eager")(f)(taper.ones(1))
    except dynamo.exc.Unsupported as e:
        assert "print" in str(e)
    else:
        raise AssertionError("no error")


def test_skip_frame_runs_the_function_plainly_and_captures_what_it_calls():
    def inner(x):
        return x.sin() * 2

    def f(x):
        y = x + 1
        dynamo.skip_frame()
        return inner(y)
    fresh()
    for _ in range(2):
        assert taper.compile(f, backend="eager")(taper.zeros(2)).tolist() == inner(taper.ones(2)).tolist()
    assert counters["stats"]["calls_captured"] == 2 * graphs(), counters  # sin and * only
    try:
        taper.compile(f, backend="eager", fullgraph=True)(taper.zeros(2))
    except dynamo.exc.Unsupported:
        pass
    else:
        raise AssertionError("fullgraph skipped a frame")


def test_disallow_in_graph_breaks_at_the_call():
    def odd(x):
        return x * 3
    dynamo.disallow_in_graph(odd)
    fresh()
    c = taper.compile(lambda x: odd(x + 1) - 1, backend="eager")
    assert c(taper.ones(2)).tolist() == [5.0, 5.0] and sum(counters["graph_break"].values()) == 1
    try:
        taper.compile(lambda x: odd(x), backend="eager", fullgraph=True)(taper.ones(1))
    except dynamo.exc.Unsupported as e:
        assert "disallow_in_graph" in str(e)
    else:
        raise AssertionError("no break")


def test_substitute_in_graph_follows_another_function():
    import bisect

    @dynamo.substitute_in_graph(bisect.bisect_left, skip_signature_check=True)
    def bisect_left(a, x):
        for i, v in enumerate(a):
            if not v < x:
                return i
        return len(a)
    fresh()
    c = taper.compile(lambda x, l: x * bisect.bisect_left(l, 3), backend="eager", fullgraph=True)
    assert c(taper.ones(1), [1, 2, 3, 4]).tolist() == [2.0] and graphs() == 1
    taper._C._capture_role(bisect.bisect_left, None)
    for bad, arg in ((lambda: dynamo.substitute_in_graph(3), "expects a function"),
                     (lambda: dynamo.substitute_in_graph(len)(lambda a, b: 1), "Signature mismatch"),
                     (lambda: dynamo.substitute_in_graph(len)(len), "Python function")):
        try:
            bad()
        except TypeError as e:
            assert arg in str(e), e
        else:
            raise AssertionError(arg)


def test_a_long_loop_with_operators_is_one_graph():
    """More than half a million instructions: each operator allows some more."""
    def f(x):
        for _ in range(60000):
            x = x + 1
        return x
    assert taper.compile(f, backend="eager", fullgraph=True)(taper.zeros(2)).tolist() == [60000.0, 60000.0]
