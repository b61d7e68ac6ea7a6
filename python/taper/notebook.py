"""Taper in notebooks: %load_ext taper gives the cell magic %%taper, and findings are shown as tables.

    %%taper -n 20
    y = model(x)
    y.sum()

compiles the cell as one function, runs it, and shows the value of its last line, the graphs, what split them and where, and, with -n, how long it takes
compiled and eager. Names that the cell assigns are the notebook's."""
import ast as _ast
import html as _html
import linecache as _linecache
import time as _time

_STYLE = ("<style>.taper table{border-collapse:collapse;font-size:13px}.taper td,.taper th{border:1px solid #8884;padding:3px 8px;text-align:left;"
          "vertical-align:top}.taper th{background:#8882}.taper pre{margin:0;white-space:pre-wrap;font-size:12px}.taper summary{cursor:pointer}</style>")


def _cell(x):
    text = _html.escape(str(x))
    return f"<pre>{text}</pre>" if "\n" in text else text


def html_table(head, rows, caption=""):
    """Rows under a head, as HTML; everything is escaped."""
    top = "".join(f"<th>{_html.escape(str(h))}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{_cell(c)}</td>" for c in r) + "</tr>" for r in rows)
    said = f"<div>{_html.escape(caption)}</div>" if caption else ""
    return f'<div class="taper">{_STYLE}{said}<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def html_fold(title, text, is_open=False):
    """Text behind a line that opens it."""
    return f'<div class="taper">{_STYLE}<details{" open" if is_open else ""}><summary>{_html.escape(title)}</summary><pre>{_html.escape(text)}</pre></details></div>'


class _Assigned(_ast.NodeVisitor):
    """The names that code assigns at its top level."""

    def __init__(self):
        self.names = {}

    def visit_Name(self, node):
        if isinstance(node.ctx, (_ast.Store, _ast.Del)):
            self.names[node.id] = True

    def _named(self, node):
        self.names[node.name] = True

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _named

    def visit_Import(self, node):
        for a in node.names:
            self.names[(a.asname or a.name).split(".")[0]] = True

    visit_ImportFrom = visit_Import

    def _inner(self, node):
        """A scope of its own."""

    visit_Lambda = visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _inner


def cell_function(source, names, title="cell"):
    """A function of no arguments that does what the cell does; its last expression is what it returns."""
    tree = _ast.parse(source, title)
    found = _Assigned()
    for node in tree.body:
        found.visit(node)
    body = list(tree.body)
    if body and isinstance(body[-1], _ast.Expr):
        body[-1] = _ast.copy_location(_ast.Return(body[-1].value), body[-1])
    if found.names:
        body.insert(0, _ast.Global(sorted(found.names), lineno=1, col_offset=0))
    fn = _ast.parse("def __taper_cell__():\n    pass", title)
    fn.body[0].body = body or fn.body[0].body
    _linecache.cache[title] = (len(source), None, source.splitlines(True), title)
    exec(compile(_ast.fix_missing_locations(fn), title, "exec"), names)
    return names.pop("__taper_cell__")


class CellReport:
    """What became of a cell."""

    def __init__(self, title, result, graphs, breaks, times):
        self.title, self.result, self.graphs, self.breaks, self.times = title, result, graphs, breaks, times

    def head(self):
        n, b = len(self.graphs), len(self.breaks)
        return f"{self.title}: {n} graph{'s' * (n != 1)}, {b} break{'s' * (b != 1)}" + (
            f"; compiled {self.times[0] * 1e3:.3f} ms, eager {self.times[1] * 1e3:.3f} ms" if self.times else "")

    def __repr__(self):
        lines = [self.head()] + [f"  line {b.line}: {b.reason.splitlines()[0]}" for b in self.breaks]
        return "\n".join(lines)

    def _repr_html_(self):
        out = html_table(("line", "why the graph ends here"), [(b.line, b.reason) for b in self.breaks], self.head()) if self.breaks else \
            f'<div class="taper">{_html.escape(self.head())}</div>'
        for i, gm in enumerate(self.graphs):
            out += html_fold(f"graph {i + 1}", gm.print_readable(print_output=False) if hasattr(gm, "print_readable") else str(gm.graph))
        return out


def run_cell(source, names, title="cell", n=0):
    """Runs a cell compiled: a CellReport. n: that many more runs, compiled and eager, for the times."""
    import taper
    from . import _C
    from ._dynamo.reports import GraphCompileReason
    fn, graphs = cell_function(source, names, title), []

    def observe(gm, inputs):
        graphs.append(gm)
        return gm.forward
    taper._dynamo.reset()
    _C._capture_breaks(True)
    try:
        result = taper.compile(fn, backend=observe)()
    finally:
        breaks = [GraphCompileReason(*b) for b in _C._capture_breaks(False)]
    times = None
    if n:
        fast = taper.compile(fn)
        fast()
        times = []
        for f in (fast, fn):
            begin = _time.perf_counter()
            for _ in range(n):
                f()
            times.append((_time.perf_counter() - begin) / n)
    return CellReport(title, result, graphs, breaks, times)


def _magic(line, cell):
    """%%taper [-n RUNS]: compile the cell and show what became of it."""
    from IPython import get_ipython
    from IPython.display import display
    words = line.split()
    if words[:1] not in ([], ["-n"]) or (words and (len(words) != 2 or not words[1].isdigit())):
        raise ValueError(f"%%taper takes nothing, or -n and how often to run the cell for the times; not {line!r}")
    shell = get_ipython()
    report = run_cell(cell, shell.user_ns, f"cell {shell.execution_count}", int(words[1]) if words else 0)
    display(report)
    return report.result


def _doctor_magic(line, cell):
    """%%taper_doctor: taper doctor on the cell, behind those that ran before it."""
    from IPython import get_ipython
    from ._dynamo.doctor import examine_cell
    if line.strip():
        raise ValueError(f"%%taper_doctor takes nothing; not {line!r}")
    shell = get_ipython()
    earlier = shell.user_ns.get("In", [""])[1:-1]  # the last one is this cell
    return examine_cell(cell, [c for c in earlier if "get_ipython().run_cell_magic('taper" not in c and "%%taper" not in c])


def load_ipython_extension(shell):
    """What %load_ext taper calls."""
    shell.register_magic_function(_magic, "cell", "taper")
    shell.register_magic_function(_doctor_magic, "cell", "taper_doctor")
