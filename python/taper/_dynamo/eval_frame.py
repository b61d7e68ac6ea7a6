"""taper.compile and the functions around it."""
import functools
import inspect
import os
import types

from .. import _C
from .._never import never_captured
from . import config, exc
from .backends import check

_role = _C._capture_role


def _env(ours, theirs):
    """An environment variable; the original's spelling counts where ours is not set."""
    return os.environ.get(ours, os.environ.get(theirs, ""))


def _override(frame):
    """(backend, options) that config.debug_backend_override and debug_inductor_config_override name for a frame, or None each."""
    backend, found = _listed(config.debug_backend_override, frame, "debug_backend_override"), None
    if backend is not None:
        check(backend)
    text = _listed(config.debug_inductor_config_override, frame, "debug_inductor_config_override")
    if text is not None:
        options = {}
        for pair in text.split(","):
            key, eq, value = pair.partition("=")
            if not eq:
                raise ValueError(f"debug_inductor_config_override: {pair!r} is not key=value")
            value = value.strip()
            options[key.strip()] = {"True": True, "False": False}.get(value, int(value) if value.lstrip("-").isdigit() else value)
        found = _options("inductor", None, options)
    return backend, found


def _listed(rules, frame, what):
    """What the first rule says whose filter takes the frame: "0,5:x;10-20:y;>=30:z"."""
    for rule in filter(None, (r.strip() for r in rules.split(";"))):
        where, colon, value = rule.partition(":")
        if not colon or not value:
            raise ValueError(f"{what}: {rule!r} is not filter:value")
        try:
            if _takes(where.strip(), frame):
                return value.strip()
        except ValueError:
            raise ValueError(f"{what}: {where!r} is no filter; write 0,5 or 10-20 or >10, >=10, <10, <=10") from None
    return None


def _takes(where, frame):
    for op, test in ((">=", frame.__ge__), ("<=", frame.__le__), (">", frame.__gt__), ("<", frame.__lt__)):
        if where.startswith(op):
            return test(int(where[len(op):]))
    for part in where.split(","):
        low, dash, high = part.partition("-")
        if int(low) <= frame <= int(high if dash else low):
            return True
    return False


def _options(backend, mode, options):
    if mode is None and options is None:
        return None
    from ..compiler._options import list_mode_options, resolve
    if mode is not None:
        list_mode_options(mode)
    found = {"mode": mode, "options": options}
    if backend == "inductor":
        found["resolved"] = resolve(mode, options)
    return found


class _Lazy:
    """nn.Module is imported only when a module is compiled."""


def _is_module(fn):
    import sys
    m = getattr(sys.modules.get("taper.nn"), "Module", None)  # None: it is being loaded
    return m is not None and isinstance(fn, m)


def _optimized_module_class():
    from ..nn.modules.optimized import OptimizedModule
    return OptimizedModule


def __getattr__(name):
    if name == "OptimizedModule":
        return _optimized_module_class()
    raise AttributeError(f"module 'taper._dynamo.eval_frame' has no attribute '{name}'")


def _make(backend, dynamic, fullgraph, options, guard_fail_fn=None):
    return functools.partial(_compiled, (backend, dynamic, fullgraph, options, guard_fail_fn))  # a pickle can hold it


def _compiled(how, fn):
    return _C._capture_compile(fn, *how)


def _wrap(fn, make):
    if _is_module(fn):
        if isinstance(fn, _optimized_module_class()):
            fn = fn._orig_mod
        return _optimized_module_class()(fn, make)
    if isinstance(fn, type):
        if "__call__" not in fn.__dict__ and not any("__call__" in b.__dict__ for b in fn.__mro__[:-1]):
            raise RuntimeError(f"taper.compile got the class {fn.__name__}, which has no __call__ method to compile")
        for b in fn.__mro__:
            if "__call__" in b.__dict__:
                fn.__call__ = make(b.__dict__["__call__"])
                return fn
    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        raise RuntimeError(f"taper.compile cannot capture the coroutine function {getattr(fn, '__name__', fn)!r}")
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(make(fn.__func__))
    if not callable(fn):
        raise RuntimeError(f"taper.compile got {type(fn).__name__}, which cannot be called; give it a function or a module itself, not what calling it returned")
    return make(fn)


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):
    """Capture a function, module or other callable, and run what was captured with a backend.

    >>> f = taper.compiler.compile(lambda x: x.sin() + 1)
    >>> f(taper.zeros(2))
    tensor([1., 1.])
    """
    if model is None:
        return lambda m: compile(m, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable)
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if dynamic is not None and not isinstance(dynamic, bool):
        raise TypeError(f"dynamic must be None, True or False, not {type(dynamic).__name__}")
    extra = _options(backend, mode, options)
    if disable or _env("TAPER_DISABLE", "TORCHDYNAMO_DISABLE") not in ("", "0"):
        return model
    forced = _env("TAPER_BISECT_BACKEND", "TORCH_BISECT_BACKEND") or _env("TAPER_COMPILE_BACKEND", "TORCH_COMPILE_BACKEND")
    if forced:  # for whoever looks for the stage at fault: the same program with another backend
        backend, extra = forced, extra if forced == backend else None
    check(backend)
    return _wrap(model, _make(backend, dynamic, bool(fullgraph), extra))


class _Optimize:
    """What optimize() returns: a decorator, and a context in which the functions that are called get captured."""

    def __init__(self, backend, nopython, dynamic, guard_fail_fn, disable):
        if not disable:
            check(backend)
        self.make = _make(backend, dynamic, nopython, None, guard_fail_fn)
        self.disable = disable

    def __call__(self, fn):
        return fn if self.disable else _wrap(fn, self.make)

    def __enter__(self):
        if not self.disable:
            _C._capture_hook(self.make(_nothing))
        return self

    def __exit__(self, *exc):
        if not self.disable:
            _C._capture_hook(None)
        return False


def _nothing():
    pass


def optimize(backend="inductor", *, nopython=False, guard_export_fn=None, guard_fail_fn=None, disable=False, dynamic=None, **kwargs):
    """optimize(backend)(fn), @optimize(backend), or `with optimize(backend):`."""
    return _Optimize(backend, nopython, dynamic, guard_fail_fn, disable)


def optimize_assert(backend="eager", **kwargs):
    return optimize(backend, nopython=True, **kwargs)


def reset():
    """Forget everything captured so far.

    >>> taper.compiler.reset()
    """
    _C._capture_reset()
    from .utils import counters
    counters.clear()


def run(fn=None):
    """Call fn with what is compiled already; compile nothing new."""
    if fn is None:
        return run
    from ..compiler import set_stance

    @functools.wraps(fn)
    def inner(*args, **kwargs):
        with set_stance("eager_on_recompile"):
            return fn(*args, **kwargs)
    inner._torchdynamo_orig_callable = fn
    return inner


# --- marks on functions
class _Disabled:
    pass


def disable(fn=None, recursive=True, *, reason=None):
    """Never capture this function (recursive: nor what it calls).

    >>> f = taper.compiler.disable(lambda x: x + 1)
    >>> f(taper.ones(2))
    tensor([2., 2.])
    """
    if fn is None:
        return lambda f: disable(f, recursive, reason=reason)
    if _is_module(fn):
        fn.forward = disable(fn.forward, recursive, reason=reason)
        return fn
    if isinstance(fn, type):
        for name, value in list(fn.__dict__.items()):
            if isinstance(value, types.FunctionType) and name in ("__init__", "__call__", "forward"):
                setattr(fn, name, disable(value, recursive, reason=reason))
        return fn
    return never_captured(fn, recursive, reason)


def graph_break(msg=""):
    """End the graph here.

    >>> f = taper.compile(lambda x: (taper.compiler.graph_break(), x + 1)[1])
    >>> f(taper.ones(2))
    tensor([2., 2.])
    """


_role(graph_break, "graph_break")


def skip_frame(msg=""):
    """The function that calls this is executed plainly; what it calls may still be captured."""


_role(skip_frame, "skip_frame")


def is_compiling():
    """Whether this code is part of a compiled function: captured, or one of its plain steps.

    >>> taper.compiler.is_compiling()
    False
    """
    return _C._capture_compiling()


_role(is_compiling, "true")


def is_dynamo_supported():
    return True


def allow_in_graph(fn):
    """Call fn with fake tensors while tracing instead of looking inside.

    >>> f = taper.compiler.allow_in_graph(lambda x: x + 1)
    >>> f(taper.ones(2))
    tensor([2., 2.])
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(f) for f in fn]
    if not callable(fn):
        raise AssertionError("allow_in_graph expects a callable")
    _role(fn, "allow")
    return fn


def disallow_in_graph(fn):
    """Break the graph at calls of fn."""
    if isinstance(fn, (list, tuple)):
        return [disallow_in_graph(f) for f in fn]
    _role(fn, "break")
    return fn


forbid_in_graph = disallow_in_graph
nonstrict_trace = allow_in_graph


def assume_constant_result(fn):
    """Call fn once while tracing and keep what it returned.

    >>> f = taper.compiler.assume_constant_result(lambda: 3)
    >>> f()
    3
    """
    _role(fn, "const")
    return fn


def substitute_in_graph(original, *, can_constant_fold_through=False, skip_signature_check=False,
                        is_embedded_type=False):
    """While tracing, calls of original (a builtin) are calls of the decorated function, which is followed.

    >>> import operator
    >>> @taper.compiler.substitute_in_graph(operator.countOf)
    ... def count_of(a, b, /):
    ...     return sum(1 for x in a if x == b)
    >>> taper.compile(lambda x: x + operator.countOf([1, 2, 1], 1))(taper.ones(2))
    tensor([3., 3.])
    """
    if not callable(original):
        raise TypeError(f"substitute_in_graph expects a function but got {type(original)!r}")

    def deco(fn):
        if not isinstance(fn, types.FunctionType):
            raise TypeError(f"the substitute must be a Python function, not {type(fn)!r}")
        if not skip_signature_check:
            try:
                want = inspect.signature(original)
            except (TypeError, ValueError):
                want = None
            if want is not None and list(want.parameters) != list(inspect.signature(fn).parameters):
                raise TypeError(f"Signature mismatch between {original!r} and {fn!r}: {want} is not {inspect.signature(fn)}")
        _role(original, fn)
        return fn
    return deco


# --- marks on tensors
def _dims(t, index):
    index = [index] if isinstance(index, int) else list(index)
    out = []
    for i in index:
        if not -t.dim() <= i < t.dim():
            raise IndexError(f"dimension {i} is out of range for a tensor with {t.dim()} dimensions")
        out.append(i % t.dim())
    return out


def _mark(t, attr, index):
    have = getattr(t, attr, None)
    if have is None:
        have = set()
        setattr(t, attr, have)
    have.update(_dims(t, index))


def mark_dynamic(t, index, *, hint_override=None, min=None, max=None, specialize_on=None):
    """Make a dimension dynamic, within [min, max] if given; an error if it ends up specialised."""
    _mark(t, "_dynamo_dynamic_indices", index)
    if min is not None or max is not None:
        if min is not None and max is not None and min > max:
            raise ValueError(f"mark_dynamic(): min={min} is above max={max}")
        ranges = t.__dict__.setdefault("_dynamo_dynamic_range", {})
        for i in [index] if isinstance(index, int) else index:
            ranges[i % t.dim()] = (0 if min is None else min, -1 if max is None else max)


def maybe_mark_dynamic(t, index):
    """Make a dimension dynamic if that is possible."""
    _mark(t, "_dynamo_weak_dynamic_indices", index)


def mark_static(t, index=None):
    """Keep a dimension (or all of them) constant."""
    _mark(t, "_dynamo_static_indices", range(t.dim()) if index is None else index)


def mark_unbacked(t, index, **kwargs):
    """Make a dimension one whose value is never looked at: a question about it is an error, not a guard."""
    _mark(t, "_dynamo_dynamic_indices", index)
    _mark(t, "_dynamo_unbacked_indices", index)


def mark_static_address(t, guard=True):
    return t


for _f in (mark_dynamic, maybe_mark_dynamic, mark_static, mark_unbacked, mark_static_address):
    _role(_f, "none")
if hasattr(inspect, "get_annotations"):
    _role(inspect.get_annotations, "polyfill:get_annotations")


def unsupported(msg=""):
    """Raise the error of a graph break where none is allowed."""
    raise exc.Unsupported(msg)


def patch_dynamo_config(*args, **kwargs):
    return config.patch(*args, **kwargs)


from .._controls import error_on_graph_break  # noqa: E402,F401


# --- reports
from .reports import ExplainOutput, GraphCompileReason, explain  # noqa: E402,F401


class ExportResult(tuple):
    graph_module = property(lambda self: self[0])
    guards = property(lambda self: self[1])


def export(f, *extra_args, aten_graph=False, tracing_mode="symbolic", **kw):
    """export(f)(*args, **kwargs): the one graph of f as a module that is called as f is, or an error."""
    from ._exported import exported

    def inner(*args, **kwargs):
        return ExportResult((exported(f, args, kwargs, aten_graph), []))
    return inner(*extra_args, **kw) if extra_args or kw else inner
