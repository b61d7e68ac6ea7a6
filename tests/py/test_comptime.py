"""Code that runs while a function is captured, and the debugger inside the tracer."""
import contextlib
import io
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import taper
from taper._dynamo.comptime import comptime

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def traced(fn, *args, **kw):
    """What is printed while fn is captured, and what it returns."""
    taper._dynamo.reset()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        r = taper.compile(fn, backend="eager", **kw)(*args)
    return out.getvalue(), r


def test_print_bt_shows_the_users_stack():
    def g(x):
        comptime.print_bt()
        return x + 1

    def f(x):
        return g(x) * 2
    out, r = traced(f, taper.ones(2))
    assert re.search(r'File ".*test_comptime.py", line \d+, in f\n    return g\(x\) \* 2\n  File ".*", line \d+, in g\n    comptime.print_bt\(\)', out), out
    assert taper.equal(r, taper.full((2,), 4.0))


def test_print_locals():
    def f(x, n):
        y = x + 1
        z = [y, n]
        comptime.print_locals()
        return y, z
    out, _ = traced(f, taper.ones(3, 3), 5)
    assert out == "x = FakeTensor(..., size=(3, 3))\nn = 5\ny = FakeTensor(..., size=(3, 3))\nz = [FakeTensor(..., size=(3, 3)), LazyVariableTracker()]\n", out


def test_print_graph_and_graph():
    nodes = []

    def f(x):
        y = x + 1
        comptime.print_graph()
        comptime(lambda ctx: nodes.extend(n.name for n in ctx.graph().nodes))
        return y * 2
    out, _ = traced(f, taper.ones(3, 3))
    assert 'y: "f32[3, 3]" = l_x_ + 1;  l_x_ = y = None' in out and "* 2" not in out, out
    assert nodes == ["l_x_", "y", "output"], nodes


def test_print_disas_marks_the_instruction_under_way():
    def f(x):
        comptime.print_disas()
        return x + 1
    out, _ = traced(f, taper.ones(2))
    assert re.search(r"-->\s+(\d+ )?CALL", out) and "RETURN_VALUE" in out, out


def test_print_value_stack():
    def f(x):
        comptime.print_value_stack()
        return x + comptime.print_value_stack_and_return(x * 2)
    out, r = traced(f, taper.ones(2))
    assert "- FakeTensor(..., size=(2,))" in out, out
    assert taper.equal(r, taper.full((2,), 3.0))


def test_print_guards_lists_those_installed_so_far():
    def f(x, y):
        z = x + 1
        comptime.print_guards()
        return z + y
    out, _ = traced(f, taper.ones(2), taper.ones(2))
    assert "local \"L['x']\" TENSOR_MATCH" in out and "L['y']" not in out and "'guarded_class': None" in out, out


def test_print_assert_and_force_static():
    def f(x):
        comptime.print(x * 2)
        comptime.assert_static(x)
        return x + 1
    assert traced(f, taper.ones(2), dynamic=False)[0] == "FakeTensor(..., size=(2,))\n"
    try:
        traced(f, taper.ones(2), dynamic=True)
    except AssertionError as e:
        assert "TAPER_LOGS=dynamic" in str(e), e
    else:
        raise AssertionError("a dynamic size passed for static")

    def g(x):
        comptime.force_static(x)
        comptime.assert_static(x)
        return x + 1
    traced(g, taper.ones(2), dynamic=True)


def test_graph_break_and_sleep():
    def f(x):
        x = x + 1
        comptime.graph_break()
        return x * 2
    taper._dynamo.reset()
    assert taper.equal(taper.compile(f, backend="eager")(taper.ones(2)), taper.full((2,), 4.0))
    assert taper._dynamo.utils.counters["stats"]["unique_graphs"] == 2
    start = time.monotonic()

    def g(x):
        comptime.sleep(0.05)
        return x + 1
    h = taper.compile(g, backend="eager")
    h(taper.ones(2))
    assert time.monotonic() - start >= 0.05


def test_get_local_gives_a_handle():
    seen = {}

    def look(ctx):
        x, n = ctx.get_local("x"), ctx.get_local("n")
        seen.update(size=tuple(x.size()), type=x.python_type(), dynamic=x.is_dynamic(), const=n.as_python_constant(), fake=x.as_fake().dtype)
        try:
            ctx.get_local("nothing")
        except NameError as e:
            seen["error"] = str(e)

    def f(x, n):
        comptime(look)
        return x + n
    traced(f, taper.ones(3, 3), 4)
    assert seen == {"size": (3, 3), "type": taper.Tensor, "dynamic": False, "const": 4, "fake": taper.float32, "error": "there is no local 'nothing' here"}, seen


def test_parent_is_the_callers_context():
    seen = []

    def g(a):
        comptime(lambda ctx: seen.append(ctx.parent().get_local("outer_name").as_python_constant()))
        return a + 1

    def f(x):
        outer_name = 7
        return g(x) * outer_name
    traced(f, taper.ones(2))
    assert seen == [7], seen


def test_in_eager_nothing_happens_except_print_and_the_fallback():
    out = io.StringIO()
    done = []
    with contextlib.redirect_stdout(out):
        comptime.print_graph()
        comptime.breakpoint()
        comptime.print("hello")
        comptime(lambda ctx: done.append("no"), lambda: done.append("fallback"))
        assert comptime.print_value_stack_and_return(3) == 3
    assert out.getvalue() == "hello\n" and done == ["fallback"]
    try:
        taper._C._comptime("locals")
    except RuntimeError as e:
        assert "while a function is being traced" in str(e)
    else:
        raise AssertionError("answered")


# --- the debugger, through a pseudo-terminal
def dialogue(program, commands, **env):
    """Runs a program under a terminal, answers each (Pdb) prompt with the next command, returns all that was shown."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "playground.py")
        with open(path, "w") as f:
            f.write(textwrap.dedent(program))
        try:
            pid, fd = pty.fork()
        except OSError as e:  # a container may come without /dev/pts
            raise unittest.SkipTest(f"no pseudo-terminals here: {e}")
        if pid == 0:
            os.environ.update(env, PYTHONPATH=os.path.join(ROOT, "python"), TERM="dumb", PYTHONUNBUFFERED="1")
            os.execv(sys.executable, [sys.executable, "-m", "taper", path])
        shown, at, end = b"", 0, time.monotonic() + 20
        commands = list(commands)
        while time.monotonic() < end:
            ready, _, _ = select.select([fd], [], [], 1)
            if not ready:
                continue
            try:
                got = os.read(fd, 4096)
            except OSError:
                break
            if not got:
                break
            shown += got
            if commands and shown.find(b"(Pdb) ", at) >= 0 and shown.endswith(b"(Pdb) "):
                at = len(shown)
                os.write(fd, commands.pop(0).encode() + b"\n")
        os.close(fd)
        _, status = os.waitpid(pid, 0)
        return shown.decode().replace("\r\n", "\n"), os.waitstatus_to_exitcode(status)


SEED = """
    import torch
    from torch._dynamo.comptime import comptime

    @torch.compile(backend="eager")
    def f(x):
        y = x + 1
        comptime.breakpoint()
        y = y + 1
        return y

    f(torch.ones(3, 3))
"""


def test_the_guides_breakpoint_dialogue():
    out, status = dialogue(SEED, ["ctx.print_bt()", "ctx.print_locals()", "bt", "ctx.print_graph()", "ctx.disas()", "u", "c"])
    assert status == 0, out
    assert re.search(r"> .*comptime\.py\(\d+\)inner\(\)(->None)?\n-> builtins\.breakpoint\(\)\n\(Pdb\) ", out), out
    assert re.search(r'ctx\.print_bt\(\)\n  File ".*playground\.py", line 8, in f\n    comptime\.breakpoint\(\)', out), out
    assert "ctx.print_locals()\nx = FakeTensor(..., size=(3, 3))\ny = FakeTensor(..., size=(3, 3))\n(Pdb) " in out, out
    assert re.search(r"> .*comptime\.py\(\d+\)inner\(\)(->None)?\n-> builtins\.breakpoint\(\)\n\(Pdb\) ctx\.print_graph", out), out
    assert re.search(r'def forward\(self, L_x_: "f32\[3, 3\]"\):\n    l_x_ = L_x_\n\n    # File: .*playground\.py:7 in f, code: y = x \+ 1\n'
                     r'    y: "f32\[3, 3\]" = l_x_ \+ 1;  l_x_ = y = None', out), out
    assert re.search(r"-->\s+(\d+ )?CALL", out), out


def test_break_on_an_opcode_a_break_and_a_value():
    program = """
        import taper

        @taper.compile(backend="eager")
        def f(x, n):
            y = x + n
            print("hello")
            return y

        f(taper.ones(3), 2)
        print("done")
    """
    out, status = dialogue(program, ["ctx.print_value_stack()"] + ["c"] * 9, TAPER_BREAK_ON="BINARY_OP")
    assert status == 0 and "TAPER_BREAK_ON opcode: BINARY_OP 0, top of stack: " in out and "done" in out, out
    out, status = dialogue(program, ["ctx.print_bt()"] + ["c"] * 9, TAPER_BREAK_ON="break")
    assert status == 0 and "TAPER_BREAK_ON break: builtin: print" in out and "hello" in out, out
    out, status = dialogue(program, ["c", "c", "c"] * 4, TAPER_BREAK_ON="wrap")
    assert "TAPER_BREAK_ON wrap: L['x'], a torch.Tensor" in out and "TAPER_BREAK_ON wrap: L['n'], a int" in out, out
    out, status = dialogue(program, ["q", "y"], TAPER_BREAK_ON="CALL")  # since CPython 3.14 it asks, and ends the process by itself
    assert status and ("BdbQuit" in out or sys.version_info >= (3, 14)) and "done" not in out, out


def test_extended_symbol_debugging_prints_the_stack_of_that_symbol_only():
    program = textwrap.dedent("""
        import taper

        def inner(x, y):
            return x + 1, y + 2

        @taper.compile(dynamic=True, backend="eager")
        def fn(x, y):
            return inner(x, y)
        fn(taper.ones(3), taper.ones(4))
    """)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "p.py")
        with open(path, "w") as f:
            f.write(program)
        env = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"), TAPER_LOGS="+dynamic", TAPER_EXTENDED_DEBUG_CREATE_SYMBOL="s1")
        err = subprocess.run([sys.executable, path], env=env, capture_output=True, text=True, timeout=60).stderr
    lines = [line for line in err.splitlines() if "create_symbol" in line]
    assert len(lines) >= 2, err
    after = err[err.index("create_symbol s1"):]
    before = err[:err.index("create_symbol s1")]
    assert "in inner" in after and 'File "' in after, err
    assert 'File "' not in before, err
