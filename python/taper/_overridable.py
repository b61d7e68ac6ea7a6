"""Functions written in Python that are one call for whoever takes calls over, like those of the extension."""
import functools as _functools
import types as _types

from . import _C

_Tensor = _C.Tensor


def overridable(fn):
    """fn, handed over as a whole where its first argument is no tensor but of a class with __torch_function__ (a Proxy)."""
    @_functools.wraps(fn)
    def call(*args, **kwargs):
        if args and isinstance(args[0], _Tensor):
            return fn(*args, **kwargs)
        first = args[0] if args else next(iter(kwargs.values()), None)
        if type(first) in (list, tuple) and first:
            first = first[0]
        if not isinstance(first, _Tensor) and hasattr(type(first), "__torch_function__"):
            got = _C._taken(call, args, kwargs)
            if got is not None:
                return got[0]
        return fn(*args, **kwargs)
    return call


def overridable_functions(namespace, names):
    for name in names:
        fn = namespace[name]
        if isinstance(fn, _types.FunctionType):
            namespace[name] = overridable(fn)
