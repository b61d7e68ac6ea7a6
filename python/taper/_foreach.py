"""Lists of tensors at once: _foreach_add and its family apply one operation to every tensor of a list."""
from .functional import norm as _norm

__all__ = []


def _pick(value, i, n):
    """The i-th of a list of values, or the one value for all."""
    if isinstance(value, (list, tuple)):
        if len(value) != n:
            raise RuntimeError(f"Tensor list must have same number of elements as scalar list, got {n} and {len(value)}")
        return value[i]
    return value


def _check_lists(tensors, *others):
    if not tensors:
        raise RuntimeError("Tensor list must have at least one tensor.")
    for o in others:
        if isinstance(o, (list, tuple)) and len(o) != len(tensors):
            raise RuntimeError(f"Tensor lists must have the same number of tensors, got {len(tensors)} and {len(o)}")


def _each(name, method, tensors, args, kw):
    _check_lists(tensors, *args)
    n = len(tensors)
    call = lambda i, t: getattr(t, method)(*(_pick(a, i, n) for a in args), **{k: _pick(v, i, n) for k, v in kw.items()})
    return tuple(call(i, t) for i, t in enumerate(tensors))


def _foreach(name):
    def fn(self, *args, **kw):
        return _each(name, name, self, args, kw)
    fn.__name__ = fn.__qualname__ = "_foreach_" + name
    fn.__doc__ = f"{name} of every tensor of a list; the other arguments are one for all or lists."
    return fn


def _foreach_inplace(name):
    def fn(self, *args, **kw):
        _each(name, name + "_", self, args, kw)
    fn.__name__ = fn.__qualname__ = f"_foreach_{name}_"
    fn.__doc__ = f"{name} in place of every tensor of a list."
    return fn


for _n in ("add sub mul div pow addcmul addcdiv lerp clamp_min clamp_max abs acos asin atan ceil cos cosh erf erfc exp "
           "expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh "
           "trunc").split():
    globals()["_foreach_" + _n] = _foreach(_n)
    globals()[f"_foreach_{_n}_"] = _foreach_inplace(_n)
    __all__ += ["_foreach_" + _n, f"_foreach_{_n}_"]


_pow_lists = globals()["_foreach_pow"]


def _foreach_pow(self, exponent):
    """pow of every tensor of a list; or a number to the power of each."""
    if isinstance(self, (int, float, complex)) and isinstance(exponent, (list, tuple)):
        return tuple(self ** t for t in exponent)
    return _pow_lists(self, exponent)


def _foreach_maximum(self, other):
    _check_lists(self, other)
    return tuple(t.clamp_min(_pick(other, i, len(self))) for i, t in enumerate(self))


def _foreach_minimum(self, other):
    _check_lists(self, other)
    return tuple(t.clamp_max(_pick(other, i, len(self))) for i, t in enumerate(self))


def _foreach_maximum_(self, other):
    _check_lists(self, other)
    for i, t in enumerate(self):
        t.clamp_min_(_pick(other, i, len(self)))


def _foreach_minimum_(self, other):
    _check_lists(self, other)
    for i, t in enumerate(self):
        t.clamp_max_(_pick(other, i, len(self)))


def _foreach_norm(self, ord=2, dtype=None):
    _check_lists(self)
    return tuple(_norm(t, ord, dtype=dtype) for t in self)


def _foreach_max(self):
    _check_lists(self)
    return tuple(t.max() for t in self)


def _foreach_zero_(self):
    _check_lists(self)
    for t in self:
        t.zero_()


def _foreach_copy_(self, src, non_blocking=False):
    _check_lists(self, src)
    for t, s in zip(self, src):
        t.copy_(s, non_blocking)


__all__ += ["_foreach_" + n for n in ("maximum", "minimum", "maximum_", "minimum_", "norm", "max", "zero_", "copy_")]
