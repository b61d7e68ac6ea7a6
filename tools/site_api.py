"""The reference of the site: a page for each public module, from signatures and docstrings. Needs the built package."""
import importlib
import inspect
import re
import textwrap
import types

MODULES = ("taper", "taper.Tensor", "taper.nn", "taper.nn.functional", "taper.nn.init", "taper.nn.utils", "taper.optim", "taper.optim.lr_scheduler",
           "taper.autograd", "taper.func", "taper.linalg", "taper.fft", "taper.special", "taper.distributions", "taper.compiler", "taper.export", "taper.onnx",
           "taper.profiler", "taper.fx", "taper.library", "taper.utils.data", "taper.utils.benchmark", "taper.utils.tensorboard", "taper.distributed",
           "taper.testing", "taper.notebook")


def page_name(module):
    return "api-" + module.replace("taper.", "").replace(".", "-").lower()


def owner(path):
    """A module, or Tensor."""
    if path == "taper.Tensor":
        return importlib.import_module("taper").Tensor
    return importlib.import_module(path)


def names(where):
    if isinstance(where, type):
        return sorted(n for n in dir(where) if not n.startswith("_"))
    listed = getattr(where, "__all__", None)
    return sorted(set(n for n in (listed or dir(where)) if not n.startswith("_") and n not in getattr(where, "_SUBMODULES", ())))


def is_ours(o):
    return str(getattr(o, "__module__", None) or "taper").split(".")[0] in ("taper", "builtins")


def text_of(o):
    return inspect.cleandoc(o.__doc__) if isinstance(getattr(o, "__doc__", None), str) else ""


def code(lines):
    return ["```python", *lines, "```", ""]


def described(doc):
    """A docstring as Markdown: lines that spell calls and examples are code, the rest is text."""
    out, lines, i = [], doc.split("\n"), 0
    while i < len(lines):
        j = i
        if re.match(r"(aten::)?[\w.]+\(.*\)( -> .*)?$", lines[i]):
            while j < len(lines) and re.match(r"(aten::)?[\w.]+\(.*\)( -> .*)?$", lines[j]):
                j += 1
        elif lines[i].lstrip().startswith(">>>") or lines[i].startswith("    "):
            while j < len(lines) and lines[j].strip():
                j += 1
        if j > i:
            out += code(textwrap.dedent("\n".join(lines[i:j])).split("\n"))
            i = j
        else:
            if lines[i].strip() != "Example:":
                out.append(lines[i])
            i += 1
    return out + [""]


def signature(name, o):
    try:
        return name + str(inspect.signature(o))
    except (TypeError, ValueError):
        return None


def member(path, name, o):
    out = ["", f"## {name}", ""]
    doc = text_of(o)
    called = signature(name, o) if callable(o) else None
    if called and not doc.startswith(name + "("):
        out += code([f"class {called}" if isinstance(o, type) else called])
    out += described(doc) if doc else []
    if isinstance(o, type):
        for n, m in sorted(vars(o).items()):
            if not n.startswith("_") and isinstance(m, (types.FunctionType, classmethod, staticmethod, property)) and text_of(getattr(o, n, None)):
                f = getattr(o, n)
                first = text_of(f).split("\n\n")[0].replace("\n", " ")
                out.append(f"- `{n if isinstance(m, property) else signature(n, f) or n}`: {first}")
    return out


def page(path):
    where = owner(path)
    out, data = [f"# {path}", ""], []
    if not isinstance(where, type):
        out += described(text_of(where)) if text_of(where) else []
    for name in names(where):
        try:
            o = getattr(where, name)
        except Exception:  # a name that only says why it is not there
            continue
        if isinstance(o, types.ModuleType) or not is_ours(o):
            continue
        if callable(o) or isinstance(where, type):
            out += member(path, name, o)
        else:
            data.append(name)
    if data:
        out += ["", "## Values", "", ", ".join(f"`{n}`" for n in data)]
    return "\n".join(out) + "\n"


def pages():
    """{name: Markdown}"""
    return {page_name(m): page(m) for m in MODULES}
