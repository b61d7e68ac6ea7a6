"""Frames that could not be captured, written down so that they can be traced again elsewhere. No pickle: source text, plain
values, objects as their class and attributes, and tensors beside it in a safetensors file."""
import ast
import inspect
import json
import os
import sys
import textwrap
import time
import types
from collections import OrderedDict

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
        self.tensors, self.functions, self.classes, self.objects = {}, {}, {}, {}
        self.seen = {}  # id -> (key, object, which must live as long as its id counts)

    def value(self, v, depth=0):
        if isinstance(v, _C.Tensor):
            key, _ = self.seen.setdefault(id(v), (f"t{len(self.tensors)}", v))
            if key not in self.tensors:
                self.tensors[key] = v.detach().clone().contiguous()
            return {"tensor": key, "requires_grad": bool(v.requires_grad), "parameter": type(v).__name__ == "Parameter"}
        if isinstance(v, types.ModuleType):
            return {"module": v.__name__}
        if isinstance(v, (_C.dtype, _C.device)):
            return {"import": ["taper", str(v).split(".")[-1]]} if isinstance(v, _C.dtype) else {"device": str(v)}
        if isinstance(v, (list, tuple)) and type(v) in (list, tuple):
            return {"list" if isinstance(v, list) else "tuple": [self.value(x, depth) for x in v]}
        if type(v) in (dict, OrderedDict) and all(isinstance(k, (str, int)) for k in v):
            return {"dict" if type(v) is dict else "ordered": [[k, self.value(x, depth)] for k, x in v.items()]}
        if isinstance(v, types.MethodType):
            return {"method": [self.value(v.__self__, depth), v.__func__.__name__]}
        if isinstance(v, type):
            return self.class_(v, depth)
        if isinstance(v, types.FunctionType) and depth < 8:
            return self.function(v, depth)
        if _literal(v):
            return {"value": repr(v)}
        name, module = getattr(v, "__qualname__", None), getattr(v, "__module__", None)
        if name and module and module != "__main__" and "<" not in name:
            return {"import": [module, name]}
        if type(getattr(v, "__dict__", None)) is dict and not isinstance(v, (int, float, str, bytes, tuple, list, dict, set)) and depth < 40:
            return self.object(v, depth)
        return {"unsupported": type(v).__name__}

    def object(self, v, depth):
        """Its class, and what its dictionary holds."""
        key, _ = self.seen.setdefault(id(v), (f"o{len(self.objects)}", v))
        if key not in self.objects:
            self.objects[key] = None  # a cycle leads back here
            self.objects[key] = {"class": self.value(type(v), depth + 1),
                                 "state": [[k, self.value(x, depth + 1)] for k, x in v.__dict__.items()]}
        return {"object": key}

    def class_(self, cls, depth):
        module, name = cls.__module__, cls.__qualname__
        home = sys.modules.get(module)
        file = getattr(home, "__file__", None)
        ours = file and file.startswith(os.getcwd() + os.sep) and module.split(".")[0] != "taper"
        if "<" not in name and module != "__main__" and not ours:
            return {"import": [module, name]}
        key = f"{module}.{name}"
        if key not in self.classes:
            self.classes[key] = None
            try:
                source = textwrap.dedent(inspect.getsource(cls))
                names = {n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name)}
            except (OSError, TypeError, SyntaxError):
                source, names = None, ()
            space = dict(getattr(home, "__dict__", {}))
            for f in vars(cls).values():  # what a local class sees of the function around it
                for n, cell in zip(getattr(getattr(f, "__code__", None), "co_freevars", ()), getattr(f, "__closure__", None) or ()):
                    try:
                        space[n] = cell.cell_contents
                    except ValueError:
                        pass
            space.update({b.__name__: b for b in cls.__bases__})
            space.pop("__class__", None)
            self.classes[key] = {"name": cls.__name__, "file": file or "?", "source": source,
                                 "globals": {n: self.value(space[n], depth + 1) for n in sorted(names) if n in space and n != cls.__name__}}
        return {"class": key}

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
    code = fn.__code__
    names, n = code.co_varnames, code.co_argcount
    k = n + code.co_kwonlyargcount
    record["arguments"], record["keywords"] = list(names[:n]), list(names[n:k])
    record["more"] = names[k] if code.co_flags & inspect.CO_VARARGS else None
    record["more_keywords"] = names[k + (record["more"] is not None)] if code.co_flags & inspect.CO_VARKEYWORDS else None
    for name, v in local_vars.items():
        record["locals"][name] = w.value(v)
    record["functions"], record["classes"], record["objects"] = w.functions, w.classes, w.objects
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
            if d.get("parameter") and type(t).__name__ != "Parameter":
                from ..nn import Parameter
                t = self.tensors[v] = Parameter(t, requires_grad=d["requires_grad"])
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
        if kind == "ordered":
            return OrderedDict((k, self.value(x)) for k, x in v)
        if kind == "function":
            return self.function(v)
        if kind == "class":
            return self.class_(v)
        if kind == "object":
            return self.object(v)
        if kind == "method":
            return getattr(self.value(v[0]), v[1])
        if kind == "value":
            return ast.literal_eval(v)
        raise RuntimeError(f"the record holds a {v}, which was not written down")

    def object(self, key):
        if key not in self.made:
            d = self.record["objects"][key]
            cls = self.value(d["class"])
            self.made[key] = o = cls.__new__(cls)
            for k, v in d["state"]:
                if "unsupported" not in v:
                    o.__dict__[k] = self.value(v)
        return self.made[key]

    def class_(self, key):
        if key not in self.made:
            d = self.record["classes"][key]
            if not d["source"]:
                raise RuntimeError(f"the source of class {d['name']} was not written down")
            space = {"__name__": "replay", "__builtins__": __builtins__}
            for name, v in d["globals"].items():
                if "unsupported" not in v:
                    space[name] = self.value(v)
            node = next(n for n in ast.walk(ast.parse(d["source"])) if isinstance(n, ast.ClassDef))
            node.decorator_list = []
            exec(compile(ast.fix_missing_locations(ast.Module([node], [])), d["file"], "exec"), space)
            self.made[key] = space[node.name]
        return self.made[key]

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
    given = {n: r.value(v) for n, v in record["locals"].items() if "unsupported" not in v or n in record["arguments"]}
    args = [given[n] for n in record["arguments"] if n in given] + list(given.get(record.get("more"), ()))
    kw = {n: given[n] for n in record.get("keywords", ()) if n in given}
    kw.update(given.get(record.get("more_keywords"), {}))
    _C._capture_replay_id()
    return compile_(fn, backend="eager", fullgraph=True)(*args, **kw)
