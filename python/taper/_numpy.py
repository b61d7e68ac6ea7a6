"""NumPy arrays while a function is traced: an array that shares its memory with a traced tensor is one of these, and functions of
NumPy on it are operators of the graph. What is not here, or has other rules than tensors have, ends the graph; what is alive then,
or returned, is a NumPy array again. Loaded when both NumPy and capture are in use."""
import numpy as np

import taper

from . import _C

_FLOATS = (taper.float32, taper.float64)
_INTS = (taper.int32, taper.int64)
_WIDE = (taper.float32, taper.float64, taper.int64, taper.bool)
_NAMES = {"bool": taper.bool, "uint8": taper.uint8, "int8": taper.int8, "int16": taper.int16, "int32": taper.int32, "int64": taper.int64,
          "float16": taper.float16, "float32": taper.float32, "float64": taper.float64, "complex64": taper.complex64,
          "complex128": taper.complex128}
_DTYPES = {v: np.dtype(k) for k, v in _NAMES.items()}


def _break():
    raise _C.FakeTensorError("this use of NumPy is none that a graph holds")


_C._capture_role(_break, "numpy_break")


# --- asked at once, of NumPy itself; arguments are plain values
def _promote(items):
    """The type that NumPy computes with: tensors' types and NumPy's scalars as they are, Python's numbers by NumPy's rules."""
    try:
        return _NAMES.get(np.result_type(*[_DTYPES[i] if isinstance(i, taper.dtype) else i for i in items]).name)
    except (KeyError, TypeError, OverflowError):
        return None


def _dtype(d):
    try:
        return _NAMES.get(np.dtype(d).name)
    except TypeError:
        return None


def _constant(fn, args, kwargs):
    """fn(*args, **kwargs) without tensors: a scalar as it is; an array as (list, type)."""
    try:
        r = fn(*args, **kwargs)
    except Exception:  # the program sees it where it is raised
        return None
    if isinstance(r, (np.generic, int, float, bool)):
        return r
    if type(r) is np.ndarray and r.dtype.name in _NAMES and r.size <= 4096 and 0 not in r.shape and r.flags.c_contiguous:
        return (r.tolist(), _NAMES[r.dtype.name])
    return None


def _outside(t, scalar):
    """What the program has of it where the graph ends."""
    a = t.detach().numpy()
    return a[()] if scalar else a


_unbound = {}


def _method_named(name):
    """A method of ours where the graph ends: that of whatever array it is called on."""
    def call(self, *args, **kwargs):
        return getattr(self, name)(*args, **kwargs)
    return _unbound.setdefault(name, call)


for _f in (_promote, _dtype, _constant):
    _C._capture_role(_f, "native")


def _is_number(v):
    return isinstance(v, (bool, int, float, np.generic))


def _is_int(v):
    return isinstance(v, int) and not isinstance(v, (bool, np.generic))


def _kind(v):
    return v._t.dtype if isinstance(v, ndarray) else v


def _operand(v, dtype):
    return v._t.to(dtype) if isinstance(v, ndarray) else v if not isinstance(v, np.generic) else v.item()


def _common(*vs):
    """The type for these operands, one of which is an array."""
    for v in vs:
        if not isinstance(v, ndarray) and not _is_number(v):
            _break()
    narrow = any([isinstance(v, ndarray) and v._t.dtype not in _WIDE for v in vs])
    d = _promote(tuple([1 if _is_int(v) and not narrow else _kind(v) for v in vs]))  # an int of any size; it may be symbolic
    if d is None or d.is_complex or d is taper.float16:
        _break()
    return d


def _wrap(t, *of):
    """A result without dimensions is a scalar."""
    return ndarray(t, t.dim() == 0)


def _binary(fn, a, b, floats=False):
    d = _common(a, b)
    if floats and d not in _FLOATS:
        if d not in _INTS:
            _break()
        d = taper.float64
    if not isinstance(a, ndarray):
        a = ndarray(taper.full((), _operand(a, d), dtype=d), True)
    return _wrap(fn(a._t.to(d), _operand(b, d)))


def _in_place(fn, a, b):
    if a._scalar or _common(a, b) is not a._t.dtype or isinstance(b, ndarray) and b._t.dtype is not a._t.dtype:
        _break()
    fn(a._t, _operand(b, a._t.dtype))
    return a


def _float_only(a):
    if a._t.dtype in _FLOATS:
        return a._t
    if a._t.dtype not in _INTS:
        _break()
    return a._t.to(taper.float64)


def _axes(t, axis):
    if axis is None:
        return tuple(range(t.dim()))
    return tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)


def _index(k):
    """An index for tensors: slices backwards and masks end the graph."""
    if isinstance(k, tuple):
        return tuple([_index(i) for i in k])
    if isinstance(k, slice):
        if k.step is not None and not (isinstance(k.step, int) and k.step > 0):
            _break()
        return k
    if isinstance(k, ndarray):
        if k._t.dtype not in _INTS or k._scalar:
            _break()
        return k._t
    if k is None or k is Ellipsis or isinstance(k, int) and not isinstance(k, bool):
        return k
    if isinstance(k, list) and all([isinstance(i, int) and not isinstance(i, bool) for i in k]) and k:
        return k
    _break()


class ndarray:
    __hash__ = None

    def __init__(self, t, scalar=False):
        self._t, self._scalar = t, scalar

    # --- what it is
    @property
    def shape(self):
        return tuple(self._t.shape)

    @property
    def ndim(self):
        return self._t.dim()

    @property
    def size(self):
        return self._t.numel()

    @property
    def dtype(self):
        return _DTYPES[self._t.dtype]

    @property
    def T(self):
        return ndarray(self._t.permute(*range(self._t.dim() - 1, -1, -1)), self._scalar)

    def __getattr__(self, name):
        _break()

    def __repr__(self):
        _break()

    __str__ = __copy__ = __repr__

    def __format__(self, spec):
        _break()

    def __deepcopy__(self, memo):
        _break()

    def __len__(self):
        if self._t.dim() == 0:
            _break()
        return self._t.shape[0]

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])

    def __bool__(self):
        return bool(self._t)

    def __float__(self):
        return float(self._t)

    def __int__(self):
        return int(self._t)

    def item(self):
        return self._t.item()

    def tolist(self):
        return self._t.tolist()

    # --- parts
    def __getitem__(self, k):
        if self._scalar:
            _break()
        r = self._t[_index(k)]
        if r.dim() == 0:  # a scalar is a copy
            if isinstance(k, tuple) and any([i is Ellipsis for i in k]) or k is Ellipsis:
                _break()
            return ndarray(r.clone(), True)
        return ndarray(r)

    def __setitem__(self, k, v):
        if self._scalar or not (isinstance(v, ndarray) or type(v) in (bool, int, float)):
            _break()
        if isinstance(v, ndarray):
            v = v._t.to(self._t.dtype)
        elif _promote((self._t.dtype, v)) is not self._t.dtype:
            _break()
        self._t[_index(k)] = v

    def astype(self, dtype, copy=True):
        d = _dtype(dtype)
        if d is None or copy is not True or self._t.dtype in _FLOATS and d not in _FLOATS and d is not taper.bool:
            _break()  # numbers that do not fit are cut off in other ways
        return ndarray(self._t.to(d, copy=True), self._scalar)

    def copy(self):
        return ndarray(self._t.clone(), self._scalar)

    def reshape(self, *shape):
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = tuple(shape[0])
        return ndarray(self._t.reshape(shape))

    def ravel(self):
        return ndarray(self._t.reshape(-1))

    def flatten(self):
        return ndarray(self._t.reshape(-1).clone())

    def transpose(self, *axes):
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
            axes = tuple(axes[0] or ())
        return ndarray(self._t.permute(*axes), self._scalar) if axes else self.T

    def swapaxes(self, a, b):
        return ndarray(self._t.transpose(a, b))

    def squeeze(self, axis=None):
        if axis is not None and not isinstance(axis, int) or axis is not None and self._t.shape[axis] != 1:
            _break()
        return ndarray(self._t.squeeze() if axis is None else self._t.squeeze(axis))

    # --- reductions
    def sum(self, axis=None, keepdims=False):
        t = self._t
        if t.dtype not in _FLOATS and t.dtype not in _INTS and t.dtype is not taper.bool:
            _break()
        return _wrap(t.sum(_axes(t, axis), keepdim=keepdims)) if t.dim() else self

    def mean(self, axis=None, keepdims=False):
        t = _float_only(self)
        return _wrap(t.mean(_axes(t, axis), keepdim=keepdims)) if t.dim() else ndarray(t, True)

    def var(self, axis=None, ddof=0, keepdims=False):
        t = _float_only(self)
        if not t.dim():
            _break()
        return _wrap(t.var(_axes(t, axis), correction=ddof, keepdim=keepdims))

    def std(self, axis=None, ddof=0, keepdims=False):
        t = _float_only(self)
        if not t.dim():
            _break()
        return _wrap(t.std(_axes(t, axis), correction=ddof, keepdim=keepdims))

    def max(self, axis=None, keepdims=False):
        t = self._t
        return _wrap(t.amax(_axes(t, axis), keepdim=keepdims)) if t.dim() else self

    def min(self, axis=None, keepdims=False):
        t = self._t
        return _wrap(t.amin(_axes(t, axis), keepdim=keepdims)) if t.dim() else self

    def argmax(self, axis=None):
        return _wrap(self._t.argmax(axis))

    def argmin(self, axis=None):
        return _wrap(self._t.argmin(axis))

    def prod(self, axis=None):
        t = _float_only(self) if self._t.dtype in _FLOATS else _break()
        return _wrap(t.prod() if axis is None else t.prod(axis))

    def cumsum(self, axis=None):
        t = self._t if self._t.dtype in _FLOATS or self._t.dtype is taper.int64 else _break()
        return ndarray(t.reshape(-1).cumsum(0) if axis is None else t.cumsum(axis))

    def all(self, axis=None):
        return _wrap(self._t.all() if axis is None else self._t.all(axis))

    def any(self, axis=None):
        return _wrap(self._t.any() if axis is None else self._t.any(axis))

    def clip(self, min=None, max=None):
        return _clip(self, min, max)

    def dot(self, other):
        return _dot(self, other)

    # --- operators
    def __neg__(self):
        return _wrap(-self._t) if self._t.dtype in _FLOATS + _INTS else _break()

    def __pos__(self):
        return self.copy()

    def __abs__(self):
        return _wrap(self._t.abs()) if self._t.dtype in _FLOATS + _INTS else _break()

    def __invert__(self):
        return _wrap(~self._t) if self._t.dtype is taper.bool or self._t.dtype in _INTS else _break()

    def __matmul__(self, o):
        return _matmul(self, o)

    def __pow__(self, o):
        return _power(self, o)

    def __rpow__(self, o):
        return _power(o, self)


def _add(a, b):
    return a + b


def _sub(a, b):
    return a - b if a.dtype is not taper.bool else _break()


def _mul(a, b):
    return a * b


def _div(a, b):
    return a / b


def _floordiv(a, b):
    return a // b if a.dtype in _FLOATS and not isinstance(b, taper.Tensor) and b != 0 else _break()


def _mod(a, b):
    return a % b if a.dtype in _FLOATS and not isinstance(b, taper.Tensor) and b != 0 else _break()


def _pow(a, b):
    if a.dtype not in _FLOATS and not (a.dtype in _INTS and isinstance(b, int) and b >= 0):
        _break()
    return a ** b


def _bits(a):
    return a if a.dtype is taper.bool or a.dtype in _INTS else _break()


def _and(a, b):
    return _bits(a) & b


def _or(a, b):
    return _bits(a) | b


def _xor(a, b):
    return _bits(a) ^ b


def _lt(a, b):
    return a < b


def _le(a, b):
    return a <= b


def _gt(a, b):
    return a > b


def _ge(a, b):
    return a >= b


def _eq(a, b):
    return a == b


def _ne(a, b):
    return a != b


def _maximum(a, b):
    return taper.maximum(a, b if isinstance(b, taper.Tensor) else taper.full((), b, dtype=a.dtype))


def _minimum(a, b):
    return taper.minimum(a, b if isinstance(b, taper.Tensor) else taper.full((), b, dtype=a.dtype))


def _i_add(a, b):
    a.add_(b)


def _i_sub(a, b):
    a.sub_(b)


def _i_mul(a, b):
    a.mul_(b)


def _i_div(a, b):
    a.div_(b) if a.dtype in _FLOATS else _break()


def _operators():
    def make(name, fn, floats, back):
        if back:
            def op(self, other):
                return _binary(fn, other, self, floats)
        else:
            def op(self, other):
                return _binary(fn, self, other, floats)
        op.__name__ = name
        return op

    def inplace(name, fn):
        def op(self, other):
            return _in_place(fn, self, other)
        op.__name__ = name
        return op
    for name, fn, floats in (("add", _add, False), ("sub", _sub, False), ("mul", _mul, False), ("truediv", _div, True), ("floordiv", _floordiv, False),
                             ("mod", _mod, False), ("and", _and, False), ("or", _or, False), ("xor", _xor, False)):
        setattr(ndarray, f"__{name}__", make(f"__{name}__", fn, floats, False))
        setattr(ndarray, f"__r{name}__", make(f"__r{name}__", fn, floats, True))
    for name, fn in (("lt", _lt), ("le", _le), ("gt", _gt), ("ge", _ge), ("eq", _eq), ("ne", _ne)):
        setattr(ndarray, f"__{name}__", make(f"__{name}__", fn, False, False))
    for name, fn in (("add", _i_add), ("sub", _i_sub), ("mul", _i_mul), ("truediv", _i_div)):
        setattr(ndarray, f"__i{name}__", inplace(f"__i{name}__", fn))


_operators()
ndarray.__hash__ = None  # a class with __eq__ has none


# --- functions of NumPy
def _any_array(args):
    for a in args:
        if isinstance(a, ndarray) or isinstance(a, (tuple, list)) and any([isinstance(i, ndarray) for i in a]):
            return True
    return False


def _array(v):
    """An array of what is one, or of numbers."""
    return v if isinstance(v, ndarray) else ndarray(taper.full((), v if not isinstance(v, np.generic) else v.item(), dtype=_common_of(v)), True)


def _common_of(v):
    d = _promote((v,)) if _is_number(v) else None
    if d is None:
        _break()
    return d


def _arrays(seq):
    if not isinstance(seq, (tuple, list)):
        _break()
    seq = [a if isinstance(a, ndarray) else _break() for a in seq]
    d = _common(*seq)
    return [a._t.to(d) for a in seq]


def _matmul(a, b):
    if not (isinstance(a, ndarray) and isinstance(b, ndarray)) or a._t.dim() == 0 or b._t.dim() == 0:
        _break()
    d = _common(a, b)
    return _wrap(a._t.to(d) @ b._t.to(d)) if d in _FLOATS else _break()


def _dot(a, b):
    return _matmul(a, b) if isinstance(b, ndarray) and a._t.dim() <= 2 and b._t.dim() <= 2 else _break()


def _clip(a, a_min=None, a_max=None):
    if not isinstance(a, ndarray):
        _break()
    for v in (a_min, a_max):
        if v is not None and (type(v) not in (int, float) or _common(a, v) is not a._t.dtype):
            _break()
    return _wrap(a._t.clamp(a_min, a_max))


def _where(c, x, y):
    if not isinstance(c, ndarray) or not (isinstance(x, ndarray) or isinstance(y, ndarray)):
        _break()
    d = _common(x, y)
    x, y = [v._t.to(d) if isinstance(v, ndarray) else taper.full((), _operand(v, d), dtype=d) for v in (x, y)]
    return _wrap(taper.where(c._t if c._t.dtype is taper.bool else c._t != 0, x, y))


def _einsum(how, *arrays):
    d = _common(*arrays)
    return _wrap(taper.einsum(how, *[a._t.to(d) for a in arrays])) if d in _FLOATS else _break()


def _norm(x, axis=None, keepdims=False):
    t = _float_only(x)
    if axis is not None and not isinstance(axis, int):
        _break()
    return _wrap((t * t).sum(_axes(t, axis), keepdim=keepdims).sqrt())


def _unary(fn):
    def f(a):
        return _wrap(fn(_float_only(a)))
    return f


def _whole(fn):
    def f(a):
        return _wrap(fn(a._t)) if a._t.dtype in _FLOATS else _break()  # integers are treated in other ways by other versions
    return f


def _predicate(fn):
    def f(a):
        return _wrap(fn(_float_only(a)))
    return f


def _power(a, b):
    for v in (a, b):
        if isinstance(v, bool) or isinstance(v, ndarray) and v._t.dtype is taper.bool:
            _break()
    return _binary(_pow, a, b)


def _two(fn, floats=False):
    def f(a, b):
        return _binary(fn, a, b, floats)
    return f


def _method(name):
    def f(a, *args, **kwargs):
        return getattr(_array(a), name)(*args, **kwargs)
    return f


def _like(fn):
    def f(a):
        return ndarray(fn(a._t), False)
    return f


def _logical(fn):
    def f(a, b):
        return _wrap(fn(_array(a)._t, _array(b)._t))
    return f


def _table():
    t = taper
    fs = {n: _unary(getattr(t, n)) for n in ("sin", "cos", "tan", "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "tanh", "sinh", "cosh")}
    fs.update({n: _whole(getattr(t, n)) for n in ("floor", "ceil", "trunc")})
    fs.update({"arcsin": _unary(t.asin), "arccos": _unary(t.acos), "arctan": _unary(t.atan)})
    fs.update({n: _predicate(getattr(t, n)) for n in ("isnan", "isinf", "isfinite")})
    fs.update({"add": _two(_add), "subtract": _two(_sub), "multiply": _two(_mul), "divide": _two(_div, True), "true_divide": _two(_div, True),
               "power": _power, "maximum": _two(_maximum), "minimum": _two(_minimum), "less": _two(_lt), "less_equal": _two(_le), "greater": _two(_gt),
               "greater_equal": _two(_ge), "equal": _two(_eq), "not_equal": _two(_ne), "matmul": _matmul, "dot": _dot, "where": _where,
               "einsum": _einsum, "clip": _clip})
    fs.update({"abs": _method("__abs__"), "absolute": _method("__abs__"), "negative": _method("__neg__"), "copy": _method("copy")})
    fs.update({n: _method(n) for n in ("sum", "mean", "std", "var", "max", "min", "argmax", "argmin", "prod", "cumsum", "all", "any", "reshape", "ravel",
                                       "transpose", "squeeze", "swapaxes")})
    fs.update({"amax": _method("max"), "amin": _method("min")})
    fs.update({"zeros_like": _like(t.zeros_like), "ones_like": _like(t.ones_like)})
    fs.update({"logical_and": _logical(t.logical_and), "logical_or": _logical(t.logical_or)})

    def concatenate(arrays, axis=0):
        return ndarray(t.cat(_arrays(arrays), axis)) if isinstance(axis, int) else _break()

    def stack(arrays, axis=0):
        return ndarray(t.stack(_arrays(arrays), axis))

    def expand_dims(a, axis):
        return ndarray(a._t.unsqueeze(axis)) if isinstance(axis, int) else _break()

    def tril(m, k=0):
        return ndarray(t.tril(m._t, k)) if m._t.dim() >= 2 else _break()

    def triu(m, k=0):
        return ndarray(t.triu(m._t, k)) if m._t.dim() >= 2 else _break()

    def asarray(a):
        return a

    def array(a):
        return a.copy()
    fs.update(concatenate=concatenate, stack=stack, expand_dims=expand_dims, asarray=asarray, array=array, tril=tril, triu=triu)
    return fs


# Functions that make arrays and numbers out of numbers alone: NumPy itself is asked, and the array is a constant of the graph.
_MAKERS = ("zeros", "ones", "full", "arange", "linspace", "eye", "identity", "deg2rad", "float32", "float64", "int64", "int32", "cbrt", "log", "ceil")


def _plain(v):
    if isinstance(v, (tuple, list)):
        return all([_plain(i) for i in v])
    return v is None or isinstance(v, (bool, int, float, str, np.generic, type))


def _substitute(fn, traced):
    def f(*args, **kwargs):
        if _any_array(args) or _any_array(kwargs.values()):
            return traced(*args, **kwargs) if traced is not None else _break()
        if not _plain(args) or not _plain(tuple(kwargs.values())):
            _break()
        r = _constant(fn, args, kwargs)
        if r is None:
            _break()
        if isinstance(r, tuple):
            return ndarray(taper.tensor(r[0], dtype=r[1]))
        return r
    return f


def _register():
    for name, traced in _table().items():
        _C._capture_role(getattr(np, name), _substitute(getattr(np, name), traced))
    for name in _MAKERS:
        if name not in _TABLE_NAMES:
            _C._capture_role(getattr(np, name), _substitute(getattr(np, name), None))
    _C._capture_role(np.linalg.norm, _substitute(np.linalg.norm, _norm))


_TABLE_NAMES = frozenset(_table())


# --- to and from tensors
def array_of(x):
    """x.numpy()"""
    if x.requires_grad or x.device.type != "cpu" or x.dtype not in _DTYPES:
        _break()
    return ndarray(x.detach())


def tensor_of(a, copy):
    if a._scalar and not copy:
        _break()
    return a._t.clone() if copy else a._t.detach()


def from_numpy(a):
    if not isinstance(a, ndarray):
        _break()
    return tensor_of(a, False)


_C._capture_role(_C.from_numpy, from_numpy)
_register()
