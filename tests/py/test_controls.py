"""disable, stances, error_on_graph_break, graph_break, is_compiling, logging functions."""
import contextlib
import io
import logging
import os
import subprocess
import sys
import tempfile
import textwrap
import warnings

import taper
from taper import nn
from taper._dynamo.utils import counters

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def fresh():
    taper._dynamo.reset()


def graphs():
    return counters["stats"]["unique_graphs"]


def breaks(fn, *args):
    """The reasons of all graph breaks of a call."""
    return [b.reason for b in taper._dynamo.explain(fn)(*args).break_reasons]


def run(program, **env):
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "playground.py")
        with open(path, "w") as f:
            f.write(textwrap.dedent(program))
        e = {k: v for k, v in os.environ.items() if not k.startswith("TAPER")}
        e.update(env, PYTHONPATH=os.path.join(ROOT, "python"))
        p = subprocess.run([sys.executable, "-m", "taper", path], env=e, capture_output=True, text=True, timeout=60, cwd=d)
        return p.stdout, p.stderr, p.returncode


# --- disable
def inner_fn(x):
    return x * 3


@taper.compiler.disable
def plain(x):
    return inner_fn(x)


@taper.compiler.disable()
def with_parentheses(x):
    return inner_fn(x)


@taper.compiler.disable(recursive=False, reason="the sparse part")
def only_this_frame(x):
    return inner_fn(x)


def test_disable_recursive_skips_callees_and_the_caller_resumes():
    for f in (plain, with_parentheses):
        fresh()
        assert taper.equal(taper.compile(lambda x: f(x + 1) * 2, backend="eager")(taper.ones(2)), taper.full((2,), 12.0))
        assert graphs() == 2
        assert not any(r.function == "inner_fn" for r in taper.compiler.ledger())
    (reason,) = breaks(lambda x: plain(x + 1) * 2, taper.ones(2))
    assert reason == "Skip calling `taper.compiler.disable()`d function plain", reason


def test_disable_not_recursive_captures_callees_and_gives_the_reason():
    fresh()
    assert taper.equal(taper.compile(lambda x: only_this_frame(x + 1) * 2, backend="eager")(taper.ones(2)), taper.full((2,), 12.0))
    assert any(r.function == "inner_fn" and r.frame_id >= 0 for r in taper.compiler.ledger())
    assert graphs() == 3
    (reason,) = breaks(lambda x: only_this_frame(x + 1) * 2, taper.ones(2))
    assert reason == "Skip inlining `taper.compiler.disable()`d function only_this_frame, reason: the sparse part", reason


def test_disable_on_methods_modules_and_classes():
    class Part(nn.Module):
        def forward(self, x):
            return inner_fn(x)

        @taper.compiler.disable
        def method(self, x):
            return x - 1

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Part()

        def forward(self, x):
            return self.part.method(self.part(x + 1)) * 2
    net = Net()
    want = net(taper.ones(2))
    fresh()
    assert taper.equal(taper.compile(net, backend="eager")(taper.ones(2)), want) and graphs() == 2
    net.part = taper.compiler.disable(Part())
    fresh()
    assert taper.equal(taper.compile(net, backend="eager")(taper.ones(2)), want)
    assert not any(r.function == "inner_fn" for r in taper.compiler.ledger())

    @taper.compiler.disable
    class Callable:
        def __call__(self, x):
            return inner_fn(x)
    c = Callable()
    fresh()
    assert taper.equal(taper.compile(lambda x: c(x + 1) * 2, backend="eager")(taper.ones(2)), taper.full((2,), 12.0))
    assert not any(r.function == "inner_fn" for r in taper.compiler.ledger())


def test_is_compiling():
    def fn(x):
        return x + 1 if taper.compiler.is_compiling() else x - 1
    fresh()
    assert taper.equal(fn(taper.ones(1)), taper.zeros(1))
    assert taper.equal(taper.compile(fn, fullgraph=True)(taper.ones(1)), taper.full((1,), 2.0))


# --- stances
def test_stance_force_eager():
    fresh()
    f = taper.compile(lambda x: x + 1, backend="eager")
    with taper.compiler.set_stance("force_eager"):
        f(taper.ones(2))
    assert graphs() == 0
    f(taper.ones(2))
    assert graphs() == 1


def test_stance_eager_on_recompile_uses_what_is_there():
    fresh()
    f = taper.compile(lambda x: x + 1, backend="eager")
    f(taper.ones(2))
    with taper.compiler.set_stance("eager_on_recompile"):
        assert taper.equal(f(taper.ones(3)), taper.full((3,), 2.0)) and graphs() == 1
        f(taper.ones(2))
        assert taper.compiler.ledger()[0].runs >= 2
    f(taper.ones(3))
    assert graphs() == 2


def test_stance_fail_on_recompile_lists_the_guards():
    fresh()
    f = taper.compile(lambda x: x + 1, backend="eager")
    f(taper.ones(2))
    with taper.compiler.set_stance("fail_on_recompile"):
        f(taper.ones(2))
        try:
            f(taper.ones(3))
        except RuntimeError as e:
            assert "fail_on_recompile" in str(e) and "size mismatch at index 0. expected 2, actual 3" in str(e), e
        else:
            raise AssertionError("recompiled")
    f(taper.ones(3))


def test_stance_eager_then_compile_learns_sizes_from_the_eager_call():
    fresh()
    f = taper.compile(lambda x: x + 1, backend="eager")
    with taper.compiler.set_stance("eager_then_compile"):
        f(taper.ones(2))
        assert graphs() == 0
        f(taper.ones(3))
        assert graphs() == 1
        f(taper.ones(4))
        assert graphs() == 1  # dynamic at once


def test_stance_aot_eager_then_compile():
    fresh()
    seen = []
    f = taper.compile(lambda x: x + 1, backend=lambda gm, inputs: (seen.append(1), gm.forward)[1])
    with taper.compiler.set_stance("aot_eager_then_compile"):
        f(taper.ones(2))
        assert graphs() == 1 and not seen
        f(taper.ones(2))
        assert graphs() == 2 and seen


def test_stance_force_backend_call_and_decorator_forms():
    fresh()
    f = taper.compile(lambda x: x + 1)
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm.forward
    with taper.compiler.set_stance(force_backend=backend):
        f(taper.ones(2))
    assert len(seen) == 1

    @taper.compiler.set_stance("force_eager")
    def quiet():
        return f(taper.ones(5))
    quiet()
    assert graphs() == 1
    taper.compiler.set_stance("force_eager")
    f(taper.ones(6))
    assert graphs() == 1
    taper.compiler.set_stance("default")
    f(taper.ones(6))
    assert graphs() == 2
    for args, kw, word in (((("nonsense",)), {}, "invalid"), ((("force_eager",)), {"force_backend": "eager"}, "force_backend")):
        try:
            taper.compiler.set_stance(*args, **kw)
        except RuntimeError as e:
            assert word in str(e), e
        else:
            raise AssertionError(args)


# --- breaks that are errors
def breaking(x):
    x = x + 1
    taper._dynamo.graph_break()
    return x * 2


def test_error_on_graph_break_as_a_context_around_the_call():
    fresh()
    f = taper.compile(breaking, backend="eager")
    with taper._dynamo.error_on_graph_break(True):
        try:
            f(taper.ones(2))
        except taper._dynamo.exc.Unsupported:
            pass
        else:
            raise AssertionError("broke silently")
    assert taper.equal(f(taper.ones(2)), taper.full((2,), 4.0))


def test_error_on_graph_break_inside_a_function_and_as_a_decorator():
    def fn(x):
        x = breaking(x)
        with taper._dynamo.error_on_graph_break(True):
            x = x.sin()
            with taper._dynamo.error_on_graph_break(False):
                taper._dynamo.graph_break()
            x = x.cos()
        return x
    fresh()
    assert taper.allclose(taper.compile(fn, backend="eager")(taper.ones(2)), fn(taper.ones(2)))

    def bad(x):
        with taper._dynamo.error_on_graph_break(True):
            return breaking(x)

    @taper._dynamo.error_on_graph_break(True)
    def bad2(x):
        return breaking(x)
    for f in (bad, bad2):
        fresh()
        try:
            taper.compile(lambda x: f(x), backend="eager")(taper.ones(2))
        except taper._dynamo.exc.Unsupported as e:
            assert "graph_break" in str(e)
        else:
            raise AssertionError("broke silently")
    fresh()
    assert taper.equal(taper.compile(breaking, backend="eager")(taper.ones(2)), taper.full((2,), 4.0))


def test_graph_break_with_a_message():
    def fn(x):
        x = x + 1
        taper.compiler.graph_break("because I say so")
        return x
    assert breaks(fn, taper.ones(2)) == ["Call to `taper._dynamo.graph_break()`: because I say so"]


# --- printing and logging
def test_printing_logging_and_warning_break():
    log = logging.getLogger("test_controls")

    def a(x):
        x = x + 1
        print("a")
        return x * 2

    def b(x):
        x = x + 1
        log.warning("b")
        return x * 2

    def c(x):
        x = x + 1
        warnings.warn("c")
        return x * 2
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        log.disabled = True
        for f in (a, b, c):
            out = taper._dynamo.explain(f)(taper.ones(2))
            assert out.graph_count == 2 and len(out.break_reasons) == 1, (f, out)


def test_the_guides_reorderable_print():
    out, err, rc = run("""
        import torch

        torch._dynamo.config.reorderable_logging_functions.add(print)

        @torch.compile
        def fn(x):
            x += 1
            print("log!")
            return torch.sin(x)

        fn(torch.ones(3, 3))
    """, TORCH_LOGS="graph_breaks")
    assert rc == 0 and out == "log!\n" and "Graph break" not in err, (out, err)


def test_reordered_logging_shows_later_values_and_takes_any_listed_function():
    seen = []

    def record(*args, **kwargs):
        seen.append((args, kwargs))

    class Log:
        def info(self, fmt, *args):
            seen.append((fmt % tuple(float(a) for a in args), {}))
    log = Log()

    def fn(x):
        y = x * 1
        record("before", y, extra="k")
        log.info("sum %g", y.sum())
        y.add_(1)
        return y + 1
    with taper._dynamo.config.patch(reorderable_logging_functions={record, log.info}):
        fresh()
        taper.compile(fn, fullgraph=True, backend="eager")(taper.ones(2))
    (args, kw), (text, _) = seen
    assert args[0] == "before" and args[1].tolist() == [2.0, 2.0] and kw == {"extra": "k"}, seen  # the mutated value
    assert text == "sum 2", seen


def test_reordering_refuses_what_cannot_wait():
    class Thing:
        pass

    def record(*args):
        pass

    def fn(x, t):
        x = x + 1
        record(t)
        return x
    with taper._dynamo.config.patch(reorderable_logging_functions={record}):
        assert any("cannot wait" in r for r in breaks(fn, taper.ones(2), Thing()))


def test_ignored_logging_functions_do_nothing():
    seen = []

    def record(*args):
        seen.append(args)

    def fn(x):
        record("hello", x)
        return x + 1
    with taper._dynamo.config.patch(ignore_logging_functions={record}):
        fresh()
        taper.compile(fn, fullgraph=True, backend="eager")(taper.ones(2))
    assert not seen
