"""Reductions and normalisations that see only the elements a mask selects: masked.sum(x, 0, mask=m). Elements outside
the mask count as the operation's neutral element; where nothing is selected, results are that element (or NaN)."""
import math as _math

import taper as _T

__all__ = ["sum", "prod", "cumsum", "cumprod", "amax", "amin", "argmax", "argmin", "mean", "median", "logsumexp", "logaddexp",
           "norm", "var", "std", "softmax", "log_softmax", "softmin", "normalize"]


def _dims(input, dim):
    if dim is None or dim == () or dim == []:
        return list(range(input.dim()))
    dims = [dim] if isinstance(dim, int) else list(dim)
    out = [d % max(input.dim(), 1) for d in dims]
    if len(set(out)) != len(out):
        raise RuntimeError("dim appears multiple times in the list of dims")
    return out if input.dim() else []


def _lowest(dtype):
    return -_math.inf if dtype.is_floating_point or dtype.is_complex else False if dtype is _T.bool else _T.iinfo(dtype).min


def _highest(dtype):
    return _math.inf if dtype.is_floating_point else True if dtype is _T.bool else _T.iinfo(dtype).max


def _fill(input, mask, value):
    if mask is None:
        return input
    if mask.dim() > input.dim():
        raise IndexError("_canonical_mask: expected broadcastable mask (got mask dimensionality higher than of the input)")
    return _T.where(mask.to(_T.bool), input, _T.tensor(value, dtype=input.dtype))


def _typed(input, dtype, whole=None):
    """input in the type to compute in: dtype, or for integers `whole`."""
    if dtype is None:
        dtype = input.dtype if input.dtype.is_floating_point or input.dtype.is_complex or whole is None else whole
    return input if input.dtype is dtype else input.to(dtype)


def _count(input, dims, keepdim, mask):
    ones = _T.ones(input.shape, dtype=_T.int64)
    ones = ones if mask is None else _T.where(mask.to(_T.bool), ones, 0)
    return ones.sum(dims, keepdim) if dims else ones


def sum(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    x, d = _fill(_typed(input, dtype, _T.int64), mask, 0), _dims(input, dim)
    return x.sum(d, keepdim) if d else x.clone()


def prod(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    x = _fill(_typed(input, dtype, _T.int64), mask, 1)
    for d in sorted(_dims(input, dim), reverse=True):
        x = x.prod(d, keepdim)
    return x


def cumsum(input, dim, *, dtype=None, mask=None):
    x = _typed(input, dtype)
    return _fill(x, mask, 0).cumsum(dim, dtype=x.dtype)


def cumprod(input, dim, *, dtype=None, mask=None):
    x = _typed(input, dtype)
    return _fill(x, mask, 1).cumprod(dim, dtype=x.dtype)


def amax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    x, d = _typed(input, dtype), _dims(input, dim)
    return _fill(x, mask, _lowest(x.dtype)).amax(d, keepdim)


def amin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    x, d = _typed(input, dtype), _dims(input, dim)
    return _fill(x, mask, _highest(x.dtype)).amin(d, keepdim)


def argmax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    x = _typed(input, dtype)
    return _fill(x, mask, _lowest(x.dtype)).argmax(dim, keepdim).to(x.dtype)


def argmin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    x = _typed(input, dtype)
    return _fill(x, mask, _highest(x.dtype)).argmin(dim, keepdim).to(x.dtype)


def mean(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    x, d = _typed(input, dtype), _dims(input, dim)
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise ValueError("mean of masked integers needs a floating point dtype")
    if mask is None:
        return x.mean(d, keepdim) if d else x.clone()
    n, s = _count(x, d, keepdim, mask), _fill(x, mask, 0)
    return (s.sum(d, keepdim) if d else s) / n


def median(input, dim=-1, *, keepdim=False, dtype=None, mask=None):
    x = _typed(input, dtype)
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise ValueError("median of masked integers needs a floating point dtype")
    return _fill(x, mask, _math.nan).nanmedian(dim, keepdim)[0] if mask is not None else x.median(dim, keepdim)[0]


def logsumexp(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    x, d = _typed(input, dtype), _dims(input, dim)
    x = _fill(x, mask, _lowest(x.dtype))
    return (x.logsumexp(d, keepdim) if d or x.is_complex() else x.clone()).to(x.dtype)


def logaddexp(input, other, *, dtype=None, input_mask=None, other_mask=None):
    x, y = _typed(input, dtype), _typed(other, dtype)
    return _T.logaddexp(_fill(x, input_mask, _lowest(x.dtype)), _fill(y, other_mask, _lowest(y.dtype)))


def norm(input, ord=2.0, dim=None, *, keepdim=False, dtype=None, mask=None):
    ord = 2.0 if ord is None else float(ord)
    x, d = _typed(input, dtype), _dims(input, dim)
    return _T.linalg.vector_norm(_fill(x, mask, _math.inf if ord == -_math.inf else 0), ord, d, keepdim)


def var(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None, _root=False):
    if unbiased is not None and correction is not None:
        raise ValueError("Only one of unbiased and correction may be given")
    correction = 1.0 if unbiased is None and correction is None else float(unbiased) if unbiased is not None else float(correction)
    x, d = _typed(input, dtype, _T.float32), _dims(input, dim)
    n = _count(x, d, True, mask)
    zero = _fill(x, mask, 0)
    m = (zero.sum(d, True) if d else zero) / n
    e = _fill((x - m) * (x - m).conj() if x.is_complex() else (x - m) ** 2, mask, 0)
    v = (e.sum(d, keepdim) if d else e) / (_count(x, d, keepdim, mask) - correction).clamp(min=0)
    v = v.to(x.dtype)
    return v.sqrt() if _root else v


def std(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    return var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask, _root=True)


def softmax(input, dim, *, dtype=None, mask=None):
    x = _typed(input, dtype)
    return _fill(x, mask, _lowest(x.dtype)).softmax(dim)


def log_softmax(input, dim, *, dtype=None, mask=None):
    x = _typed(input, dtype)
    return _fill(x, mask, _lowest(x.dtype)).log_softmax(dim)


def softmin(input, dim, *, dtype=None, mask=None):
    x = _typed(input, dtype)
    return (-_fill(x, mask, _highest(x.dtype))).softmax(dim)


def normalize(input, ord, dim, *, eps=1e-12, dtype=None, mask=None):
    x = _typed(input, dtype)
    n = norm(x, ord, dim, keepdim=True, mask=mask)
    return _fill(x, mask, 0) / n.clamp_min(eps)
