"""Code that runs while a function is captured, and does nothing when it simply runs.

    from taper._dynamo.comptime import comptime
    comptime.print_graph()      # inside a compiled function: what was captured so far
"""
import builtins
import dis as _dis
import io as _io
import time as _time

from .. import _C


def _fake_text(t):
    parts = ["..."]
    size = tuple(t.shape)
    parts.append("size=(" + ", ".join(str(s) for s in size) + ("," if len(size) == 1 else "") + ")")
    if t.dtype is not _C.get_default_dtype():
        parts.append(f"dtype={t.dtype}")
    if t.requires_grad:
        parts.append("requires_grad=True")
    return f"FakeTensor({', '.join(parts)})"


def _show(v):
    if isinstance(v, _C.Tensor):
        return _fake_text(v)
    if isinstance(v, (list, tuple)) and type(v) in (list, tuple):
        inner = ", ".join(_show(x) for x in v)
        return f"[{inner}]" if isinstance(v, list) else f"({inner}{',' if len(v) == 1 else ''})"
    if type(v) is dict:
        return "{" + ", ".join(f"{k!r}: {_show(x)}" for k, x in v.items()) + "}"
    return repr(v)


class ComptimeVar:
    """A value of the function being traced."""

    def __init__(self, v):
        self._v = v

    def as_proxy(self):
        """The value as it stands in the graph."""
        return self._v

    def is_proxy(self):
        return isinstance(self._v, (_C.Tensor, _C.SymInt))

    def as_fake(self):
        return self._v

    def size(self, dim=None):
        return self._v.size() if dim is None else self._v.size(dim)

    def python_type(self):
        return int if isinstance(self._v, _C.SymInt) else type(self._v)

    def as_python_constant(self):
        if isinstance(self._v, (_C.Tensor, _C.SymInt)):
            raise NotImplementedError(f"{_show(self._v)} is no constant")
        return self._v

    def is_python_constant(self):
        return not isinstance(self._v, (_C.Tensor, _C.SymInt))

    def is_dynamic(self):
        return _dynamic(self._v)

    def force_static(self):
        _make_static(self._v)

    def _i_will_not_complain_if_bc_breaks_VariableTracker(self):
        return self._v

    def __repr__(self):
        return _show(self._v)


def _dynamic(v):
    if isinstance(v, _C.Tensor):
        return any(_dynamic(s) for s in v.shape)
    return isinstance(v, _C.SymInt) and not _C._sym_fixed(v)


def _make_static(v):
    if isinstance(v, _C.Tensor):
        for s in v.shape:
            _make_static(s)
    elif isinstance(v, _C.SymInt):
        int(v)


class ComptimeContext:
    """The state of the tracer, as a callback or the debugger sees it."""

    def __init__(self, depth=0):
        self._depth = depth

    def _ask(self, what, arg=None):
        return _C._comptime(what, self._depth, arg)

    def get_local(self, name, *, stacklevel=0):
        return ComptimeVar(_C._comptime("local", self._depth + stacklevel, name))

    def graph_break(self, msg="ComptimeContext.graph_break"):
        self._ask("graph_break", msg)

    def graph(self):
        """The graph captured so far, as a taper.fx.Graph."""
        from ..fx import GraphModule
        return GraphModule._from_capture(self._ask("graph")).graph

    def assert_static(self, v):
        v = v._v if isinstance(v, ComptimeVar) else v
        assert not _dynamic(v), "Expected static but got dynamic (run with TAPER_LOGS=dynamic for more info)"

    def force_static(self, v):
        _make_static(v._v if isinstance(v, ComptimeVar) else v)

    def print_graph(self, *, verbose=True, file=None):
        """What was captured so far, as code."""
        print(self._ask("graph_text"), file=file)

    def parent(self):
        self._ask("depth")
        return ComptimeContext(self._depth + 1)

    def print(self, val, *, file=None):
        print(_show(val._v if isinstance(val, ComptimeVar) else val), file=file)

    def print_disas(self, *, file=None, stacklevel=0):
        """The bytecode being traced, with an arrow at the instruction under way."""
        code, at = _C._comptime("code", self._depth + stacklevel, None)
        out = _io.StringIO()
        _dis.disassemble(code, lasti=at, file=out)
        print(out.getvalue(), file=file)

    disas = print_disas

    def print_value_stack(self, *, file=None, stacklevel=0):
        for kind, v in _C._comptime("value_stack", self._depth + stacklevel, None):
            print(f"- {_show(v)}", file=file)

    def print_locals(self, *, file=None, stacklevel=0):
        for name, (kind, v) in _C._comptime("locals", self._depth + stacklevel, None):
            print(f"{name} = {_show(v)}", file=file)

    def print_bt(self, *, file=None, stacklevel=0):
        """The user's stack, outermost first."""
        print(_C._comptime("stack_text", self._depth + stacklevel, None), file=file)

    def print_guards(self, *, file=None):
        rows = sorted((_kind(src), src, kind) for kind, src in self._ask("guards"))
        print("\n".join(f"        {where} {src!r} {kind}\n        {{\n            'guard_types': None,\n            'code': None,\n"
                        f"            'obj_weakref': None\n            'guarded_class': None\n        }}" for where, src, kind in rows), file=file)

    def sleep(self, sec):
        _time.sleep(sec)

    def get_globals(self):
        return self._ask("globals")

    def _i_will_not_complain_if_bc_breaks_InstructionTranslator(self):
        return self


def _kind(source):
    return "local" if "L[" in source else "global" if "G[" in source else "shape_env" if "size()" in source else "global" if not source else "constant"


class _Comptime:
    """comptime(fn): fn(ctx) while capturing, fallback() when simply running."""

    def __call__(self, fn, fallback_fn=lambda: None):
        return fallback_fn()

    @staticmethod
    def graph_break():
        pass

    @staticmethod
    def print(e):
        builtins.print(e)

    @staticmethod
    def print_graph():
        pass

    @staticmethod
    def print_disas(*, stacklevel=0):
        pass

    @staticmethod
    def disas(*, stacklevel=0):
        pass

    @staticmethod
    def print_value_stack(*, stacklevel=0):
        pass

    @staticmethod
    def print_value_stack_and_return(e, *, stacklevel=0):
        return e

    @staticmethod
    def print_locals(*, stacklevel=0):
        pass

    @staticmethod
    def print_bt(*, stacklevel=0):
        pass

    @staticmethod
    def print_guards():
        pass

    @staticmethod
    def assert_static(val):
        pass

    @staticmethod
    def force_static(val):
        pass

    @staticmethod
    def breakpoint():
        """Start the debugger where the tracer is."""

    @staticmethod
    def sleep(sec):
        pass


comptime = _Comptime()
_names = {}
for _n, _f in list(vars(_Comptime).items()):
    _f = getattr(_f, "__func__", _f)
    if callable(_f) and (_n == "__call__" or not _n.startswith("__")):
        _names[_f] = _n
        _C._capture_role(_f, "comptime")


def _at_compile_time(fn, args, kwargs):
    """The tracer met one of the functions above."""
    ctx, name = ComptimeContext(), _names[fn]
    if name == "__call__":
        args[0](ctx)
        return None
    if name == "breakpoint":
        inner(ctx)
        return None
    if name == "print_value_stack_and_return":
        ctx.print_value_stack(**kwargs)
        return args[0]
    return getattr(ctx, name)(*args, **kwargs)


def _stop(why, detail):
    """TAPER_BREAK_ON: the debugger at an opcode, a break, or a value from outside."""
    print(f"TAPER_BREAK_ON {why}: {detail}")
    print(ComptimeContext()._ask("stack_text"), end="")
    inner(ComptimeContext())


def inner(inner_ctx):
    ctx = inner_ctx  # noqa: F841  named for the debugger
    builtins.breakpoint()
