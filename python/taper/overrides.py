"""Taking calls over: the __torch_function__ protocol of classes, and modes that see every call."""
from . import _C
from ._tensor import DisableTorchFunction, DisableTorchFunctionSubclass, _nowrap  # noqa: F401


def is_tensor_like(obj):
    """True for tensors and for objects whose type defines __torch_function__."""
    return isinstance(obj, _C.Tensor) or hasattr(type(obj), "__torch_function__")


def has_torch_function(args):
    """Is there an argument whose class takes calls over?"""
    return _C._overrides_on() and any(type(a) is not _C.Tensor and getattr(type(a), "__torch_function__", _plain) is not _plain for a in args)


def has_torch_function_unary(a):
    return has_torch_function((a,))


def has_torch_function_variadic(*args):
    return has_torch_function(args)


_plain = _C._disabled_torch_function_impl


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """For functions written in Python: hand the call to the arguments that take it over."""
    types = tuple(dict.fromkeys(type(a) for a in relevant_args if has_torch_function_unary(a)))
    order = sorted(types, key=lambda t: -len(t.__mro__))
    for t in order:
        r = t.__torch_function__(public_api, types, args, kwargs)
        if r is not NotImplemented:
            return r
    raise TypeError(f"no implementation found for '{public_api.__module__}.{public_api.__name__}' on types that implement __torch_function__: {list(order)}")


def resolve_name(f):
    """taper.add for taper.add: how a function would be written."""
    mod, name = getattr(f, "__module__", None), getattr(f, "__name__", None)
    if isinstance(f, type(_C.Tensor.add)):
        return f"{mod}.Tensor.{name}"
    return f"{mod}.{name}" if mod and name else None


class _Mode:
    _rows = False

    def __enter__(self):
        _C._mode_push(self._rows, self)  # outside of capture, what a mode watches runs call by call
        return self

    def __exit__(self, *exc):
        _C._mode_pop(self._rows)

    @classmethod
    def push(cls, *args, **kwargs):
        return cls(*args, **kwargs)


class TorchFunctionMode(_Mode):
    """with Mode(): every call of a function or method of the package goes to __torch_function__ of the mode."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{type(self).__name__} has no __torch_function__")


class BaseTorchFunctionMode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _get_current_function_mode_stack():
    return _C._mode_list(False)


def get_default_nowrap_functions():
    """What gives the same kind of result for a subclass as for Tensor itself."""
    return _nowrap
