"""survey(): every graph break and recompilation of a PyTorch program, each with what to do about it."""
import json
import os
import re

import torch
import torch._dynamo
import torch._logging

# What a reason of Dynamo's holds, and what helps. The first that matches is taken; Dynamo's own hint stands in where none does.
_BREAK_FIXES = [
    (r"\.item\(\)|Tensor\.item|_local_scalar_dense|aten\._local_scalar", "keep the value a tensor (torch.where, masks), or torch._dynamo.config.capture_scalar_outputs = True"),
    (r"[Dd]ata-dependent (branching|jump|control)|generic_jump|Data-dependent", "torch.where or torch.cond instead of `if` on a tensor; decide before the compiled function where the value is known"),
    (r"dynamic (output )?shape operator|nonzero|masked_select|data.dependent operator", "torch._dynamo.config.capture_dynamic_output_shape_ops = True, or torch.where with a mask"),
    (r"\bprint\b|logging|Logger|warnings?\.warn|reorderable_logging", "torch._dynamo.config.reorderable_logging_functions.add(print), or move it out of the compiled function"),
    (r"torch\.compiler\.disable|disable\(\)|marked as skipped|skipped by|SKIPPED|function marked", "move the call out of the compiled function, or compile what is around it; torch.compiler.allow_in_graph or a custom operator for functions that are safe"),
    (r"graph_break\(\)", "remove torch._dynamo.graph_break()"),
    (r"numpy|ndarray", "use torch functions, or torch.from_numpy outside of the compiled function"),
    (r"builtin|C/C\+\+|C extension|not traceable|Unsupported function call|uninspectable|pybind", "wrap it with torch.library.custom_op, or call it outside"),
    (r"context manager|with statement", "enter the context outside of the compiled function"),
    (r"generator|yield", "make a list instead of a generator"),
    (r"[Ee]xception|raise|try", "check before the call instead of catching"),
    (r"backward\(\)|\.grad\b|autograd", "call backward() outside of the compiled function, or torch._dynamo.config.compiled_autograd = True"),
    (r"deepcopy|copy\.", "copy outside of the compiled function"),
    (r"setattr|STORE_ATTR|[Mm]utation", "return the value and store it outside"),
    (r"RNN|LSTM|GRU", "torch._dynamo.config.allow_rnn = True"),
]
_AGAIN_FIXES = [
    (r"size mismatch|shape|stride mismatch|\.size\(\)|Eq\(|Ne\(", "torch._dynamo.mark_dynamic(tensor, dim), torch.compile(dynamic=True), or pad to a few sizes"),
    (r"recompile_limit|cache_size", "raise torch._dynamo.config.recompile_limit once the cause is known"),
    (r"grad_mode|GradMode|requires_grad|inference", "call it always with the same grad mode; warm it up under each mode once"),
    (r"rank mismatch", "keep the number of dimensions the same: unsqueeze before the call"),
    (r"dtype mismatch|dispatch key|device|Tensor type", "keep element type, device and class of the tensor the same, or convert before the call"),
    (r"___check_obj_id|ID_MATCH|is not|object id", "make the object once, outside of what is called often, or pass what it holds"),
    (r"len\(", "keep the length of the container, or pass one stacked tensor"),
    (r"== (-?\d+\.\d|-?\d+e)|float", "pass a float that changes as a 0-dimensional tensor"),
    (r"(^G\[|\.\w+|\['\w+'\]\['?\w+'?\]) == -?\d+\b", "an int read from an object or a global is part of the compiled code: pass it as an argument, or as a tensor"),
    (r"== -?\d+\b", "an int that changes becomes symbolic at its second value; torch.compile(dynamic=True) does so at once"),
    (r"training", "two compiles, one for each mode; call train() and eval() rarely"),
    (r"==", "the value is part of the compiled code: keep it the same, or pass a tensor"),
]


class Finding:
    __slots__ = ("kind", "where", "what", "fix")

    def __init__(self, kind, where, what, fix):
        self.kind, self.where, self.what, self.fix = kind, where, what, fix

    def __repr__(self):
        return f"Finding({self.kind!r}, {self.where!r}, {self.what!r}, {self.fix!r})"


def _fix(table, text, otherwise=""):
    return next((fix for pattern, fix in table if re.search(pattern, text)), otherwise)


def _short(path):
    here = os.getcwd() + os.sep
    return path[len(here):] if path.startswith(here) else path


def break_finding(text):
    """What Dynamo writes for a graph break -> Finding."""
    place = re.search(r"Graph break in user code at ([^\n]+?):(\d+)\n", text)
    reason = re.search(r"(?:Graph Break Reason|Reason): ([^\n]*)", text)
    what = (reason[1] if reason else next((l for l in text.splitlines() if l.strip()), "")).strip()
    if re.match(r"(Call to|Encountered|Failed|Attempted)?\s*$", what) or what.startswith("Encountered graph break when"):
        more = re.search(r"Explanation: ([^\n]*)", text)
        what = more[1] if more else what
    explained, hint = re.search(r"Explanation: ([^\n]*)", text), re.search(r"Hint: ([^\n]*)", text)
    frames = re.findall(r'File "([^"]+)", line (\d+)[^\n]*\n\s+([^\n]+)', text)
    code = frames[-1][2].strip() if frames else ""
    about = f"{what} {explained[1] if explained else ''} {code}"
    return Finding("graph break", f"{_short(place[1])}:{place[2]}" if place else (f"{_short(frames[-1][0])}:{frames[-1][1]}" if frames else "?"),
                   what + (f" [{code}]" if code else ""), _fix(_BREAK_FIXES, about, hint[1] if hint else "move it out of the compiled function"))


def again_finding(reasons, where=""):
    first = reasons[0] if isinstance(reasons, list) and reasons else str(reasons)
    m = re.match(r"\s*\d+/\d+: (.*)", first, re.S)
    text = (m[1] if m else first).strip()
    source = re.search(r"#\s*([^\n]*)$", text)
    what = text.split("  #")[0].strip()
    return Finding("recompilation", where or (source[1].strip() if source else "?"), what, _fix(_AGAIN_FIXES, what, "keep what the guard reads the same"))


def _alike(f):
    """What findings have in common that differ in a constant only: they are one, counted."""
    if f.kind == "graph break":
        return f.kind, f.where, f.what
    return f.kind, f.where, re.sub(r"\d+(\.\d+)?", "N", re.sub(r"'[^']*'(?!\])|\bTrue\b|\bFalse\b|\bNone\b", "C", f.what))


class watch:
    """While it is entered, graph breaks and recompilations are collected: findings, graphs (operators in each)."""

    def __init__(self):
        self.findings, self.counts = [], {}

    def add(self, f):
        key = _alike(f)
        self.counts[key] = self.counts.get(key, 0) + 1
        if self.counts[key] == 1:
            self.findings.append(f)

    def count(self, f):
        return self.counts[_alike(f)]

    def _traced(self, name, metadata_fn=dict, *, payload_fn=lambda: None, **kw):
        try:
            if name == "artifact":
                what = metadata_fn().get("name")
                if what == "dynamo_graph_break_reason":
                    self.add(break_finding(payload_fn()))
                elif what == "recompile_reasons":
                    reasons = payload_fn()
                    self.add(again_finding(reasons if isinstance(reasons, list) else [reasons], self.where()))
        except Exception:  # watching must not change what is watched
            pass
        return self.original(name, metadata_fn, payload_fn=payload_fn, **kw)

    @staticmethod
    def where():
        """The function that Dynamo is about to compile again: a frame of its own says so."""
        import sys
        f = sys._getframe()
        while f is not None:
            frame = f.f_locals.get("frame")
            code = getattr(frame, "f_code", None)
            if code is not None and "torch/_dynamo" not in code.co_filename:
                return f"{_short(code.co_filename)}:{code.co_firstlineno} {code.co_name}"
            f = f.f_back
        return ""

    def __enter__(self):
        self.original = torch._logging.trace_structured
        torch._logging.trace_structured = self._traced
        return self

    def __exit__(self, *exc):
        torch._logging.trace_structured = self.original
        return False


class Survey:
    """All that keeps a function from being one graph that is compiled once."""

    def __init__(self, result, findings, graphs):
        self.result, self.findings, self.graph_count, self.op_count = result, findings, len(graphs), sum(graphs)

    breaks = property(lambda self: [f for f in self.findings if f.kind == "graph break"])
    recompilations = property(lambda self: [f for f in self.findings if f.kind == "recompilation"])

    def __str__(self):
        n = lambda k, what: f"{k} {what}" + ("" if k == 1 else "s")
        head = (f"{n(self.graph_count, 'graph')} with {n(self.op_count, 'operator')}; {n(len(self.breaks), 'graph break')}, "
                f"{n(len(self.recompilations), 'recompilation')}")
        if not self.findings:
            return head + "\nNothing stands in the way of one graph that is compiled once.\n"
        return head + "\n" + "".join(f"\n{f.kind} at {f.where}\n    {f.what}\n    fix: {f.fix}\n" for f in self.findings)

    __repr__ = __str__


def survey(fn, calls=()):
    """survey(fn)(*args): runs fn once through Dynamo (backend eager) and lists every graph break and recompilation with a fix.

    calls: more argument tuples to call it with, such as other sizes; each is one more chance to recompile. Arguments that would make it
    compile again (numbers that are part of the graph, sizes that may change) are found by such calls."""
    def inner(*args, **kwargs):
        torch._dynamo.reset()
        graphs = []

        def observe(gm, examples):
            graphs.append(sum(n.op.startswith("call_") for n in gm.graph.nodes))
            return gm.forward
        try:
            with watch() as w:
                compiled = torch.compile(fn, backend=observe)
                result = compiled(*args, **kwargs)
                for more in calls:
                    compiled(*more)
        finally:
            torch._dynamo.reset()
        order = ("graph break", "recompilation")
        return Survey(result, sorted(w.findings, key=lambda f: order.index(f.kind)), graphs)
    return inner


def facts(w):
    """What a watch saw, for another process."""
    return [{"kind": f.kind, "where": f.where, "what": f.what, "fix": f.fix, "times": w.count(f)} for f in w.findings]


def write_facts(path, w, **more):
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"findings": facts(w), **more}, f)
