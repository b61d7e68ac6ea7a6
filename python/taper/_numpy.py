"""NumPy arrays while a function is traced: an array that shares its memory with a traced tensor is one of these, and functions of
NumPy on it are operators of the graph. What is not here, or has other rules than tensors have, ends the graph; what is alive then,
or returned, is a NumPy array again. Loaded when both NumPy and capture are in use."""
import functools

import numpy as np

import taper

from . import _C

_FLOATS = (taper.float32, taper.float64)
_COMPLEX = (taper.complex64, taper.complex128)
_INTS = (taper.int32, taper.int64)
_WIDE = (taper.float32, taper.float64, taper.int64, taper.bool, taper.complex64, taper.complex128)
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
    """fn(*args, **kwargs) without tensors: a scalar as it is; an array as (list, type), several as a list of them."""
    try:
        r = fn(*args, **kwargs)
    except Exception:  # the program sees it where it is raised
        return None
    if isinstance(r, (np.generic, int, float, bool, np.dtype, np.finfo, np.iinfo)):
        return r
    if type(r) is tuple and not isinstance(r[0], int):
        r = [a if isinstance(a, np.generic) else _constant(np.asarray, (a,), {}) for a in r]
        return None if None in r else r
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
    if d is None or d is taper.float16:
        _break()
    return d


def _wrap(t, *of):
    """A result without dimensions is a scalar."""
    return ndarray(t, t.dim() == 0)


def _number_beside(a, x):
    """A scalar in arithmetic with a tensor counts as a number of Python's does."""
    kinds = [(d is not taper.bool) + d.is_floating_point + 2 * d.is_complex for d in (a._t.dtype, x.dtype)]
    return a._t.to(x.dtype if kinds[0] <= kinds[1] else taper.get_default_dtype() if kinds[0] == 2 else a._t.dtype)


def _binary(fn, a, b, floats=False):
    if isinstance(a, taper.Tensor) and isinstance(b, ndarray):  # the result is the tensor's kind, computed by NumPy's rules
        return fn(a, _number_beside(b, a)) if b._scalar else _binary(fn, array_of(a), b, floats)._t
    if isinstance(b, taper.Tensor):
        return fn(_number_beside(a, b), b) if a._scalar else _break()
    d = _common(a, b)
    if floats and d not in _FLOATS and d not in _COMPLEX:
        if d not in _INTS:
            _break()
        d = taper.float64
    if not isinstance(a, ndarray):
        a = ndarray(taper.full((), _operand(a, d), dtype=d), True)
    return _wrap(fn(a._t.to(d), _operand(b, d)))


def _in_place(fn, a, b):
    if a._scalar or _common(a, b) is not a._t.dtype:
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
    if isinstance(k, tuple) and all([isinstance(i, (ndarray, list, int)) for i in k]):  # no dimension moves
        return tuple([_part(i) for i in k])
    return _part(k)


def _part(k):
    """An index for tensors: slices backwards, and numbers beside arrays (which move dimensions), end the graph."""
    if isinstance(k, tuple):
        if any([isinstance(i, (ndarray, list)) for i in k]) and any([isinstance(i, int) for i in k]):
            _break()
        return tuple([_part(i) for i in k])
    if isinstance(k, slice):
        if k.step is not None and not (isinstance(k.step, int) and k.step > 0):
            _break()
        return k
    if isinstance(k, ndarray):
        if k._scalar or k._t.dtype not in _INTS and (k._t.dtype is not taper.bool or k._t.dim() == 0):
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
    def _class(self):
        """What it is for the program."""
        return _DTYPES[self._t.dtype].type if self._scalar else np.ndarray

    @property
    def itemsize(self):
        return self._t.element_size()

    @property
    def nbytes(self):
        return self._t.numel() * self._t.element_size()

    @property
    def real(self):
        return ndarray(self._t.real, self._scalar) if self._t.dtype in _COMPLEX else self

    @property
    def imag(self):
        return ndarray(self._t.imag, self._scalar) if self._t.dtype in _COMPLEX else _break()

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

    def __complex__(self):
        _break()

    def __index__(self):
        return int(self._t) if self._t.dtype in _INTS else _break()

    def item(self, *where):
        t = self._t
        if len(where) == 1 and isinstance(where[0], int):
            t = t.reshape(-1)[where[0]]
        elif where:
            t = t[where if not isinstance(where[0], tuple) else where[0]]
        return t.item()

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
        if d is None or self._t.dtype in _COMPLEX and d not in _COMPLEX or copy is not True and d is self._t.dtype:
            _break()
        return ndarray(self._t.to(d, copy=True), self._scalar)

    def copy(self, order='C'):
        return ndarray(self._t.clone(memory_format=taper.contiguous_format), self._scalar) if order == 'C' else _break()

    def view(self, dtype=None):
        return ndarray(self._t.view(self._t.shape)) if dtype is None and not self._scalar and self._t.is_contiguous() else _break()

    def fill(self, value):
        self[...] = value

    def conj(self):
        return ndarray(self._t.conj().resolve_conj(), self._scalar) if self._t.dtype in _COMPLEX else self

    conjugate = conj

    def repeat(self, repeats, axis=None):
        return _repeat(self, repeats, axis)

    def take(self, indices, axis=None):
        return _take(self, indices, axis)

    def argsort(self, axis=-1, kind=None):
        return ndarray(self._t.reshape(-1).argsort(stable=True) if axis is None else self._t.argsort(stable=True, dim=axis))

    def sort(self, axis=-1, kind=None):
        self._t.copy_(self._t.sort(axis).values)

    def nonzero(self):
        return tuple([ndarray(i) for i in self._t.nonzero(as_tuple=True)]) if self._t.dim() else _break()

    def round(self, decimals=0):
        return _round(self, decimals)

    def trace(self, offset=0):
        return _trace(self, offset)

    def diagonal(self, offset=0, axis1=0, axis2=1):
        return _break()  # it may not be written, and a tensor may

    def searchsorted(self, v, side='left'):
        return _searchsorted(self, v, side)

    def reshape(self, *shape, order='C'):
        if order != 'C':
            _break()
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = tuple(shape[0])
        return ndarray(self._t.reshape(shape))

    def ravel(self, order='C'):
        if order != 'C':
            _break()
        return ndarray(self._t.reshape(-1))

    def flatten(self, order='C'):
        if order != 'C':
            _break()
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
    def _as(self, dtype):
        """The elements to compute with, and whether they are numbers that sums know."""
        t = self._t if dtype is None else self.astype(dtype)._t
        return t if t.dtype in _FLOATS or t.dtype in _INTS or t.dtype in _COMPLEX or t.dtype is taper.bool else _break()

    def sum(self, axis=None, dtype=None, keepdims=False):
        t = self._as(dtype)
        if t.dtype is taper.int32 and dtype is not None:
            _break()
        return _wrap(t.sum(_axes(t, axis), keepdim=keepdims)) if t.dim() else ndarray(t, True)

    def mean(self, axis=None, dtype=None, keepdims=False):
        t = _float_only(self if dtype is None else self.astype(dtype))
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

    def argmax(self, axis=None, keepdims=False):
        return _wrap(self._t.argmax(axis, keepdim=keepdims))

    def argmin(self, axis=None, keepdims=False):
        return _wrap(self._t.argmin(axis, keepdim=keepdims))

    def prod(self, axis=None, dtype=None, keepdims=False):
        t = self._as(dtype)
        if not t.dim() or t.dtype is taper.int32 and dtype is not None:
            _break()
        if axis is None:
            r = t.reshape(-1).prod(0)
            return _wrap(r.reshape([1] * t.dim()) if keepdims else r)
        return _wrap(t.prod(axis, keepdim=keepdims)) if isinstance(axis, int) else _break()

    def cumsum(self, axis=None, dtype=None):
        t = self._as(dtype)
        if t.dtype is taper.int32 and dtype is not None:
            _break()
        return ndarray(t.reshape(-1).cumsum(0) if axis is None else t.cumsum(axis))

    def cumprod(self, axis=None, dtype=None):
        t = self._as(dtype)
        if t.dtype is taper.int32 and dtype is not None:
            _break()
        return ndarray(t.reshape(-1).cumprod(0) if axis is None else t.cumprod(axis))

    def all(self, axis=None, keepdims=False):
        return _wrap(self._t.all() if axis is None and not keepdims else self._t.all(_axes(self._t, axis), keepdim=keepdims))

    def any(self, axis=None, keepdims=False):
        return _wrap(self._t.any() if axis is None and not keepdims else self._t.any(_axes(self._t, axis), keepdim=keepdims))

    def clip(self, min=None, max=None):
        return _clip(self, min, max)

    def dot(self, other):
        return _dot(self, other)

    # --- operators
    def __neg__(self):
        return _wrap(-self._t) if self._t.dtype in _FLOATS + _INTS + _COMPLEX else _break()

    def __pos__(self):
        return self.copy()

    def __abs__(self):
        return _wrap(self._t.abs()) if self._t.dtype in _FLOATS + _INTS + _COMPLEX else _break()

    def __invert__(self):
        return _wrap(~self._t) if self._t.dtype is taper.bool or self._t.dtype in _INTS else _break()

    def __matmul__(self, o):
        return _matmul(self, o)

    def __rmatmul__(self, o):
        return _matmul(o, self)

    def __round__(self, n=None):
        return _round(self, n) if n is not None else _break()

    def __divmod__(self, o):
        return self // o, self % o

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


def _no_zero(a, b):
    """Integers by zero give other results; dividing by a number, it is known."""
    return a if (a.dtype in _FLOATS or a.dtype in _INTS) and not isinstance(b, taper.Tensor) and b != 0 else _break()


def _floordiv(a, b):
    return _no_zero(a, b) // b


def _mod(a, b):
    return _no_zero(a, b) % b


def _shift_left(a, b):
    return a << b if a.dtype in _INTS and isinstance(b, int) and 0 <= b < 32 else _break()


def _shift_right(a, b):
    return a >> b if a.dtype in _INTS and isinstance(b, int) and 0 <= b < 32 else _break()


def _pow(a, b):
    if a.dtype not in _FLOATS and a.dtype not in _COMPLEX and not (a.dtype in _INTS and isinstance(b, int) and b >= 0):
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


def _ordered(a):
    return a if a.dtype not in _COMPLEX else _break()


def _lt(a, b):
    return _ordered(a) < b


def _le(a, b):
    return _ordered(a) <= b


def _gt(a, b):
    return _ordered(a) > b


def _ge(a, b):
    return _ordered(a) >= b


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


def _i_pow(a, b):
    a.copy_(_pow(a, b))


def _i_and(a, b):
    a.copy_(_bits(a) & b)


def _i_or(a, b):
    a.copy_(_bits(a) | b)


def _i_floordiv(a, b):
    a.copy_(_floordiv(a, b))


def _i_mod(a, b):
    a.copy_(_mod(a, b))


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

    def inplace(name, fn, made, floats):
        def op(self, other):
            return _binary(made, self, other, floats) if self._scalar else _in_place(fn, self, other)
        op.__name__ = name
        return op
    for name, fn, floats in (("add", _add, False), ("sub", _sub, False), ("mul", _mul, False), ("truediv", _div, True), ("floordiv", _floordiv, False),
                             ("mod", _mod, False), ("lshift", _shift_left, False), ("rshift", _shift_right, False), ("and", _and, False),
                             ("or", _or, False), ("xor", _xor, False)):
        setattr(ndarray, f"__{name}__", make(f"__{name}__", fn, floats, False))
        setattr(ndarray, f"__r{name}__", make(f"__r{name}__", fn, floats, True))
    for name, fn in (("lt", _lt), ("le", _le), ("gt", _gt), ("ge", _ge), ("eq", _eq), ("ne", _ne)):
        setattr(ndarray, f"__{name}__", make(f"__{name}__", fn, False, False))
    for name, fn, made, floats in (("add", _i_add, _add, False), ("sub", _i_sub, _sub, False), ("mul", _i_mul, _mul, False),
                                   ("truediv", _i_div, _div, True), ("pow", _i_pow, _pow, False), ("and", _i_and, _and, False),
                                   ("or", _i_or, _or, False), ("floordiv", _i_floordiv, _floordiv, False), ("mod", _i_mod, _mod, False)):
        setattr(ndarray, f"__i{name}__", inplace(f"__i{name}__", fn, made, floats))


_operators()
ndarray.__hash__ = None  # a class with __eq__ has none


# --- functions that are methods, too
def _array(v):
    """An array of what is one, or of numbers."""
    if isinstance(v, ndarray):
        return v
    if isinstance(v, taper.Tensor):
        return array_of(v)
    if isinstance(v, (tuple, list)):
        return _made(v)
    return ndarray(taper.full((), v if not isinstance(v, np.generic) else v.item(), dtype=_common_of(v)), True)


def _common_of(v):
    d = _promote((v,)) if _is_number(v) else None
    if d is None:
        _break()
    return d


def _made(items):
    """np.array(items): rows of arrays and numbers."""
    if not items:
        _break()
    parts = [_array(i) for i in items]
    d = _promote(tuple([p._t.dtype if isinstance(i, (ndarray, taper.Tensor, tuple, list)) else i for p, i in zip(parts, items)]))
    if d is None or any([p._t.shape != parts[0]._t.shape for p in parts]):
        _break()
    return ndarray(taper.stack([p._t.to(d) for p in parts]))


def _matmul(a, b):
    if not (isinstance(a, ndarray) and isinstance(b, ndarray)) or a._t.dim() == 0 or b._t.dim() == 0:
        _break()
    d = _common(a, b)
    return _wrap(a._t.to(d) @ b._t.to(d)) if d in _FLOATS or d in _INTS or d in _COMPLEX else _break()


def _dot(a, b):
    if isinstance(a, ndarray) and isinstance(b, ndarray) and a._t.dim() and b._t.dim():
        return _matmul(a, b) if a._t.dim() <= 2 and b._t.dim() <= 2 else _break()
    return a * b


def _power(a, b):
    for v in (a, b):
        if isinstance(v, bool) or isinstance(v, ndarray) and v._t.dtype is taper.bool:
            _break()
    return _binary(_pow, array_of(a) if isinstance(a, taper.Tensor) else a, b)


def _clip(a, a_min=None, a_max=None, min=None, max=None):
    if not isinstance(a, ndarray):
        _break()
    a_min, a_max = a_min if a_min is not None else min, a_max if a_max is not None else max
    if isinstance(a_min, ndarray) or isinstance(a_max, ndarray):
        r = a if a_min is None else _binary(_maximum, a, a_min)
        return r if a_max is None else _binary(_minimum, r, a_max)
    for v in (a_min, a_max):
        if v is not None and (type(v) not in (int, float) or _common(a, v) is not a._t.dtype):
            _break()
    return _wrap(a._t.clamp(a_min, a_max)) if a_min is not None or a_max is not None else a.copy()


def _round(a, decimals=0):
    if not isinstance(decimals, int) or a._t.dtype in _COMPLEX:
        _break()
    if a._t.dtype not in _FLOATS:
        return a.copy() if decimals >= 0 and a._t.dtype in _INTS else _break()
    if decimals == 0:
        return _wrap(a._t.round())
    ten = 10.0 ** abs(decimals)
    return _wrap((a._t * ten).round() / ten if decimals > 0 else (a._t / ten).round() * ten)


def _repeat(a, repeats, axis=None):
    a = _array(a)
    t = a._t.reshape(-1) if axis is None else a._t
    if isinstance(repeats, (list, tuple)):
        repeats = _made(repeats)
    return ndarray(t.repeat_interleave(repeats._t if isinstance(repeats, ndarray) else repeats, 0 if axis is None else axis))


def _take(a, indices, axis=None):
    a = _array(a)
    t = a._t.reshape(-1) if axis is None else a._t
    axis = 0 if axis is None else axis if axis >= 0 else axis + t.dim()
    i = indices if isinstance(indices, int) else _array(indices)._t
    if not isinstance(i, int) and i.dtype not in _INTS:
        _break()
    r = t[(slice(None),) * axis + (i,)]
    return _wrap(r.clone() if isinstance(i, int) else r)


def _trace(a, offset=0):
    t = a._t
    return _wrap(t.diagonal(offset).sum()) if t.dim() == 2 and (t.dtype in _FLOATS or t.dtype in _INTS) else _break()


def _searchsorted(a, v, side='left'):
    v = _array(v)
    d = _common(a, v)
    return _wrap(taper.searchsorted(a._t.to(d), v._t.to(d), right=side == 'right')) if a._t.dim() == 1 else _break()


# --- to and from tensors
def _each(v, cls, f):
    if isinstance(v, cls):
        return f(v)
    if type(v) in (list, tuple):
        return type(v)([_each(i, cls, f) for i in v])
    return {k: _each(i, cls, f) for k, i in v.items()} if type(v) is dict else v


def wrapped(fn):
    """A function of NumPy arrays as one of tensors."""
    @functools.wraps(fn)
    def wrap(*args, **kwargs):
        args, kwargs = _each(args, taper.Tensor, taper.Tensor.numpy), _each(kwargs, taper.Tensor, taper.Tensor.numpy)
        return _each(fn(*args, **kwargs), (np.ndarray, np.generic), taper.as_tensor)
    return wrap


def array_of(x, force=False):
    """x.numpy()"""
    if x.requires_grad and not force or x.device.type != "cpu" or x.dtype not in _DTYPES:
        _break()
    return ndarray(x.detach())


def tensor_of(a, copy, dtype=None, device=None):
    """torch.tensor(a) and torch.as_tensor(a)"""
    if not isinstance(a, ndarray):
        a = _made(a)
    if device is not None and taper.device(device).type != "cpu" or a._scalar and not copy and not (a._t.dtype in _FLOATS or a._t.dtype in _INTS):
        _break()
    t = a._t.detach()
    if dtype is not None and dtype is not t.dtype:
        return t.to(dtype)
    return t.clone(memory_format=taper.contiguous_format) if copy or a._scalar else t


def from_numpy(a):
    return tensor_of(a, False) if isinstance(a, ndarray) and not a._scalar else _break()


_C._capture_role(_C.from_numpy, from_numpy)
from . import _numpy_functions  # noqa: E402,F401  registers the functions
