"""What capture did with a function, as text and as data: explain and survey."""
import os
import time

from .. import _C


def _short(file):
    rel = os.path.relpath(file) if os.path.isabs(file) else file
    return rel if not rel.startswith("..") else file


def table(rows, head):
    """Rows under a head, in columns as wide as they need to be."""
    rows = [tuple(str(c) for c in r) for r in rows]
    width = [max([len(h)] + [max((len(line) for line in r[i].splitlines()), default=0) for r in rows]) for i, h in enumerate(head)]
    out = ["  ".join(h.ljust(w) for h, w in zip(head, width)).rstrip(), "  ".join("-" * w for w in width)]
    for r in rows:
        cells = [c.splitlines() or [""] for c in r]
        for k in range(max(len(c) for c in cells)):
            out.append("  ".join((c[k] if k < len(c) else "").ljust(w) for c, w in zip(cells, width)).rstrip())
    return "\n".join(out)


class GraphCompileReason:
    """Why a graph ended."""

    def __init__(self, reason, stack, file, line):
        self.reason = reason
        self.user_stack_text = stack
        self.user_stack = [line_.strip() for line_ in stack.splitlines() if line_.strip().startswith("File")]
        self.file, self.line = file, line
        self.graph_break = True

    def __repr__(self):
        return f"GraphCompileReason(reason={self.reason!r}, user_stack={self.user_stack!r}, graph_break=True)"


class ExplainOutput:
    """What explain() found: graphs, breaks, operators, guards, times."""

    def __init__(self, graphs, ops, breaks, guards, times):
        self.graphs = graphs
        self.graph_count = len(graphs)
        self.break_reasons = breaks
        self.graph_break_count = max(len(graphs) - 1, 0)
        self.ops_per_graph = ops
        self.op_count = sum(len(o) for o in ops)
        self.out_guards = guards
        self.compile_times = times

    def __str__(self):
        out = [f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}", f"Op Count: {self.op_count}", "Break Reasons:"]
        for i, b in enumerate(self.break_reasons):
            out.append(f"  Break Reason {i + 1}:")
            out.append(f"    Reason: {b.reason}")
            out.append("    User Stack:")
            out += ["      " + line for line in b.user_stack_text.rstrip().splitlines()]
        out.append("Ops per Graph:")
        for i, ops in enumerate(self.ops_per_graph):
            out.append(f"  Ops {i + 1}:")
            out += [f"    {op}" for op in ops]
        out.append("Out Guards:")
        for i, g in enumerate(self.out_guards):
            out.append(f"  Guard {i + 1}:")
            out += [f"    Name: {g['name']!r}", f"    Create Function: {g['create_fn']}", f"    Code: {g['code']}"]
        out.append("Compile Times:")
        out += [f"  {line}" for line in self.compile_times.splitlines()]
        return "\n".join(out) + "\n"

    __repr__ = __str__

    def _repr_html_(self):
        from ..notebook import html_fold, html_table
        head = f"{self.graph_count} graphs, {self.graph_break_count} breaks, {self.op_count} operators"
        rows = [(f"{_short(b.file)}:{b.line}", b.reason) for b in self.break_reasons]
        return (html_table(("where", "why the graph ends here"), rows, head) if rows else html_fold(head, "Nothing stands in the way of one graph.")) + html_fold("all of it", str(self))


def _name(target):
    from ..fx.graph import _name_of
    return _name_of(target)


def explain(f, *extra_args, **extra_kwargs):
    """explain(f)(*args): the graphs, the breaks and why."""
    from .eval_frame import _make, _wrap, reset

    def inner(*args, **kwargs):
        reset()
        graphs, ops, times = [], [], []
        start = time.perf_counter()

        def observe(gm, inputs):
            nonlocal start
            times.append(time.perf_counter() - start)
            graphs.append(gm)
            ops.append([n.target for n in gm.graph.nodes if n.op == "call_function"])

            def run(*a):
                nonlocal start
                r = gm.forward(*a)
                start = time.perf_counter()
                return r
            return run
        _C._capture_breaks(True)
        guards = []
        try:
            _wrap(f, _make(observe, None, False, None))(*args, **kwargs)
        finally:
            breaks = _C._capture_breaks(False)
            for _, _, _, _, _, _, gs, _ in _C._capture_entries():
                guards += [{"name": src, "create_fn": kind, "code": text} for kind, src, text in gs]
            reset()
        text = "\n".join(f"graph {i + 1}: {t * 1e3:.3f} ms" for i, t in enumerate(times))
        return ExplainOutput(graphs, ops, [GraphCompileReason(*b) for b in breaks], guards, text)
    if extra_args or extra_kwargs:
        return inner(*extra_args, **extra_kwargs)
    return inner


# --- survey
class Finding:
    """One line of a survey."""
    __slots__ = ("kind", "where", "what", "fix")

    def __init__(self, kind, where, what, fix):
        self.kind, self.where, self.what, self.fix = kind, where, what, fix

    def __repr__(self):
        return f"Finding({self.kind!r}, {self.where!r}, {self.what!r}, {self.fix!r})"


class Survey:
    """All that keeps a function from being one graph that is compiled once."""

    def __init__(self, result, findings, graphs, ops):
        self.result, self.findings = result, findings
        self.graph_count, self.op_count = graphs, ops

    def of(self, kind):
        return [f for f in self.findings if f.kind == kind]

    breaks = property(lambda self: self.of("graph break"))
    skipped = property(lambda self: self.of("skipped frame"))
    recompilations = property(lambda self: self.of("recompilation"))
    side_effects = property(lambda self: self.of("side effect"))

    def __str__(self):
        def count(n, what):
            return f"{n} {what}" + ("" if n == 1 else "s")
        head = (f"{count(self.graph_count, 'graph')} with {count(self.op_count, 'operator')}; {count(len(self.breaks), 'graph break')}, "
                f"{count(len(self.skipped), 'skipped frame')}, {count(len(self.recompilations), 'likely recompilation')}, {count(len(self.side_effects), 'side effect')}")
        if not self.findings:
            return head + "\nNothing stands in the way of one graph.\n"
        rows = [(f.kind, f.where, f.what, f.fix) for f in self.findings]
        return head + "\n\n" + table(rows, ("kind", "where", "what", "fix")) + "\n"

    __repr__ = __str__

    def _repr_html_(self):
        from ..notebook import html_table
        return html_table(("kind", "where", "what", "fix"), [(f.kind, f.where, f.what, f.fix) for f in self.findings], str(self).splitlines()[0])


_RECOMPILES = {
    "float": ("the float {src} is part of the compiled code ({text})", "pass taper.tensor(value) if it changes from call to call"),
    "int": ("the int {src} is part of the compiled code ({text})", "it becomes symbolic when it changes once; taper.compile(dynamic=True) does so at once"),
    "str": ("the value {src} is part of the compiled code ({text})", "keep it the same, or compile a function per value"),
    "size": ("the sizes of {src} are fixed ({sizes})", "the second size makes them dynamic; mark_dynamic(t, dim) or dynamic=True saves that compile"),
    "len": ("{text} is fixed", "keep the length of the container, or pass one stacked tensor"),
    "id": ("the object {src} itself is part of the compiled code", "make the object once, outside of what is called often"),
    "flag": ("the flag {src} is part of the compiled code ({text})", "two compiles, one for each value"),
}
_EFFECTS = {
    "call": ("a call is delayed until the graph has run", "it shows the values of that time"),
    "default": ("{what} of {target}{key} is changed", "return the new value instead, where another thread or the caller may look"),
}


def _likely(kind, src, text):
    if not src.startswith("L["):
        return None
    plain = src.count("[") == 1
    if kind == "EQUALS_MATCH":
        value = text.split(" == ", 1)[-1]
        if value[:1] in "'\"":
            return "str"
        return "float" if any(c in value for c in ".einf") else "int"
    if kind == "BOOL_MATCH" and plain:
        return "flag"
    if kind == "SEQUENCE_LENGTH" and plain:
        return "len"
    if kind == "ID_MATCH" and plain:
        return "id"
    if kind == "TENSOR_MATCH" and "Parameter" not in text.split(",")[1] and "size=[]" not in text and ".weight" not in src and ".bias" not in src:
        sizes = text.split("size=", 1)[-1].split("]")[0] + "]"
        return "size" if any(c.isdigit() for c in sizes) else None
    return None


def survey(fn):
    """survey(fn)(*args): run fn once through capture and list every graph break, skipped frame, likely recompilation and side
    effect, each with what to do about it. Caches are forgotten before and after."""
    from .eval_frame import _make, _wrap, reset

    def inner(*args, **kwargs):
        reset()
        graphs = []

        def observe(gm, inputs):
            graphs.append(sum(n.op == "call_function" for n in gm.graph.nodes))
            return gm.forward
        seen = []
        before = _C._capture_watch(seen)
        try:
            result = _wrap(fn, _make(observe, None, False, None))(*args, **kwargs)
        finally:
            _C._capture_watch(before)
            ledger, entries = _C._capture_ledger(), _C._capture_entries()
            reset()
        found, once = [], set()

        def add(*what):
            if what not in once:
                once.add(what)
                found.append(Finding(*what))
        for e in seen:
            if e[0] == "break":
                _, _, reason, stack, file, line, code, explain_, hint = e
                add("graph break", f"{_short(file)}:{line}", f"{reason} [{code}]", hint)
            else:
                _, _, name, file, line, reasons = e
                add("recompilation", f"{_short(file)}:{line} {name}", "compiled more than once in this one call: "
                    + "; ".join(r.strip("- ") for r in reasons.splitlines()[2:]), "see TAPER_LOGS=recompiles")
        for name, file, first, line, frame, ops, runs, native, reason, _ in ledger:
            if frame < 0 and native:
                add("skipped frame", f"{_short(file)}:{line or first} {name}", f"ran natively {native} time{'s' * (native != 1)}: {reason}",
                    "nothing to compile here" if reason == "no tensor operations" else "raise config.cache_size_limit" if "limit" in reason
                    else "move the tensor work into a plain function")
        for name, file, line, frame, cid, ops, guards, effects in entries:
            for kind, src, text in guards:
                why = _likely(kind, src, text)
                if why:
                    what, fix = _RECOMPILES[why]
                    sizes = text.split("size=", 1)[-1].split("]")[0] + "]"
                    add("recompilation", f"{_short(file)}:{line} {name}", what.format(src=src, text=text, sizes=sizes), fix)
            for kind, target, key in effects:
                what, fix = _EFFECTS.get(kind, _EFFECTS["default"])
                add("side effect", f"{_short(file)}:{line} {name}", what.format(what="the " + kind, target=target, key=f" ({key})" if key else ""), fix)
        order = ("graph break", "skipped frame", "recompilation", "side effect")
        found.sort(key=lambda f: order.index(f.kind))
        return Survey(result, found, len(graphs), sum(graphs))
    return inner
