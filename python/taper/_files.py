"""taper.save and taper.load: tensors and plain Python values in one safetensors file. Nothing in it can run, unless the reader says
weights_only=False: then objects of other classes, which save pickles, are read as well."""
import base64
import json
from collections import OrderedDict

from . import _C

_KEY = "taper"  # the entry of the file's metadata that holds everything but the tensors' bytes
_DEPTH = 200


class _Writer:
    def __init__(self):
        self.tensors, self.known = {}, {}

    def tensor(self, t, path):
        seen = self.known.get(id(t))
        if seen is None:
            name, i = path or "tensor", 0
            while name in self.tensors or name == "__metadata__":
                i += 1
                name = f"{path}.{i}"
            self.tensors[name] = t.detach()
            self.known[id(t)] = seen = (name, t)
        from .nn import Parameter
        return {"t": seen[0], **({"g": True} if t.requires_grad else {}), **({"p": True} if isinstance(t, Parameter) else {})}

    def value(self, v, path, depth=0):
        if depth > _DEPTH:
            raise ValueError(f"taper.save: {_shown(path)} is nested more than {_DEPTH} deep (does something contain itself?)")
        if isinstance(v, _C.Tensor):
            return self.tensor(v, path)
        if v is None or isinstance(v, (bool, str)) and type(v) in (bool, str):
            return v
        if type(v) is int:
            return v
        if type(v) is float:
            return v if v - v == 0 else {"f": repr(v)}
        inner = lambda x, key: self.value(x, f"{path}.{key}" if path else str(key), depth + 1)  # noqa: E731
        if type(v) in (dict, OrderedDict):
            items = [[self.key(k, path), inner(x, k)] for k, x in v.items()]
            return {"d" if type(v) is dict else "o": items}
        if type(v) in (list, tuple, _C.Size, set, frozenset):
            tag = {list: "l", tuple: "u", _C.Size: "z", set: "s", frozenset: "r"}[type(v)]
            return {tag: [inner(x, i) for i, x in enumerate(v)]}
        if type(v) is bytes:
            return {"b": base64.b64encode(v).decode()}
        if type(v) is complex:
            return {"c": [repr(v.real), repr(v.imag)]}
        if isinstance(v, _C.dtype):
            return {"dt": str(v).split(".")[-1]}
        if isinstance(v, _C.device):
            return {"dev": str(v)}
        if type(v).__module__ == "numpy" and hasattr(v, "item") and getattr(v, "ndim", 1) == 0:
            return self.value(v.item(), path, depth)
        return {"py": self.pickled(v, path), "of": f"{type(v).__module__}.{type(v).__qualname__}"}

    def pickled(self, v, path):
        """Any other object: pickled, its tensors beside the others. load() reads it with weights_only=False alone, for it can run code."""
        import io
        import pickle
        writer = self

        class Pickler(pickle.Pickler):
            def persistent_id(self, obj):
                return json.dumps(writer.tensor(obj, path)) if isinstance(obj, _C.Tensor) else None
        out = io.BytesIO()
        try:
            Pickler(out, 2).dump(v)
        except Exception as e:
            hint = "; save model.state_dict() instead of the model" if hasattr(v, "state_dict") else ""
            raise TypeError(f"taper.save: {_shown(path)} is a {type(v).__module__}.{type(v).__qualname__}, which cannot be pickled: {e}{hint}") from e
        return base64.b64encode(out.getvalue()).decode()

    def key(self, k, path):
        if k is None or type(k) in (bool, int, str):
            return k
        if type(k) is float:
            return {"f": repr(k)}
        if type(k) is tuple:
            return {"u": [self.key(x, path) for x in k]}
        raise TypeError(f"taper.save: a key of {_shown(path)} is a {type(k).__qualname__}; keys are strings, numbers, None, or tuples of these")


def _shown(path):
    return f"the object at {path!r}" if path else "the object"


def save(obj, f, pickle_module=None, pickle_protocol=None, _use_new_zipfile_serialization=True, **kwargs):
    """Writes tensors, and plain values around them, to a file (or to an object with write) as safetensors. A dict of names to tensors gives the
    file that other programs expect; anything else is described in the file's metadata."""
    from . import safetensors
    w = _Writer()
    if isinstance(obj, dict) and all(isinstance(k, str) and isinstance(v, _C.Tensor) for k, v in obj.items()) and "__metadata__" not in obj:
        tensors = {k: v.detach() for k, v in obj.items()}  # under their own names, also where two are the same
        tree = {"o" if type(obj) is not dict else "d": [[k, {"t": k, **({"g": True} if v.requires_grad else {})}] for k, v in obj.items()]}
    else:
        tree = w.value(obj, "")
        tensors = w.tensors
    meta = {_KEY: json.dumps(tree, separators=(",", ":"), allow_nan=False)}
    if hasattr(f, "write"):
        f.write(safetensors.save(tensors, meta))
    else:
        safetensors.save_file(tensors, f, meta)


class _Reader:
    def __init__(self, tensors, weights_only=True):
        self.tensors, self.made, self.weights_only = tensors, {}, weights_only

    def unpickled(self, text, name):
        import io
        import pickle
        from .serialization import get_safe_globals
        reader, safe = self, {(c.__module__, c.__qualname__) for c in get_safe_globals()}

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, pid):
                return reader.tensor(json.loads(pid))

            def find_class(self, module, qualname):
                if reader.weights_only and (module, qualname) not in safe:
                    raise pickle.UnpicklingError(
                        f"Weights only load failed. The file holds {name}, which needs {module}.{qualname}. Reading it can run arbitrary code: do it with "
                        f"weights_only=False if the file comes from a trusted source, or allow that name with torch.serialization.add_safe_globals.")
                return super().find_class(module, qualname)
        return Unpickler(io.BytesIO(base64.b64decode(text, validate=True))).load()

    def bad(self, what):
        raise ValueError(f"this file was not written by taper.save, or it is damaged: {what}")

    def value(self, v, depth=0):
        if depth > _DEPTH + 1:
            self.bad("it is nested too deep")
        if v is None or isinstance(v, (bool, int, float, str)):
            return v
        if not isinstance(v, dict) or not v:
            self.bad(f"{str(v)[:40]!r} stands where a value is expected")
        tag, x = next(iter(v.items()))
        if tag == "t":
            return self.tensor(v)
        if tag == "py" and isinstance(x, str):
            return self.unpickled(x, v.get("of"))
        if tag in ("d", "o"):
            if not isinstance(x, list) or not all(isinstance(p, list) and len(p) == 2 for p in x):
                self.bad("a dictionary is not a list of pairs")
            pairs = [(self.key(k), self.value(y, depth + 1)) for k, y in x]
            return dict(pairs) if tag == "d" else OrderedDict(pairs)
        if tag in ("l", "u", "z", "s", "r"):
            if not isinstance(x, list):
                self.bad("a list is expected")
            if tag == "z" and not all(type(y) is int and 0 <= y < 2 ** 62 for y in x):
                self.bad("a size is not a list of numbers")
            kind = {"l": list, "u": tuple, "z": _C.Size, "s": set, "r": frozenset}[tag]
            try:
                return kind(self.value(y, depth + 1) for y in x)
            except TypeError as e:
                self.bad(str(e))
        try:
            if tag == "f" and isinstance(x, str):
                return float(x)
            if tag == "b":
                return base64.b64decode(x, validate=True)
            if tag == "c":
                return complex(float(x[0]), float(x[1]))
            if tag == "dt" and isinstance(getattr(_C, str(x), None), _C.dtype):
                return getattr(_C, x)
            if tag == "dev":
                return _C.device(x)
        except (ValueError, TypeError, IndexError, KeyError, RuntimeError) as e:
            self.bad(str(e))
        self.bad(f"{str(tag)[:40]!r} is no kind of value")

    def key(self, k):
        if k is None or isinstance(k, (bool, int, str)):
            return k
        v = self.value(k)
        if isinstance(v, (float, tuple)):
            return v
        self.bad("a key is neither a string nor a number")

    def tensor(self, v):
        name = v["t"]
        if not isinstance(name, str) or name not in self.tensors:
            self.bad(f"there is no tensor {str(name)[:60]!r}")
        which = (name, bool(v.get("p")))
        if which not in self.made:
            t = self.tensors[name]
            if v.get("p"):
                from .nn import Parameter
                t = Parameter(t, requires_grad=bool(v.get("g")))
            elif v.get("g") and t.is_floating_point():
                t = t.requires_grad_()
            self.made[which] = t
        return self.made[which]


def load(f, map_location=None, pickle_module=None, *, weights_only=True, mmap=None, **kwargs):
    """Reads what save wrote, or any safetensors file as a dict of tensors. Pickle files are refused: they can run any code."""
    if hasattr(f, "read"):
        data = f.read()
        head, name = data[:9], "this"
    else:
        with open(f, "rb") as h:
            head, name = h.read(9), f
        data = f
    if (head[:2] == b"PK" or head[:1] == b"\x80") and head[8:] != b"{":  # eight bytes of length, then JSON
        raise ValueError(f"{name} is a pickle file. Loading one can run arbitrary code, so Taper does not read them; "
                         "convert it to safetensors first (safetensors.torch.save_file with PyTorch).")
    tensors, meta = _C._st_load(bytes(data) if hasattr(f, "read") else data)
    if map_location is not None and not callable(map_location) and str(map_location) not in ("cpu", "cuda") and not str(map_location).startswith("cuda:") \
            and not isinstance(map_location, dict):
        tensors = {k: v.to(map_location) for k, v in tensors.items()}
    if _KEY not in meta:
        return tensors
    try:
        tree = json.loads(meta[_KEY])
    except (ValueError, RecursionError) as e:
        raise ValueError(f"this file was not written by taper.save, or it is damaged: {e}") from None
    return _Reader(tensors, weights_only).value(tree)
