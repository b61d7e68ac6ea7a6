"""taper.save and taper.load: checkpoints in the format of torch.save, read without running anything in them (docs/checkpoints.md).

A file is a zip archive with one pickle and the bytes of every storage, or, in the older format, pickles with the bytes after them. load() runs the
pickle on the machine of _unpickle.py with the names below and no others; weights_only=False reads it with Python's pickle, which can run any code."""
import io
import mmap as _mmap
import os
import pickle
import struct
from collections import Counter, OrderedDict
from pickle import UnpicklingError

from . import _C, _archive, _unpickle
from .storage import ABSENT, NAMED, TypedStorage

_MAGIC, _PROTOCOL = 0x1950a86a20f9469cfc6c, 1001
_LIMIT = 1 << 46  # bytes of a file
_NAME_OF = {dtype: name for name, dtype in NAMED.items()}
_PLAIN = (str, int, float, bool, type(None), dict, list, tuple, bytes, OrderedDict)


# --- what the names in a pickle mean --------------------------------------------------------------------------------------
class _StorageType:
    """Stands for torch.FloatStorage and the like inside a pickle."""

    def __init__(self, name, dtype):
        self.name, self.dtype = name, dtype


def _typed(storage):
    if type(storage) is TypedStorage:
        return storage._untyped_storage, storage.dtype
    if type(storage) is _C.UntypedStorage:
        return storage, _C.uint8
    raise UnpicklingError(f"a tensor is made of a {type(storage).__name__}, not of a storage")


def _bools(storage):
    """Bytes of a file can be neither true nor false."""
    n = storage.nbytes()
    if n and storage.device.type == "cpu" and int(_C._tensor_on(storage, _C.uint8, 0, (n,), (1,)).max()) > 1:
        raise UnpicklingError("a tensor of type bool holds bytes other than 0 and 1")


def _tensor(storage, dtype, offset, size, stride, requires_grad):
    if type(size) is _C.Size:
        size = tuple(size)
    t = _C._tensor_on(storage, dtype, offset, size, stride)
    return t.requires_grad_() if requires_grad else t


def _rebuild_tensor(storage, offset, size, stride):
    return _tensor(*_typed(storage), offset, size, stride, False)


def _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks=None, metadata=None):
    return _tensor(*_typed(storage), offset, size, stride, requires_grad)


def _rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype, metadata=None):
    if dtype is _C.bool:
        raise UnpicklingError("a tensor of type bool is made of a storage without a type")
    return _tensor(_typed(storage)[0], dtype, offset, size, stride, requires_grad)


def _rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad):
    t = _C._op_functions[""]["empty_strided"](size, stride, dtype=dtype, device="meta")
    return t.requires_grad_() if requires_grad else t


def _rebuild_parameter(data, requires_grad=True, hooks=None):
    from .nn import Parameter
    if not isinstance(data, _C.Tensor):
        raise UnpicklingError("a parameter is made of something that is no tensor")
    return Parameter(data, bool(requires_grad))


def _rebuild_parameter_with_state(data, requires_grad, hooks, state):
    return _with_state(_rebuild_parameter(data, requires_grad), state)


def _rebuild_from_type_v2(func, new_type, args, state):
    t = func(*args)
    if type(t) is not new_type:
        t = t.as_subclass(new_type)
    return _with_state(t, state)


def _with_state(t, state):
    if isinstance(state, tuple) and len(state) == 2:  # the attributes and those in slots
        state = state[0]
    if state:
        t.__dict__.update(state)
    return t


def _encode(text, encoding="latin1"):
    """How protocol 2 writes bytes."""
    if type(text) is not str or encoding != "latin1":
        raise UnpicklingError(f"bytes are encoded as {encoding!r}")
    return text.encode("latin1")


def _ordered(pairs=()):
    return OrderedDict((_unpickle.check_key(k), v) for k, v in pairs)


def _one_of(kinds, make):
    def call(*args):
        if not all(type(a) in kinds for a in args):
            raise UnpicklingError(f"a {'/'.join(k.__name__ for k in kinds)} is expected, not {', '.join(type(a).__name__ for a in args)}")
        return make(*args)
    return call


_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc")


def _get_layout(name):
    if name not in ["torch." + n for n in _LAYOUTS]:
        raise UnpicklingError(f"layout {str(name)[:40]!r} is not supported")
    return getattr(_C, name[6:])


def _rebuild_sparse_tensor(layout, data):
    from .sparse import _tensor
    if type(data) is not tuple or len(data) not in (3, 4) or not all(isinstance(t, _C.Tensor) for t in data[:2]):
        raise UnpicklingError("a sparse tensor is made of something else than indices, values and a size")
    try:
        return _tensor._rebuild(layout, data)
    except (TypeError, ValueError, IndexError, RuntimeError) as e:
        raise UnpicklingError(f"a sparse tensor is damaged: {e}") from None


def _names():
    from . import nn
    own = {"torch._utils." + f.__name__: f for f in (_rebuild_tensor, _rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_meta_tensor_no_storage,
                                                    _rebuild_parameter, _rebuild_parameter_with_state, _rebuild_sparse_tensor)}
    calls = {**own, "torch._tensor._rebuild_from_type_v2": _rebuild_from_type_v2, "torch.serialization._get_layout": _get_layout,
             "collections.OrderedDict": _ordered, "collections.Counter": lambda d=(): Counter(dict(d)), "torch.Size": lambda d=(): _C.Size(d),
             "torch.device": _one_of((str, int), _C.device), "builtins.set": lambda d=(): set(map(_unpickle.check_key, d)),
             "builtins.frozenset": lambda d=(): frozenset(map(_unpickle.check_key, d)),
             "builtins.complex": _one_of((float, int), complex), "builtins.bytearray": _one_of((bytes,), bytearray), "_codecs.encode": _encode,
             "torch.nn.parameter.Parameter": _rebuild_parameter}
    shown = {"collections.OrderedDict": OrderedDict, "collections.Counter": Counter, "torch.Size": _C.Size, "torch.device": _C.device,
             "builtins.set": set, "builtins.frozenset": frozenset, "builtins.complex": complex, "builtins.bytearray": bytearray, "torch.nn.parameter.Parameter": nn.Parameter}
    table = {k: (shown.get(k, f), f) for k, f in calls.items()}
    table.update({k.replace("builtins", "__builtin__"): v for k, v in table.items() if k.startswith("builtins.")})
    table["torch.nn.Parameter"] = table["torch.nn.parameter.Parameter"]
    table["torch.Tensor"] = table["torch._tensor.Tensor"] = _C.Tensor, None
    for name, dtype in {**NAMED, **ABSENT}.items():
        table["torch." + name] = table["torch.cuda." + name] = _StorageType(name, dtype), None
    for name in ("storage.UntypedStorage", "UntypedStorage", "storage._UntypedStorage", "cuda.UntypedStorage"):
        table["torch." + name] = _StorageType("UntypedStorage", None), None
    for name in dir(_C):
        if isinstance(getattr(_C, name), _C.dtype):
            table["torch." + name] = getattr(_C, name), None
    return table


_table = {}
_NOT_HERE = {"qtensor": "quantized tensors", "nested": "nested tensors", "wrapper_subclass": "tensors of wrapper subclasses",
             "device_tensor": "tensors of other devices"}


def _known(full):
    if not _table:
        _table.update(_names())
    return _table.get(full)


def _safe_globals():
    from .serialization import get_safe_globals
    out = {}
    for g in get_safe_globals():
        obj, name = g if isinstance(g, tuple) else (g, f"{g.__module__}.{g.__qualname__}")
        out[name] = obj
    return out


def _shown(text):
    """Text of a file in a message: on one line, not too long, without what a terminal would obey."""
    return text[:200].encode("unicode_escape").decode()


class _Safe:
    """What a pickle may name with weights_only=True."""

    def __init__(self):
        self.user = _safe_globals()

    def find(self, module, name):
        full = f"{module}.{name}"
        known = _known(full)
        if known:
            value, call = known
            if call is _rebuild_from_type_v2:
                return value, self.from_type
            return value, call and (lambda args, new: call(*args))
        if full in self.user:
            obj = self.user[full]
            return obj, (lambda args, new: obj.__new__(obj, *args) if new else obj(*args)) if callable(obj) else None
        for part, what in _NOT_HERE.items():
            if full.startswith("torch._utils._rebuild_") and part in name:
                raise UnpicklingError(f"the file holds {what}, which are not supported ({full})")
        raise UnpicklingError(
            f"Weights only load failed. The file needs {_shown(full)}, which is not one of the names that checkpoints of tensors use. Reading it can run "
            "arbitrary code: do it with weights_only=False if the file comes from a trusted source, or allow that name with "
            "torch.serialization.add_safe_globals.")

    def from_type(self, args, new):
        func, kind, inner, state = args
        from .nn import Parameter
        if func not in (_rebuild_tensor, _rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_parameter, _rebuild_meta_tensor_no_storage):
            raise UnpicklingError("a tensor is made by something else than a tensor's function")
        if kind not in (_C.Tensor, Parameter) and kind not in self.user.values():
            raise UnpicklingError(f"a tensor of the class {kind!r} is not allowed")
        return _rebuild_from_type_v2(func, kind, inner, state)

    def build(self, value, state):
        if type(value) not in self.user.values():
            return False
        if hasattr(value, "__setstate__"):
            value.__setstate__(state)
        else:
            value.__dict__.update(state)
        return True


class _Trusting(pickle.Unpickler):
    """weights_only=False: Python's own reader; names of PyTorch mean their namesakes here."""

    def __init__(self, f, persistent, module=None):
        super().__init__(f)
        self.persistent_load = persistent

    def find_class(self, module, name):
        known = _known(f"{module}.{name}")
        if known:
            return known[0]
        if module == "torch" or module.startswith("torch."):
            import importlib
            try:
                value = importlib.import_module("taper" + module[5:])
                for part in name.split("."):
                    value = getattr(value, part)
                return value
            except (ImportError, AttributeError):
                raise UnpicklingError(f"the file needs {module}.{name}, which Taper does not have") from None
        return super().find_class(module, name)


# --- where storages go ----------------------------------------------------------------------------------------------------
def _chooses(map_location):
    return callable(map_location) and not isinstance(map_location, _C.device)  # a device can be called: as a decorator


def _device(location, map_location):
    """The device that map_location and the name in the file choose."""
    if isinstance(map_location, dict):
        location = map_location.get(location, location)
    elif map_location is not None and not _chooses(map_location):
        location = map_location
    if isinstance(location, _C.device):
        return location
    if location.startswith("cuda") and map_location is None:
        from . import cuda
        if not cuda.is_available():
            raise RuntimeError("Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False: there is no such device here. "
                               "Use map_location='cpu' to load it into the memory of this machine.")
    try:
        return _C.device(location)
    except RuntimeError as e:
        raise RuntimeError(f"the file has a storage on {location[:60]!r}: {e}; choose another place with map_location") from None


class _Storages:
    """Makes each storage of a file once."""

    def __init__(self, map_location):
        self.map_location, self.made, self.bools = map_location, {}, set()

    def parse(self, pid):
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage" or not isinstance(pid[1], _StorageType) or not isinstance(pid[2], str) \
                or not isinstance(pid[3], str) or type(pid[4]) is not int or not 0 <= pid[4] < 1 << 50:
            raise UnpicklingError("a storage is not described by its type, key, location and size")
        kind, key, location, n = pid[1:5]
        if kind.name in ABSENT:
            raise UnpicklingError(f"storage {_shown(key)!r} has the element type {str(kind.dtype).split('.')[-1]}, which Taper does not support")
        return kind, key, location, n * (kind.dtype.itemsize if kind.dtype is not None else 1)

    def give(self, kind, key, nbytes, make):
        s = self.made.get(key)
        if s is None:
            s = self.made[key] = make()
        if s.nbytes() != nbytes:
            raise UnpicklingError(f"storage {_shown(key)!r} has {s.nbytes()} bytes, but the pickle says {nbytes}")
        if kind.dtype is _C.bool and key not in self.bools:
            self.bools.add(key)
            _bools(s)
        return s if kind.dtype is None else TypedStorage(wrap_storage=s, dtype=kind.dtype)

    def put(self, part, location):
        """A storage with these bytes where it belongs."""
        if _chooses(self.map_location):
            s = _C._storage_from_bytes(part)
            r = self.map_location(s, location)
            if r is not None:
                return r._untyped_storage if isinstance(r, TypedStorage) else r
            return _moved(s, _device(location, None))
        d = _device(location, self.map_location)
        if d.type == "meta":
            return _C._op_functions[""]["empty"]([len(part)], dtype=_C.uint8, device="meta").untyped_storage()
        return _moved(_C._storage_from_bytes(part), d)


def _moved(storage, device):
    if device.type == "cpu":
        return storage
    return _C._tensor_on(storage, _C.uint8, 0, (storage.nbytes(),), (1,)).to(device).untyped_storage()


def _swapped(part, size):
    out = bytearray(len(part))
    for i in range(size):
        out[i::size] = part[size - 1 - i::size]
    return out


def _unpickled(data, at, weights_only, persistent):
    """(value, where it ends)"""
    if weights_only:
        safe = _Safe()
        return _unpickle.Machine(data, safe.find, persistent, safe.build).run(at)
    f = io.BytesIO(data)
    f.seek(at)
    try:
        return _Trusting(f, persistent).load(), f.tell()
    except (EOFError, ValueError, IndexError, KeyError) as e:
        raise UnpicklingError(f"the pickle is damaged: {e}") from e


def _read_zip(data, weights_only, map_location, mapped):
    z = _archive.Reader(data)
    if z.has("constants.pkl"):
        raise RuntimeError("the file is a TorchScript program, not a checkpoint; save the state_dict() of the module with PyTorch and load that")
    order = bytes(z.read("byteorder")) if z.has("byteorder") else b"little"
    if order not in (b"little", b"big"):
        raise RuntimeError(f"the byte order is {order[:20]!r}")
    stores = _Storages(map_location)

    def persistent(pid):
        kind, key, location, nbytes = stores.parse(pid)
        name = "data/" + key

        def make():
            if z.size(name) != nbytes:
                raise UnpicklingError(f"storage {_shown(key)!r} has {z.size(name)} bytes in the archive, but the pickle says {nbytes}")
            if mapped and nbytes and order == b"little" and not _chooses(map_location) and _device(location, map_location).type == "cpu":
                begin = (z.place(name) or (1,))[0]
                if begin % 8 == 0:
                    return _C.frombuffer(data, dtype=_C.uint8, count=nbytes, offset=begin).untyped_storage()
            part = z.read(name)
            return stores.put(_swapped(part, kind.dtype.itemsize) if order == b"big" and kind.dtype is not None else part, location)
        return stores.give(kind, key, nbytes, make)
    return _unpickled(z.read("data.pkl"), 0, weights_only, persistent)[0]


def _read_legacy(data, weights_only, map_location):
    """Magic number, protocol, facts of the machine, the object, the keys of its storages; then for each a count and its bytes."""
    view, at, head = memoryview(data), 0, []
    for _ in range(3):
        v, at = _unpickled(view, at, True, None)
        head.append(v)
        if head[0] != _MAGIC:
            raise UnpicklingError("this is a pickle, but not one that torch.save wrote")
    if head[1] != _PROTOCOL:
        raise UnpicklingError(f"the file has version {head[1]!r} of the format; {_PROTOCOL} is read")
    if not isinstance(head[2], dict) or head[2].get("little_endian") is not True:
        raise UnpicklingError("the file was written on a big-endian machine")
    stores, want, left, views = _Storages(map_location), {}, [len(view)], {}

    def persistent(pid):
        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module":  # the source text of a class, for a warning only
            return pid[1]
        kind, key, location, nbytes = stores.parse(pid)

        def make():
            left[0] -= nbytes
            if left[0] < 0:
                raise UnpicklingError(f"storage {_shown(key)!r} has {nbytes} bytes, more than the file")
            t = _C._op_functions[""]["zeros"]([nbytes], dtype=_C.uint8)
            want[key] = t, kind, nbytes
            if _chooses(map_location):
                r = map_location(t.untyped_storage(), location)
                s = t.untyped_storage() if r is None else r._untyped_storage if isinstance(r, TypedStorage) else r
            else:
                s = stores.put(bytes(nbytes), location) if _device(location, map_location).type != "cpu" else t.untyped_storage()
            want[key] = (t if s is t.untyped_storage() else _C._tensor_on(s, _C.uint8, 0, (nbytes,), (1,))), kind, nbytes
            return s
        part = pid[5] if len(pid) > 5 else None
        if part is not None:
            if not isinstance(part, tuple) or len(part) != 3 or kind.dtype is None or not all(type(x) is int for x in part[1:]):
                raise UnpicklingError("a part of a storage is not described by its key, offset and size")
            whole, size = stores.give(kind, key, nbytes, make).untyped(), kind.dtype.itemsize
            return TypedStorage(wrap_storage=views.setdefault((key, part), whole[part[1] * size:(part[1] + part[2]) * size]), dtype=kind.dtype)
        return stores.give(kind, key, nbytes, make)
    value, at = _unpickled(view, at, weights_only, persistent)
    keys, at = _unpickled(view, at, True, None)
    if not isinstance(keys, list) or sorted(map(str, keys)) != sorted(want):
        raise UnpicklingError("the list of storages does not name those that the pickle uses")
    for key in keys:
        t, kind, nbytes = want[key]
        n = struct.unpack("<q", view[at:at + 8])[0] if len(view) >= at + 8 else -1
        at += 8
        if n * (kind.dtype.itemsize if kind.dtype else 1) != nbytes or at + nbytes > len(view):
            raise UnpicklingError(f"the file ends before the bytes of storage {_shown(key)!r}, or they are fewer than the pickle says")
        if nbytes and t.device.type != "meta":
            part = view[at:at + nbytes]
            whole = _C._storage_from_bytes(part)
            if key in stores.bools:
                _bools(whole)
            t.copy_(_C._tensor_on(whole, _C.uint8, 0, (nbytes,), (1,)))
        at += nbytes
    return value


def _inside(folder):
    """A file of a folder that looks like a checkpoint; a name such files often have where there is none."""
    ends = (".index.json", ".safetensors", ".pt", ".pth", ".bin", ".ckpt")
    names = sorted(n for n in os.listdir(folder) if n.endswith(ends))
    return os.path.join(folder, min(names, key=lambda n: next(i for i, e in enumerate(ends) if n.endswith(e))) if names else "model.safetensors")


def _contents(f, mapped):
    """The bytes of a file: mapped where it has a name, read where it is an object."""
    if hasattr(f, "read"):
        data = f.read()
        if not isinstance(data, (bytes, bytearray)):
            raise TypeError(f"taper.load needs a file opened in binary mode: read() gave a {type(data).__name__}")
        if mapped:
            raise ValueError("mmap=True needs the name of a file, not an object to read from")
        return data
    path = os.fspath(f)
    if os.path.isdir(path):
        raise IsADirectoryError(f"taper.load: {path!r} is a folder; give it the file in it, for example {_inside(path)!r}")
    with open(path, "rb") as h:
        st = os.fstat(h.fileno())
        import stat
        if not stat.S_ISREG(st.st_mode):  # a pipe or a device has no size; it may have no end
            data = h.read(1 << 30)
            if len(data) == 1 << 30:
                raise OSError(f"{path!r} is no regular file, and larger than the limit of {1 << 30} bytes")
            return data
        if st.st_size > _LIMIT:
            raise OSError(f"{path!r} is larger than the limit of {_LIMIT} bytes")
        return _mmap.mmap(h.fileno(), 0, access=_mmap.ACCESS_COPY if mapped else _mmap.ACCESS_READ) if st.st_size else b""


def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, **pickle_load_args):
    """Reads a checkpoint: what save or torch.save wrote, a safetensors file as a dict of tensors, or a sharded one by the name of its index.

    map_location: a device, a dict of devices, or a function of (storage, name), for tensors that were elsewhere; mmap: the tensors look at the file
    itself, which is read when they are; weights_only=False: objects of any class are read, which can run code of the file's choosing.

        model.load_state_dict(taper.load("model.pt"))"""
    if weights_only is None:
        weights_only = pickle_module is None
    name = f"{os.fspath(f)!r}" if not hasattr(f, "read") else "this file"
    if not hasattr(f, "read") and os.fspath(f).endswith(".index.json"):
        from . import safetensors
        tensors = safetensors.load_file(f)
        return tensors if map_location is None else {k: v.to(_device("cpu", map_location)) for k, v in tensors.items()}
    data = _contents(f, bool(mmap))
    head = bytes(data[:9])
    try:
        if not head:
            raise EOFError("it is empty")
        if head[8:] == b"{":  # eight bytes of length, then JSON
            tensors, _ = _C._st_load(data)
            return tensors if map_location is None or _chooses(map_location) else {k: v.to(_device("cpu", map_location)) for k, v in tensors.items()}
        if head[:4] == b"PK\x03\x04":
            return _read_zip(data, weights_only, map_location, bool(mmap))
        if mmap:
            raise RuntimeError("mmap=True needs a file in the zip format of torch.save; this one is older")
        if head[:1] == b"\x80":
            return _read_legacy(data, weights_only, map_location)
        raise UnpicklingError(f"it is neither a checkpoint nor a safetensors file (it begins with {head!r})")
    except (UnpicklingError, EOFError, RuntimeError, ValueError) as e:
        e.args = (f"taper.load: cannot read {name}: {e}",)
        raise


def unsafe_names(f):
    """The names in a checkpoint that weights_only=True refuses."""
    import pickletools
    data = _contents(f, False)
    if bytes(data[:4]) == b"PK\x03\x04":
        parts = [bytes(_archive.Reader(data).read("data.pkl"))]
    else:
        at, view = 0, memoryview(data)
        for _ in range(3):
            at = _unpickled(view, at, True, None)[1]
        parts = [bytes(view[at:])]
    user, found, words = _safe_globals(), [], []
    for op, arg, _ in pickletools.genops(parts[0]):
        if isinstance(arg, str) and op.name != "GLOBAL":
            words.append(arg)
        full = arg.replace(" ", ".", 1) if op.name == "GLOBAL" else ".".join(words[-2:]) if op.name == "STACK_GLOBAL" else None
        if full and not _known(full) and full not in user and full not in found:
            found.append(full)
    return found


# --- writing ---------------------------------------------------------------------------------------------------------------
class _Name:
    """A global of PyTorch, by name: it need not be importable."""

    def __init__(self, full):
        self.module, _, self.name = full.rpartition(".")

    def __call__(self):
        raise AssertionError

    __name__ = ""


_globals = {}


def _global(full):
    return _globals.setdefault(full, _Name(full))


class _Pickler(pickle._Pickler):
    """Writes tensors as PyTorch does, and the classes of this package under PyTorch's names."""

    def __init__(self, f, protocol, legacy=False):
        super().__init__(f, protocol)
        self.storages, self.keep, self.renamed, self.legacy = {}, [], {}, legacy

    def persistent_id(self, obj):
        if isinstance(obj, TypedStorage):
            return self.storage(obj._untyped_storage, obj.dtype)
        if type(obj) is _C.UntypedStorage:
            return self.storage(obj, None)
        return None

    def storage(self, s, dtype):
        if dtype is None and self.legacy:
            dtype = _C.uint8  # the older format has no name for bytes without a type
        if s._cdata not in self.storages:
            self.storages[s._cdata] = str(len(self.storages)), s, dtype
            self.keep.append(s)
        key, size = self.storages[s._cdata][0], dtype.itemsize if dtype is not None else 1
        kind = _global("torch." + _NAME_OF[dtype] if dtype is not None else "torch.storage.UntypedStorage")
        d = s.device
        where = "cpu" if d.type == "cpu" else f"{d.type}:{d.index or 0}"
        return ("storage", kind, key, where, s.nbytes() // size) + ((None,) if self.legacy else ())

    def save(self, obj, save_persistent_id=True):
        if type(obj).__module__ == "numpy" and getattr(obj, "ndim", 1) == 0 and hasattr(obj, "item") and isinstance(obj.item(), (bool, int, float, complex, str)):
            obj = obj.item()
        super().save(obj, save_persistent_id)

    def reducer_override(self, obj):
        if type(obj) in _PLAIN:
            return NotImplemented
        from .nn import Buffer, Parameter
        if isinstance(obj, _Name):
            return obj.name
        if isinstance(obj, _C.Tensor):
            return self.tensor(obj, Parameter, Buffer)
        if isinstance(obj, _C.dtype):
            return self.as_global(obj, "torch." + str(obj).split(".")[-1])
        if isinstance(obj, _C.layout):
            return _global("torch.serialization._get_layout"), ("torch." + str(obj).split(".")[-1],)
        if type(obj) is _C.Size:
            return _global("torch.Size"), (tuple(obj),)
        if type(obj) is _C.device:
            return _global("torch.device"), (obj.type,) if obj.index is None else (obj.type, obj.index)
        if isinstance(obj, type) and (obj.__module__ == "taper" or obj.__module__.startswith("taper.")):
            return self.as_global(obj, "torch" + obj.__module__[5:] + "." + obj.__qualname__)
        return NotImplemented

    def as_global(self, obj, full):
        self.renamed[id(obj)] = full, obj
        return full

    def save_global(self, obj, name=None):
        full = (obj.module + "." + obj.name) if isinstance(obj, _Name) else self.renamed.get(id(obj), (None,))[0]
        if full is None:
            return super().save_global(obj, name)
        module, _, name = full.rpartition(".")
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)

    def tensor(self, t, Parameter, Buffer):
        if t.layout is not _C.strided:
            from .sparse import _tensor
            args = _tensor._state(t)
            self.keep.append(args)
            return _global("torch._utils._rebuild_sparse_tensor"), args
        state = dict(t.__dict__)
        if isinstance(t, Parameter):
            data = t.detach()
            if state:
                return _global("torch._utils._rebuild_parameter_with_state"), (data, t.requires_grad, OrderedDict(), state)
            return _global("torch._utils._rebuild_parameter"), (data, t.requires_grad, OrderedDict())
        if t.device.type == "meta" or t._is_fake():
            return _global("torch._utils._rebuild_meta_tensor_no_storage"), (t.dtype, tuple(t.shape), tuple(t.stride()), bool(t.requires_grad))
        func = _global("torch._utils._rebuild_tensor_v2")
        args = (TypedStorage(wrap_storage=t.untyped_storage(), dtype=t.dtype) if t.untyped_storage().nbytes() % t.dtype.itemsize == 0
                else _trimmed(t), t.storage_offset(), tuple(t.shape), tuple(t.stride()), bool(t.requires_grad), OrderedDict())
        if t.dtype not in _NAME_OF:  # types without a storage class: bytes and the type
            func, args = _global("torch._utils._rebuild_tensor_v3"), (t.untyped_storage(), *args[1:], t.dtype)
        self.keep.append(args)  # what is pickled is known by its address: it must live on
        if type(t) in (_C.Tensor, Buffer) and not (state and type(t) is _C.Tensor):
            return func, args
        return _global("torch._tensor._rebuild_from_type_v2"), (func, type(t) if type(t) is not _C.Tensor else _global("torch.Tensor"), args, state)


def _trimmed(t):
    s = t.untyped_storage()
    return TypedStorage(wrap_storage=s[:s.nbytes() // t.dtype.itemsize * t.dtype.itemsize], dtype=t.dtype)


def _bytes_of(s):
    return bytes(s) if s.device.type == "cpu" else bytes(_moved_to_cpu(s))


def _moved_to_cpu(s):
    return _C._tensor_on(s, _C.uint8, 0, (s.nbytes(),), (1,)).cpu().untyped_storage()


def _pickled(obj, protocol, legacy=False):
    out = io.BytesIO()
    p = _Pickler(out, protocol, legacy)
    try:
        p.dump(obj)
    except (pickle.PicklingError, TypeError, AttributeError) as e:
        hint = "; save model.state_dict() instead of the model" if hasattr(obj, "state_dict") else ""
        raise type(e)(f"taper.save: the object cannot be pickled: {e}{hint}") from e
    return out.getvalue(), list(p.storages.values())


def _write_zip(obj, f, folder, protocol):
    data, storages = _pickled(obj, protocol)
    w = _archive.Writer(f, folder)
    w.add("data.pkl", data)
    for name, text in ((".format_version", b"1"), (".storage_alignment", b"64"), ("byteorder", b"little")):
        w.add(name, text)
    for key, s, _ in storages:
        w.add("data/" + key, _bytes_of(s))
    w.add("version", b"3\n")
    w.close()


def _write_legacy(obj, f, protocol):
    data, storages = _pickled(obj, protocol, legacy=True)
    for v in (_MAGIC, _PROTOCOL, {"protocol_version": _PROTOCOL, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}):
        pickle.dump(v, f, protocol=2)
    f.write(data)
    pickle.dump([key for key, _, _ in storages], f, protocol=2)
    for _, s, dtype in storages:
        f.write(struct.pack("<q", s.nbytes() // (dtype.itemsize if dtype else 1)) + _bytes_of(s))


def save(obj, f, pickle_module=None, pickle_protocol=2, _use_new_zipfile_serialization=True, **kwargs):
    """Writes tensors, and any values around them, to a file (or to an object with write) that taper.load and torch.load read. Tensors that share
    memory share it in the file. A dict of tensors goes to a name that ends in .safetensors as a safetensors file. A file appears whole or not at all.

        taper.save({"epoch": 3, "model": model.state_dict()}, "run.pt")"""
    if not hasattr(f, "write") and not isinstance(f, (str, os.PathLike)):
        raise AttributeError(f"expected 'f' to be string, path, or a file-like object with a 'write' attribute, not {type(f).__name__}")

    def write(h, folder):
        if _use_new_zipfile_serialization:
            _write_zip(obj, h, folder, pickle_protocol)
        else:
            _write_legacy(obj, h, pickle_protocol)
    if hasattr(f, "write"):
        return write(f, "archive")
    path = os.fspath(f)
    if path.endswith(".safetensors") and isinstance(obj, dict) and all(isinstance(k, str) and isinstance(v, _C.Tensor) for k, v in obj.items()):
        from . import safetensors
        return safetensors.save_file({k: v.detach() for k, v in obj.items()}, path)
    real = os.path.realpath(path)
    if os.path.exists(real) and not os.path.isfile(real):
        if os.path.isdir(real):
            raise RuntimeError(f"taper.save: {path!r} is a directory")
        with open(real, "wb") as h:
            return write(h, "archive")
    if not os.path.isdir(os.path.dirname(real)):
        raise RuntimeError(f"Parent directory {os.path.dirname(path)} does not exist.")
    part = f"{real}.part{os.getpid()}"
    try:
        with open(part, "wb") as h:
            write(h, os.path.splitext(os.path.basename(path))[0] or "archive")
        os.replace(part, real)
    except BaseException:
        if os.path.exists(part):
            os.remove(part)
        raise
