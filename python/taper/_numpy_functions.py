"""Functions of NumPy on the arrays of _numpy.py, by name: each computes with operators of the graph what NumPy would, or ends the graph."""
import numpy as np

import taper

from . import _C
from ._numpy import (_COMPLEX, _FLOATS, _INTS, _add, _and, _array, _axes, _binary, _bits, _break, _clip, _common, _constant, _div, _dot, _dtype, _eq,
                     _float_only, _floordiv, _ge, _gt, _le, _lt, _made, _matmul, _maximum, _minimum, _mod, _mul, _ne, _operand, _or, _power,
                     _repeat, _round, _searchsorted, _shift_left, _shift_right, _sub, _take, _trace, _wrap, _xor, array_of, ndarray)


def _is_array(v):
    return isinstance(v, (ndarray, taper.Tensor))


def _any_array(args):
    for a in args:
        if _is_array(a) or isinstance(a, (tuple, list)) and _any_array(a):
            return True
    return False


def _arrays(seq, least=0):
    """The tensors of a sequence of arrays, of one type, with at least so many dimensions."""
    if isinstance(seq, ndarray):
        seq = [seq[i] for i in range(len(seq))]
    if not isinstance(seq, (tuple, list)) or not seq:
        _break()
    seq = [_array(a) for a in seq]
    d = _common(*seq)
    return [_deep(a._t.to(d), least) for a in seq]


def _deep(t, least):
    """As atleast_1d, atleast_2d, atleast_3d have it."""
    if t.dim() == 0 and least:
        t = t.reshape(1)
    if t.dim() == 1 and least > 1:
        t = t.unsqueeze(0)
    return t.unsqueeze(-1) if t.dim() == 2 and least > 2 else t


def _where(c, x=None, y=None):
    c = _array(c)
    if x is None and y is None:
        return c.nonzero()
    d = _common(*[v if isinstance(v, ndarray) or not isinstance(v, taper.Tensor) else array_of(v) for v in (x, y)])
    x, y = [_array(v)._t.to(d) if _is_array(v) else taper.full((), _operand(v, d), dtype=d) for v in (x, y)]
    return _wrap(taper.where(c._t if c._t.dtype is taper.bool else c._t != 0, x, y))


def _einsum(how, *arrays, optimize=False):
    arrays = [_array(a) for a in arrays]
    d = _common(*arrays)
    return _wrap(taper.einsum(how, *[a._t.to(d) for a in arrays])) if d in _FLOATS else _break()


def _norm(x, ord=None, axis=None, keepdims=False):
    if not isinstance(x, ndarray) or axis is not None and not isinstance(axis, int) or ord not in (None, 2) or ord == 2 and axis is None and x._t.dim() != 1:
        _break()
    t = _float_only(x)
    return _wrap((t * t).sum(_axes(t, axis), keepdim=keepdims).sqrt())


# --- families
def _unary(fn, of=_float_only):
    def f(a):
        return _wrap(fn(of(_array(a))))
    return f


def _floats(a):
    return a._t if a._t.dtype in _FLOATS else _break()  # integers are treated in other ways by other versions


def _float_or_complex(a):
    return a._t if a._t.dtype in _COMPLEX else _float_only(a)


def _numbers(a):
    return a._t if a._t.dtype in _FLOATS or a._t.dtype in _INTS else _break()


def _truth(t):
    return t if t.dtype is taper.bool else t != 0


def _two(fn, floats=False):
    def f(a, b):
        return _binary(fn, a if not isinstance(a, taper.Tensor) else array_of(a), b if not isinstance(b, taper.Tensor) else array_of(b), floats)
    return f


def _two_floats(fn):
    """Of two arrays or numbers, as tensors of one type of floats."""
    def f(a, b):
        a, b = _array(a), _array(b)
        d = _common(a, b)
        d = d if d in _FLOATS else taper.float64 if d in _INTS else _break()
        return _wrap(fn(a._t.to(d), b._t.to(d)))
    return f


def _method(name):
    def f(a, *args, **kwargs):
        return getattr(_array(a), name)(*args, **kwargs)
    return f


def _logical(fn):
    def f(a, b):
        return _wrap(fn(_truth(_array(a)._t), _truth(_array(b)._t)))
    return f


def _like(value):
    def f(a, dtype=None, shape=None):
        d = a._t.dtype if dtype is None else _dtype(dtype)
        if d is None or not a._t.is_contiguous():
            _break()
        return ndarray(taper.full(a._t.shape if shape is None else shape, value, dtype=d))
    return f


# --- shapes
def _concatenate(arrays, axis=0, dtype=None):
    if axis is None:
        ts = [t.reshape(-1) for t in _arrays(arrays)]
        axis = 0
    else:
        ts = _arrays(arrays)
    r = ndarray(taper.cat(ts, axis)) if isinstance(axis, int) else _break()
    return r if dtype is None else r.astype(dtype)


def _stack(arrays, axis=0):
    return ndarray(taper.stack(_arrays(arrays), axis))


def _vstack(tup):
    return ndarray(taper.cat(_arrays(tup, 2), 0))


def _hstack(tup):
    ts = _arrays(tup, 1)
    return ndarray(taper.cat(ts, 0 if ts[0].dim() == 1 else 1))


def _dstack(tup):
    return ndarray(taper.cat(_arrays(tup, 3), 2))


def _column_stack(tup):
    return ndarray(taper.cat([t.reshape(-1, 1) if t.dim() < 2 else t for t in _arrays(tup)], 1))


def _pieces(a, parts, axis, uneven):
    t = _array(a)._t
    n = t.shape[axis]
    if isinstance(parts, int):
        if n % parts and not uneven:
            _break()
        sizes = [n // parts + (i < n % parts) for i in range(parts)]
    elif isinstance(parts, (tuple, list)):
        at = [0] + [min(p if p >= 0 else n + p, n) for p in parts] + [n]
        sizes = [max(at[i + 1] - at[i], 0) for i in range(len(at) - 1)]
    else:
        _break()
    return [ndarray(p) for p in t.split(sizes, axis)] if sum(sizes) == n else _break()


def _split(ary, indices_or_sections, axis=0):
    return _pieces(ary, indices_or_sections, axis, False)


def _array_split(ary, indices_or_sections, axis=0):
    return _pieces(ary, indices_or_sections, axis, True)


def _vsplit(ary, indices_or_sections):
    return _pieces(ary, indices_or_sections, 0, False)


def _hsplit(ary, indices_or_sections):
    return _pieces(ary, indices_or_sections, 1 if ary.ndim > 1 else 0, False)


def _tile(A, reps):
    A = _array(A)
    reps = (reps,) if isinstance(reps, int) else tuple(reps)
    t = A._t.reshape([1] * max(len(reps) - A.ndim, 0) + list(A.shape))
    return ndarray(t.repeat((1,) * max(t.dim() - len(reps), 0) + reps))


def _roll(a, shift, axis=None):
    return ndarray(taper.roll(_array(a)._t, shift, axis) if axis is not None else taper.roll(_array(a)._t, shift))


def _expand_dims(a, axis):
    return ndarray(_array(a)._t.unsqueeze(axis)) if isinstance(axis, int) else _break()


def _moveaxis(a, source, destination):
    return ndarray(taper.movedim(a._t, source, destination))


def _triangle(fn):
    def f(m, k=0):
        return ndarray(fn(_array(m)._t, k)) if _array(m).ndim >= 2 else _break()
    return f


def _diag(v, k=0):
    return ndarray(taper.diag(v._t, k)) if v._t.dim() == 1 else _break()  # of a matrix: a view that may not be written


def _diagflat(v, k=0):
    return ndarray(taper.diag(_array(v)._t.reshape(-1), k))


def _at_least(n):
    def f(*arys):
        r = [_array(a) for a in arys]
        if n == 3 and any([a.ndim == 1 for a in r]):
            _break()
        r = [ndarray(_deep(a._t, n)) for a in r]
        return r[0] if len(r) == 1 else tuple(r)
    return f


def _meshgrid(*xi, sparse=False, indexing='xy'):
    if sparse or any([_array(x).ndim > 1 for x in xi]):
        _break()
    return tuple([ndarray(t.contiguous()) for t in taper.meshgrid(*[_deep(_array(x)._t, 1) for x in xi], indexing=indexing)])


def _append(arr, values, axis=None):
    return _concatenate([_array(arr).ravel(), _array(values).ravel()]) if axis is None else _concatenate([arr, values], axis)


def _pad(array, pad_width, mode='constant', constant_values=0):
    t = array._t
    if mode != 'constant' or type(constant_values) not in (int, float) or _common(array, constant_values) is not t.dtype:
        _break()
    if isinstance(pad_width, int):
        pad_width = ((pad_width, pad_width),) * t.dim()
    elif len(pad_width) == 2 and isinstance(pad_width[0], int):
        pad_width = (tuple(pad_width),) * t.dim()
    if len(pad_width) == 1:
        pad_width = tuple(pad_width) * t.dim()
    flat = [n for p in reversed(pad_width) for n in p]
    return ndarray(taper.nn.functional.pad(t, flat, value=constant_values))


def _outer(a, b):
    return _two(_mul)(_array(a).ravel().reshape(-1, 1), _array(b).ravel().reshape(1, -1))


def _inner(a, b):
    a, b = _array(a), _array(b)
    return _two(_mul)(a, b) if not a.ndim or not b.ndim else _matmul(a, b) if b.ndim == 1 else _matmul(a, b.T) if b.ndim == 2 else _break()


def _vdot(a, b):
    a, b = _array(a), _array(b)
    return _matmul(a.ravel(), b.ravel()) if a._t.dtype not in _COMPLEX else _break()


def _tensordot(a, b, axes=2):
    d = _common(a, b)
    return _wrap(taper.tensordot(a._t.to(d), b._t.to(d), axes)) if d in _FLOATS else _break()


def _kron(a, b):
    a, b = _array(a), _array(b)
    d = _common(a, b)
    return ndarray(taper.kron(a._t.to(d), b._t.to(d)))


def _cross(a, b, axis=-1):
    a, b = _array(a), _array(b)
    d = _common(a, b)
    return ndarray(taper.linalg.cross(a._t.to(d), b._t.to(d), dim=axis)) if a.ndim == b.ndim and a.shape[axis] == b.shape[axis] == 3 else _break()


# --- statistics
def _ptp(a, axis=None, keepdims=False):
    return a.max(axis, keepdims=keepdims) - a.min(axis, keepdims=keepdims)


def _average(a, axis=None, weights=None):
    if weights is None:
        return a.mean(axis)
    w = _array(weights)
    return (a * w).sum(axis) / w.sum(axis) if w.shape == a.shape else _break()


def _quantile(a, q, axis=None, keepdims=False):
    t = _float_only(_array(a))
    if isinstance(q, (list, tuple)):
        q = _made(q)
    q = q._t.to(t.dtype) if isinstance(q, ndarray) else float(q)
    return _wrap(taper.quantile(t, q, axis, keepdim=keepdims) if axis is not None else taper.quantile(t.reshape(-1), q)) \
        if axis is None and not keepdims or isinstance(axis, int) else _break()


def _percentile(a, q, axis=None, keepdims=False):
    if isinstance(q, (list, tuple)):
        q = _made(q)
    return _quantile(a, q / 100, axis, keepdims)


def _median(a, axis=None, keepdims=False):
    t = _float_only(_array(a))
    if axis is None and keepdims or axis is not None and not isinstance(axis, int):
        _break()
    t = t.reshape(-1).sort(0).values if axis is None else t.sort(axis).values.movedim(axis, 0)
    n = t.shape[0]
    r = (t[(n - 1) // 2] + t[n // 2]) / 2
    return _wrap(r.unsqueeze(axis) if keepdims else r)


def _sort(a, axis=-1, kind=None, stable=None):
    t = _array(a)._t
    return ndarray(t.reshape(-1).sort(0).values if axis is None else t.sort(axis).values)


def _diff(a, n=1, axis=-1):
    return ndarray(taper.diff(_numbers(_array(a)), n, axis))


def _count_nonzero(a, axis=None):
    return _wrap(taper.count_nonzero(_truth(_array(a)._t), axis) if axis is not None else taper.count_nonzero(_truth(_array(a)._t)))


def _nan(name, value):
    def f(a, axis=None, keepdims=False):
        t = _float_only(_array(a))
        return getattr(_wrap(taper.where(taper.isnan(t), value, t)), name)(axis, keepdims=keepdims)
    return f


def _nanmean(a, axis=None, keepdims=False):
    t = _float_only(_array(a))
    return _wrap(taper.nanmean(t, _axes(t, axis), keepdim=keepdims))


def _isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    a, b = _array(a), _array(b)
    d = _common(a, b)
    return _wrap(taper.isclose(a._t.to(taper.float64), b._t.to(taper.float64), rtol, atol, equal_nan)) if d in _FLOATS or d in _INTS else _break()


def _unique(ar, return_index=False, return_inverse=False, return_counts=False):
    if return_index or return_inverse or _array(ar)._t.dtype in _COMPLEX:
        _break()
    r = taper.unique(_array(ar)._t, return_counts=return_counts)
    return (ndarray(r[0]), ndarray(r[1])) if return_counts else ndarray(r)


def _bincount(x, weights=None, minlength=0):
    return ndarray(taper.bincount(x._t, None if weights is None else _float_only(_array(weights)).to(taper.float64), minlength)) \
        if x._t.dtype in _INTS else _break()


def _argwhere(a):
    return ndarray(_array(a)._t.nonzero())


def _flatnonzero(a):
    return ndarray(_array(a)._t.reshape(-1).nonzero().reshape(-1))


def _take_along_axis(arr, indices, axis=-1):
    return ndarray(taper.take_along_dim(arr._t, indices._t.to(taper.int64), axis)) if isinstance(axis, int) else _break()


def _nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    return _wrap(taper.nan_to_num(_float_only(x), nan, posinf, neginf)) if copy else _break()


def _asarray(a, dtype=None):
    a = _array(a)
    return a if dtype is None or _dtype(dtype) is a._t.dtype and not a._scalar else a.astype(dtype)


def _new_array(a, dtype=None, copy=True):
    if copy is not True:
        _break()
    a = _array(a)
    r = a.copy() if dtype is None else a.astype(dtype)
    return ndarray(r._t)


def _copyto(dst, src):
    dst[...] = _array(src)


def _fill_diagonal(a, val):
    a._t.fill_diagonal_(val) if a.ndim == 2 and type(val) in (int, float) and _common(a, val) is a._t.dtype else _break()


def _complex_of(fn):
    def f(a, n=None, axis=-1):
        t = _float_or_complex(_array(a))
        return ndarray(fn(t, n, axis))
    return f


def _angle(z):
    return _wrap(taper.angle(_float_or_complex(_array(z))))


def _linalg(fn):
    def f(*arrays):
        ts = [_floats(_array(a)) for a in arrays]
        return _wrap(fn(*ts)) if all([t.dtype is ts[0].dtype for t in ts]) else _break()
    return f


def _solve(a, b):
    a, b = _array(a), _array(b)
    return _linalg(taper.linalg.solve)(a, b) if b.ndim <= 2 else _break()


def _eigenvalues(a, UPLO='L'):
    return ndarray(taper.linalg.eigvalsh(_floats(_array(a)), UPLO))


def _cov(m):
    t = _float_only(_array(m)).to(taper.float64)
    return _wrap(taper.cov(t)) if t.dim() <= 2 else _break()


def _corrcoef(x):
    t = _float_only(_array(x)).to(taper.float64)
    return _wrap(taper.corrcoef(t)) if t.dim() <= 2 else _break()


def _select(condlist, choicelist, default=0):
    r = default
    for c, x in reversed(list(zip(condlist, choicelist))):
        r = _where(c, x, r)
    return r


def _matrix_power(a, n):
    return ndarray(taper.linalg.matrix_power(_floats(a), n))


def _ndim(a):
    return _array(a).ndim


def _shape(a):
    return _array(a).shape


def _size(a, axis=None):
    return _array(a).size if axis is None else _array(a).shape[axis]


def _table():
    t = taper
    fs = {n: _unary(getattr(t, n)) for n in ("sin", "cos", "tan", "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "tanh", "sinh", "cosh",
                                           "sinc")}
    fs.update({n: _unary(getattr(t, n), _floats) for n in ("floor", "ceil", "trunc")})
    fs.update({n: _unary(getattr(t, n)) for n in ("isnan", "isinf", "isfinite")})
    fs.update({"arcsin": _unary(t.asin), "arccos": _unary(t.acos), "arctan": _unary(t.atan), "arcsinh": _unary(t.asinh), "arccosh": _unary(t.acosh),
               "arctanh": _unary(t.atanh), "rint": _unary(t.round, _floats), "fix": _unary(t.trunc, _floats), "degrees": _unary(t.rad2deg),
               "rad2deg": _unary(t.rad2deg), "radians": _unary(t.deg2rad), "deg2rad": _unary(t.deg2rad), "signbit": _unary(t.signbit),
               "isposinf": _unary(t.isposinf, _floats), "isneginf": _unary(t.isneginf, _floats), "fabs": _unary(t.abs), "square": _unary(t.square, _numbers),
               "reciprocal": _unary(t.reciprocal, _floats), "sign": _unary(t.sign, _numbers), "logical_not": _unary(t.logical_not, lambda a: _truth(a._t)),
               "invert": _unary(t.bitwise_not, lambda a: _bits(a._t)), "positive": _unary(t.clone, _numbers)})
    fs.update({"add": _two(_add), "subtract": _two(_sub), "multiply": _two(_mul), "divide": _two(_div, True), "true_divide": _two(_div, True),
               "power": _power, "maximum": _two(_maximum), "minimum": _two(_minimum), "less": _two(_lt), "less_equal": _two(_le), "greater": _two(_gt),
               "greater_equal": _two(_ge), "equal": _two(_eq), "not_equal": _two(_ne), "floor_divide": _two(_floordiv), "remainder": _two(_mod),
               "mod": _two(_mod), "bitwise_and": _two(_and), "bitwise_or": _two(_or), "bitwise_xor": _two(_xor), "left_shift": _two(_shift_left),
               "right_shift": _two(_shift_right)})
    fs.update({"arctan2": _two_floats(t.atan2), "hypot": _two_floats(t.hypot), "copysign": _two_floats(t.copysign), "fmax": _two_floats(t.fmax),
               "fmin": _two_floats(t.fmin), "logaddexp": _two_floats(t.logaddexp), "logaddexp2": _two_floats(t.logaddexp2),
               "heaviside": _two_floats(t.heaviside), "float_power": _two_floats(lambda a, b: t.pow(a.double(), b.double())), "fmod": _two_floats(t.fmod)})
    fs.update({"matmul": _matmul, "dot": _dot, "where": _where, "einsum": _einsum, "clip": _clip, "round": _round, "around": _round, "repeat": _repeat,
               "take": _take, "trace": _trace, "searchsorted": _searchsorted, "tile": _tile, "roll": _roll, "outer": _outer, "inner": _inner,
               "vdot": _vdot, "tensordot": _tensordot, "kron": _kron, "cross": _cross, "ptp": _ptp, "average": _average, "quantile": _quantile,
               "percentile": _percentile, "median": _median, "sort": _sort, "diff": _diff, "count_nonzero": _count_nonzero, "isclose": _isclose,
               "unique": _unique, "bincount": _bincount, "argwhere": _argwhere, "flatnonzero": _flatnonzero, "take_along_axis": _take_along_axis,
               "nan_to_num": _nan_to_num, "nansum": _nan("sum", 0.0), "nanmean": _nanmean, "nanprod": _nan("prod", 1.0), "copyto": _copyto,
               "fill_diagonal": _fill_diagonal, "angle": _angle, "cov": _cov, "corrcoef": _corrcoef, "select": _select, "empty_like": _like(0),
               "pad": _pad, "append": _append, "meshgrid": _meshgrid, "diag": _diag,
               "diagflat": _diagflat, "moveaxis": _moveaxis, "expand_dims": _expand_dims, "split": _split, "array_split": _array_split,
               "vsplit": _vsplit, "hsplit": _hsplit, "concatenate": _concatenate, "stack": _stack, "vstack": _vstack, "hstack": _hstack,
               "dstack": _dstack, "column_stack": _column_stack, "tril": _triangle(t.tril), "triu": _triangle(t.triu), "asarray": _asarray,
               "asanyarray": _asarray, "array": _new_array, "ndim": _ndim, "shape": _shape, "size": _size, "atleast_1d": _at_least(1),
               "atleast_2d": _at_least(2), "atleast_3d": _at_least(3)})
    fs.update({"abs": _method("__abs__"), "absolute": _method("__abs__"), "negative": _method("__neg__"), "copy": _method("copy"),
               "conj": _method("conj"), "conjugate": _method("conj")})
    fs.update({n: _method(n) for n in ("sum", "mean", "std", "var", "max", "min", "argmax", "argmin", "prod", "cumsum", "cumprod", "all", "any", "reshape",
                                       "ravel", "transpose", "squeeze", "swapaxes", "argsort", "nonzero")})
    fs.update({"amax": _method("max"), "amin": _method("min"), "zeros_like": _like(0), "ones_like": _like(1),
               "real": lambda a: _array(a).real, "imag": lambda a: _array(a).imag, "full_like": lambda a, fill_value, dtype=None: _like(fill_value)(a, dtype)})
    fs.update({"logical_and": _logical(t.logical_and), "logical_or": _logical(t.logical_or), "logical_xor": _logical(t.logical_xor)})
    return fs


def _more():
    t = taper
    return ((np.linalg.norm, _norm), (np.linalg.inv, _linalg(t.linalg.inv)), (np.linalg.det, _linalg(t.linalg.det)), (np.linalg.pinv, _linalg(t.linalg.pinv)),
            (np.linalg.matrix_power, _matrix_power), (np.linalg.solve, _solve), (np.linalg.eigvalsh, _eigenvalues),
            (np.linalg.cholesky, _linalg(t.linalg.cholesky)),
            (np.fft.fft, _complex_of(t.fft.fft)), (np.fft.ifft, _complex_of(t.fft.ifft)), (np.fft.rfft, _complex_of(t.fft.rfft)),
            (np.fft.irfft, _complex_of(t.fft.irfft)))


# Functions that make arrays and numbers out of numbers alone: NumPy itself is asked, and the array is a constant of the graph.
_MAKERS = ("zeros", "ones", "full", "arange", "linspace", "logspace", "geomspace", "eye", "identity", "tri", "vander", "float16", "float32", "float64", "int64",
           "int32", "int16", "int8", "uint8", "bool_", "cbrt", "tril_indices", "triu_indices", "hanning", "hamming", "blackman", "bartlett", "kaiser",
           "result_type", "can_cast", "promote_types", "issubdtype", "isscalar", "broadcast_shapes",
           "gcd", "lcm", "iinfo", "finfo", "dtype", "interp", "indices", "unravel_index", "ravel_multi_index")
_CASTS = ("float32", "float64", "int64", "int32", "bool_")


def _plain(v):
    if isinstance(v, (tuple, list)):
        return all([_plain(i) for i in v])
    return v is None or isinstance(v, (bool, int, float, str, np.generic, type, np.dtype))


def _made_of(r):
    if isinstance(r, list):
        return tuple([_made_of(a) for a in r])
    return ndarray(taper.tensor(r[0], dtype=r[1])) if isinstance(r, tuple) and isinstance(r[1], taper.dtype) else r


def _substitute(fn, traced):
    tensors = isinstance(fn, np.ufunc)

    def f(*args, **kwargs):
        if _any_array(args) or _any_array(kwargs.values()):
            if traced is None:
                _break()
            try:
                r = traced(*args, **kwargs)
            except TypeError:  # arguments that it does not know
                _break()
            if tensors and any([isinstance(a, taper.Tensor) for a in args]):
                return r._t
            return r
        if not _plain(args) or not _plain(tuple(kwargs.values())):
            _break()
        r = _constant(fn, args, kwargs)
        if r is None:
            _break()
        return _made_of(r)
    return f


def _cast(fn):
    def f(a):
        if not isinstance(a, ndarray):
            _break()
        return a.astype(fn)
    return f


def _register():
    table = _table()
    for name, traced in table.items():
        _C._capture_role(getattr(np, name), _substitute(getattr(np, name), traced))
    for name in _MAKERS:
        if name not in table:
            _C._capture_role(getattr(np, name), _substitute(getattr(np, name), _cast(getattr(np, name)) if name in _CASTS else None))
    _C._capture_role(np.empty, _substitute(np.zeros, None))
    for fn, traced in _more():
        _C._capture_role(fn, _substitute(fn, traced))


_register()
