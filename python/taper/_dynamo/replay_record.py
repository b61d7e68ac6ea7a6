"""Frames that could not be captured, written down so that they can be traced again elsewhere. No pickle: source text, plain
values, and tensors beside it in a safetensors file."""
import ast
import inspect
import json
import os
import sys
import textwrap
import time
import types

from .. import _C

_run_dir = None


def _dir():
    global _run_dir
    from . import config
    if _run_dir is None:
        _run_dir = f"run_{time.strftime('%Y_%m_%d_%H_%M_%S')}-pid_{os.getpid()}"
    return os.path.join(config.debug_dir_root, _run_dir, "error_recordings")


def _literal(v):
    try:
        return ast.literal_eval(repr(v)) == v or v != v
    except Exception:
        return False


class _Writer:
    def __init__(self):
        self.tensors, self.functions = {}, {}

    def value(self, v, depth=0):
        if isinstance(v, _C.Tensor):
            key = f"t{len(self.tensors)}"
            self.tensors[key] = v.detach().clone().contiguous()
            return {"tensor": key, "requires_grad": bool(v.requires_grad)}
        if isinstance(v, types.ModuleType):
            return {"module": v.__name__}
        if isinstance(v, (_C.dtype, _C.device)):
            return {"import": ["taper", str(v).split(".")[-1]]} if isinstance(v, _C.dtype) else {"device": str(v)}
        if isinstance(v, (list, tuple)) and type(v) in (list, tuple):
            return {"list" if isinstance(v, list) else "tuple": [self.value(x, depth) for x in v]}
        if type(v) is dict and all(isinstance(k, (str, int)) for k in v):
            return {"dict": [[k, self.value(x, depth)] for k, x in v.items()]}
        if isinstance(v, types.FunctionType) and depth < 8:
            return self.function(v, depth)
        if _literal(v):
            return {"value": repr(v)}
        name, module = getattr(v, "__qualname__", None), getattr(v, "__module__", None)
        if name and module and module != "__main__" and "<" not in name:
            return {"import": [module, name]}
        return {"unsupported": type(v).__name__}

    def function(self, fn, depth):
        module = getattr(fn, "__module__", "")
        if module.split(".")[0] == "taper" or (module not in ("__main__", "") and "<" not in fn.__qualname__ and module in sys.modules
                                               and not getattr(sys.modules[module], "__file__", "").startswith(os.getcwd())):
            return {"import": [module, fn.__qualname__]}
        key = f"{fn.__qualname__}:{fn.__code__.co_firstlineno}"
        if key not in self.functions:
            self.functions[key] = None
            self.functions[key] = self.describe(fn, depth + 1)
        return {"function": key}

    def describe(self, fn, depth=0):
        code = fn.__code__
        try:
            source = textwrap.dedent(inspect.getsource(fn))
        except (OSError, TypeError):
            source = None
        names = set()

        def walk(c):
            names.update(c.co_names)
            for k in c.co_consts:
                if isinstance(k, types.CodeType):
                    walk(k)
        walk(code)
        free = {}
        for name, cell in zip(code.co_freevars, fn.__closure__ or ()):
            try:
                free[name] = self.value(cell.cell_contents, depth)
            except ValueError:
                pass
        return {"name": fn.__name__, "file": code.co_filename, "first_line": code.co_firstlineno, "source": source,
                "globals": {n: self.value(fn.__globals__[n], depth) for n in sorted(names) if n in fn.__globals__}, "free": free}


def write(fn, local_vars, exc, line, offset):
    """Called by the tracer. The path also hangs on the exception, as exec_record."""
    from .. import safetensors
    w = _Writer()
    record = {"version": 1, "exception": type(exc).__name__, "message": str(exc), "line": line, "offset": offset,
              "frame": w.describe(fn), "locals": {}}
    arg_names = fn.__code__.co_varnames[:fn.__code__.co_argcount + fn.__code__.co_kwonlyargcount]
    record["arguments"] = list(arg_names)
    for name, v in local_vars.items():
        record["locals"][name] = w.value(v)
    record["functions"] = w.functions
    os.makedirs(_dir(), exist_ok=True)
    path = os.path.join(_dir(), f"{fn.__name__.strip('<>')}_{type(exc).__name__}_{line}.rec")
    if w.tensors:
        safetensors.save_file(w.tensors, path + ".safetensors")
    with open(path, "w") as f:
        json.dump(record, f, indent=1)
    try:
        exc.exec_record = path
    except Exception:
        pass
    import logging
    logging.getLogger("taper._dynamo").warning("Writing execution record to %s", path)
    return path


class _Reader:
    def __init__(self, record, tensors):
        self.record, self.tensors, self.made = record, tensors, {}

    def value(self, d):
        (kind, v), *_ = d.items()
        if kind == "tensor":
            t = self.tensors[v]
            return t.requires_grad_() if d.get("requires_grad") else t
        if kind == "module":
            import importlib
            return importlib.import_module(v)
        if kind == "import":
            import importlib
            o = importlib.import_module(v[0])
            for part in v[1].split("."):
                o = getattr(o, part)
            return o
        if kind == "device":
            return _C.device(v)
        if kind == "list":
            return [self.value(x) for x in v]
        if kind == "tuple":
            return tuple(self.value(x) for x in v)
        if kind == "dict":
            return {k: self.value(x) for k, x in v}
        if kind == "function":
            return self.function(v)
        if kind == "value":
            return ast.literal_eval(v)
        raise RuntimeError(f"the record holds a {v}, which was not written down")

    def function(self, key):
        if key not in self.made:
            self.made[key] = self.build(self.record["functions"][key])
        return self.made[key]

    def build(self, d):
        if not d["source"]:
            raise RuntimeError(f"the source of {d['name']} was not written down")
        tree = ast.parse(d["source"])
        node = next(n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.Lambda)))
        space = {"__name__": "replay", "__builtins__": __builtins__}
        for name, v in {**d["globals"], **d["free"]}.items():
            if "unsupported" not in v:
                space[name] = self.value(v)
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
            module = ast.Module([node], [])
        else:
            module = ast.Module([ast.Assign([ast.Name("replayed", ast.Store())], node)], [])
        code = compile(ast.fix_missing_locations(module), d["file"], "exec")
        exec(code, space)
        return space[node.name if isinstance(node, ast.FunctionDef) else "replayed"]


def replay(filename):
    """Trace a recorded frame again, with backend eager, under compile id 42/999."""
    from .. import safetensors
    from .eval_frame import compile as compile_
    with open(filename) as f:
        record = json.load(f)
    tensors = safetensors.load_file(filename + ".safetensors") if os.path.exists(filename + ".safetensors") else {}
    r = _Reader(record, tensors)
    fn = r.build(record["frame"])
    args = [r.value(record["locals"][n]) for n in record["arguments"] if n in record["locals"]]
    _C._capture_replay_id()
    return compile_(fn, backend="eager", fullgraph=True)(*args)
