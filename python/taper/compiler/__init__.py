"""taper.compiler: the public face of capture."""
from .. import _C
from .._dynamo import (allow_in_graph, assume_constant_result, config, disable, graph_break, is_compiling, list_backends,  # noqa: F401
                       reset, substitute_in_graph)
from .._dynamo.eval_frame import compile  # noqa: F401

from ._options import list_mode_options, list_options  # noqa: E402,F401
from .._controls import error_on_graph_break  # noqa: E402,F401

is_dynamo_compiling = is_compiling


def is_exporting():
    """Is the code that asks being exported? Never: export captures as compile does.

    >>> taper.compiler.is_exporting()
    False
    """
    return False


def nested_compile_region(fn=None):
    """Decorates a function that is called many times in a compiled one: a hint, for equal kernels are compiled once anyway.

    >>> block = taper.compiler.nested_compile_region(lambda x: x.sin() + 1)
    >>> taper.compile(lambda x: block(block(x)), fullgraph=True)(taper.zeros(1))
    tensor([1.8415])
    """
    return nested_compile_region if fn is None else fn


def wrap_numpy(fn):
    """A function of NumPy arrays as one of tensors; compiled, its calls of NumPy are operators of the graph.

    >>> import numpy as np
    >>> taper.compiler.wrap_numpy(lambda a: np.sum(a * 2))(taper.ones(3))
    tensor(6.)
    """
    from .. import _numpy
    return _numpy.wrapped(fn)


def cudagraph_mark_step_begin():
    """A new iteration begins. Results of the last one stay valid here, so nothing is to be done.

    >>> taper.compiler.cudagraph_mark_step_begin()
    """


class set_stance:
    """How calls of compiled functions behave: a function call, a context manager and a decorator.

    default                 capture and compile as usual
    force_eager             nothing is compiled and nothing compiled is used
    eager_on_recompile      use what is compiled already; where none of it fits, run eagerly
    fail_on_recompile       use what is compiled already; where none of it fits, raise, with the guards that failed
    eager_then_compile      the first call runs eagerly, later ones are compiled (sizes that differ are dynamic at once)
    aot_eager_then_compile  the same with backend aot_eager for the first call

    force_backend=          a backend in place of every other one (with the default stance)

    >>> f = taper.compile(lambda x: x + 1)
    >>> with taper.compiler.set_stance("force_eager"):
    ...     f(taper.ones(2))
    tensor([2., 2.])
    """
    _NAMES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile")

    def __init__(self, stance="default", *, skip_guard_eval_unsafe=False, force_backend=None):
        if stance not in self._NAMES:
            raise RuntimeError(f"invalid taper.compile stance {stance!r}; there are: {', '.join(self._NAMES)}")
        if force_backend is not None:
            if stance != "default":
                raise RuntimeError("non-default stance cannot have force_backend set")
            from .._dynamo.backends import check
            check(force_backend)
        if skip_guard_eval_unsafe:
            raise RuntimeError("skip_guard_eval_unsafe is not supported: guards are always checked")
        self.args = (self._NAMES.index(stance), force_backend)
        self.prior = _C._capture_stance(*self.args)

    def __enter__(self):
        _C._capture_stance(*self.args)
        return self

    def __exit__(self, *exc):
        _C._capture_stance(*self.prior)
        return False

    def __call__(self, fn):
        import functools
        _C._capture_stance(*self.prior)  # making the decorator changed it

        @functools.wraps(fn)
        def inner(*args, **kwargs):
            prior = _C._capture_stance(*self.args)
            try:
                return fn(*args, **kwargs)
            finally:
                _C._capture_stance(*prior)
        return inner


_C._capture_role(set_stance, "break")
_C._capture_role(is_exporting, "false")


class Row(tuple):
    """One line of the ledger.

    >>> f = taper.compile(lambda x: x + 1)
    >>> f(taper.ones(2))
    tensor([2., 2.])
    >>> taper.compiler.ledger()[-1].runs
    1
    """
    _fields = ("function", "file", "first_line", "line", "frame_id", "ops", "runs", "native_runs", "reason", "compile_id")

    def __getattr__(self, name):
        try:
            return self[self._fields.index(name)]
        except ValueError:
            raise AttributeError(name) from None

    def __repr__(self):
        def count(n, what):
            return f"{n} {what}{'s' * (n != 1)}"
        which = f" [{self.frame_id}/{self.compile_id}]" if self.frame_id >= 0 else ""
        what = f"compiled, {count(self.ops, 'op')}, ran {count(self.runs, 'time')}" if self.frame_id >= 0 else f"eager {count(self.native_runs, 'time')}"
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.function} ({self.file}:{self.line or self.first_line}){which}: {what}{why}"


class Ledger(list):
    """The lines of ledger(); notebooks show them as a table.

    >>> isinstance(taper.compiler.ledger(), taper.compiler.Ledger)
    True
    """

    def _repr_html_(self):
        from ..notebook import html_table
        rows = [(r.function, f"{r.file}:{r.line or r.first_line}", "compiled" if r.frame_id >= 0 else "eager", r.ops, r.runs, r.native_runs, r.reason or "") for r in self]
        return html_table(("function", "where", "what", "operators", "runs", "runs in Python", "why"), rows)


def doctor(fn, *args, **kwargs):
    """taper doctor on one call of a function or module: what is wrong in one sentence, and the rest by name (docs/debugging.md).

    >>> taper.compiler.doctor(model, x)  # doctest: +SKIP
    Nothing is wrong: ...
    """
    from .._dynamo.doctor import doctor as examine
    return examine(fn, *args, **kwargs)


def survey(fn):
    """survey(fn)(*args): every graph break, skipped frame, likely recompilation and side effect of one call, with a fix for each.

    >>> taper.compiler.survey(lambda x: x.sin() + 1)(taper.ones(2)).breaks
    []
    """
    from .._dynamo.reports import survey
    return survey(fn)


def ledger():
    """For each code object what ran compiled, eager or skipped, how often and why.

    >>> f = taper.compile(lambda x: x + 1)
    >>> f(taper.ones(2))
    tensor([2., 2.])
    >>> [row.ops for row in taper.compiler.ledger() if row.runs][-1]
    1
    """
    return Ledger(Row(r) for r in _C._capture_ledger())


STAGES = {"capture": "bytecode_tracing_time_us", "guards": "guard_build_time_us", "autograd": "aot_autograd_cumulative_compile_time_us",
          "fusion": "inductor_schedule_time_us", "code": "inductor_code_gen_cumulative_compile_time_us",
          "trace": "structured_logging_overhead_us"}


def metrics():
    """What compiling and calling cost so far, as `taper report` shows it.

    {"compiles": one dict a compile, backward graphs too, with the fields of the trace event compilation_metrics;
     "regions": one dict a compiled region: calls, first_call_us, warm_call_us, warm_best_us, eager_call_us;
     "stages_us": time of all compiles by stage; "compile_us", "kernels", "library_calls", "bytes_moved": sums}

    The newest 1024 compiles are kept. eager_call_us is measured when TAPER_PROFILE=1 or config.profile is on, else None.

    >>> taper.compiler.metrics()["kernels"] >= 0
    True
    """
    import json
    compiles, regions = ([json.loads(t) for t in texts] for texts in _C._capture_metrics())

    def total(field):
        return sum(c[field] or 0 for c in compiles)
    return {"compiles": compiles, "regions": regions, "stages_us": {k: total(f) for k, f in STAGES.items()},
            "compile_us": total("duration_us"), "kernels": total("kernel_count"), "library_calls": total("library_call_count"),
            "bytes_moved": total("bytes_moved")}


def reset_metrics():
    """Forget the compiles that metrics() lists.

    >>> taper.compiler.reset_metrics()
    """
    _C._capture_metrics_clear()
