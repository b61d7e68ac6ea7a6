"""taper.ops.<namespace>.<name>.<overload>: operators by their ATen names."""
import re as _re
import sys as _sys
import types as _types
from . import _C


class Argument:
    """One parameter of a schema."""

    def __init__(self, text, kwarg_only):
        m = _re.match(r"(.+?) (\w+)(?:=(.*))?$", text)
        self.type, self.name, default = m[1], m[2], m[3]
        self.kwarg_only, self.default_text = kwarg_only, default
        self.alias_info = _re.search(r"\((\w+!?)\)", self.type)
        self.is_write = bool(self.alias_info and self.alias_info[1].endswith("!"))

    def has_default_value(self):
        return self.default_text is not None

    @property
    def default_value(self):
        t = self.default_text
        return {None: None, "None": None, "True": True, "False": False}.get(t, t)

    def __repr__(self):
        return f"{self.type} {self.name}" + ("" if self.default_text is None else f"={self.default_text}")


def _split(text):
    """Splits at commas that stand outside of brackets."""
    out, depth, at = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and not depth:
            out.append(text[at:i].strip())
            at = i + 1
    return out + ([text[at:].strip()] if text[at:].strip() else [])


class FunctionSchema:
    """The parsed signature of one overload."""

    def __init__(self, text):
        self.text = text
        head, rest = text.split("(", 1)
        name, _, self.overload_name = head.partition(".")
        self.name = name if "::" in name else "aten::" + name
        params, _, ret = rest.rpartition(") -> ")
        self.arguments, kwonly = [], False
        for p in _split(params):
            if p == "*":
                kwonly = True
            else:
                self.arguments.append(Argument(p, kwonly))
        ret = ret.strip()
        self.returns = _split(ret[1:-1]) if ret.startswith("(") else [ret]
        self.is_mutable = any(a.is_write for a in self.arguments)

    def __str__(self):
        return self.text if "::" in self.text else "aten::" + self.text

    __repr__ = __str__


class OpOverload:
    """One row of the op table (or one custom operator) as a callable."""

    def __init__(self, packet, overload, fn, schema):
        self.overloadpacket, self._overloadname, self._fn = packet, overload, fn
        self._opname = packet.__name__
        self.namespace = packet.namespace
        self._schema = FunctionSchema(schema) if isinstance(schema, str) else schema
        self.__name__ = f"{packet.__name__}.{overload}"
        self.__qualname__ = self.__name__
        self.__module__ = f"{__name__}.{packet.namespace}"

    def __call__(self, *args, **kwargs):
        return self._fn(*args, **kwargs)

    def name(self):
        return f"{self.namespace}::{self._opname}" + ("" if self._overloadname == "default" else "." + self._overloadname)

    def __str__(self):
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self):
        return f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"

    def __hash__(self):
        return hash(self.name())

    def __reduce__(self):
        return _find, (self.namespace, self._opname, self._overloadname)

    __deepcopy__ = lambda self, memo: self


class OpOverloadPacket:
    """All overloads of one name; calling it picks the first that the arguments fit."""

    def __init__(self, namespace, name, fn, overloads):
        self.namespace, self.__name__, self._fn, self._rows = namespace, name, fn, overloads
        self._qualified_op_name = f"{namespace}::{name}"
        self.__module__ = f"{__name__}.{namespace}"

    def overloads(self):
        return list(self._rows)

    def __getattr__(self, key):
        rows = self.__dict__.get("_rows", {})
        if key.startswith("__") or key not in rows:
            raise AttributeError(f"The underlying op of '{self.__dict__.get('_qualified_op_name')}' has no overload name '{key}'")
        fn, schema = rows[key]
        o = OpOverload(self, key, fn, schema)
        setattr(self, key, o)
        return o

    def __call__(self, *args, **kwargs):
        return self._fn(*args, **kwargs)

    def __str__(self):
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self):
        return f"<OpOverloadPacket(op='{self.namespace}.{self.__name__}')>"

    def __reduce__(self):
        return _find, (self.namespace, self.__name__, None)

    __deepcopy__ = lambda self, memo: self


# Questions about sizes, which graphs of exported programs ask.
_QUESTIONS = {"sym_size": (lambda x, dim: x.shape[dim], {"int": "aten::sym_size.int(Tensor self, int dim) -> SymInt"}),
              "sym_stride": (lambda x, dim: x.stride(dim), {"int": "aten::sym_stride.int(Tensor self, int dim) -> SymInt"}),
              "sym_numel": (lambda x: x.numel(), {"default": "aten::sym_numel(Tensor self) -> SymInt"}),
              "sym_storage_offset": (lambda x: x.storage_offset(), {"default": "aten::sym_storage_offset(Tensor self) -> SymInt"})}
# Operators of devices and of tensors that are not there: they can be named, and say so when they are called.
_ABSENT = {"_pin_memory": "aten::_pin_memory(Tensor self, Device? device=None) -> Tensor", "is_pinned": "aten::is_pinned(Tensor self, Device? device=None) -> bool",
           "_sparse_addmm": "aten::_sparse_addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
           "_sparse_mm_reduce_impl": "aten::_sparse_mm_reduce_impl(Tensor self, Tensor other, str reduce) -> (Tensor, Tensor)",
           "pin_memory": "aten::pin_memory(Tensor(a) self, Device? device=None) -> Tensor(a)"}


def _refused(op):
    def f(*args, **kwargs):
        if "sparse" in op:
            raise NotImplementedError(f"aten.{op}: sparse tensors are not supported")
        raise RuntimeError(f"aten.{op}: Cannot access accelerator device when none is available.")
    f.__name__ = op
    return f


def _find(namespace, name, overload):
    p = getattr(getattr(_sys.modules[__name__], namespace), name)
    return p if overload is None else getattr(p, overload)


class _Namespace(_types.ModuleType):
    def __init__(self, name):
        super().__init__(f"{__name__}.{name}")
        self.name = name
        self._dir = []

    def __getattr__(self, op):
        if op.startswith("__"):
            raise AttributeError(op)
        from . import library
        native = library._native(self.name, op)
        if native is not None:
            return native
        if self.name == "aten" and op in _QUESTIONS:
            fn, rows = _QUESTIONS[op]
            return self._define(op, fn, {o: (fn, schema) for o, schema in rows.items()})
        if self.name == "aten" and op in _ABSENT:
            return self._define(op, _refused(op), {"default": (_refused(op), _ABSENT[op])})
        raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{op}'")

    def _define(self, name, fn, overloads):
        """overloads: {overload name: (callable, schema)}"""
        p = OpOverloadPacket(self.name, name, fn, overloads)
        setattr(self, name, p)
        self._dir.append(name)
        return p

    def __iter__(self):
        return iter(self._dir)


_inplace_of = None


def _rows_of(name):
    """{overload: schema} of an ATen name, in-place twins included."""
    global _inplace_of
    if _inplace_of is None:
        _inplace_of = {}
        for full, schema, py, flags, *_ in _C._schemas():
            base, _, over = full.partition(".")
            _inplace_of.setdefault(base, {})[over or "default"] = schema
            if flags & (1 | 1 << 13):  # OPF_INP, OPF_INPONLY
                twin = _re.sub(r"^\w+", base + "_", schema, count=1)
                twin = twin.replace("(Tensor self", "(Tensor(a!) self", 1)
                twin = _re.sub(r"-> Tensor$", "-> Tensor(a!)", twin)
                _inplace_of.setdefault(base + "_", {})[over or "default"] = twin
    return _inplace_of.get(name)


def _of_row(full):
    """The overload a row's full name stands for: add.Tensor, add_.Tensor, relu."""
    name, _, overload = full.partition(".")
    return getattr(getattr(_sys.modules[__name__].aten, name), overload or "default")


class _Aten(_Namespace):
    def __getattr__(self, op):
        rows = None if op.startswith("__") else _rows_of(op)
        if not rows:
            return super().__getattr__(op)
        return self._define(op, _C._aten(op), {o: (_C._aten(f"{op}.{o}"), s) for o, s in rows.items()})

    def __dir__(self):
        _rows_of("add")
        return sorted(_inplace_of)


def load_library(path):
    """Load a shared library that registers operators (include/taper.h: taper_register_ops)."""
    _C._load_library(path)


class _HigherOrder(_Namespace):
    """Control flow as it stands in graphs."""

    def __getattr__(self, op):
        from . import _higher_order_ops as h
        fn = h.wrap if op == "wrap" else h.graph_calls.get(op)
        if fn is None:
            raise AttributeError(f"'_HigherOrderNamespace' object has no attribute '{op}'")
        return fn

    def __dir__(self):
        from ._higher_order_ops import graph_calls
        return [*graph_calls, "wrap"]


aten = _Aten("aten")
higher_order = _HigherOrder("higher_order")
_namespaces = {"aten": aten, "higher_order": higher_order}


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    ns = _namespaces.get(name)
    if ns is None:
        ns = _namespaces[name] = _Namespace(name)
    return ns
