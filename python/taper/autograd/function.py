"""autograd.Function: operations with a derivative of one's own."""
import functools

from .. import _C

FunctionCtx = _C._FunctionCtx


class _FunctionMeta(type):
    def __init__(cls, name, bases, attrs):
        super().__init__(name, bases, attrs)
        cls._name = name + "Backward"
        cls._backward_cls = type(name + "Backward", (_C._FunctionCtx,), {"_forward_cls": cls,
                                                                         "__module__": cls.__module__})


class Function(metaclass=_FunctionMeta):
    """Subclass with static methods forward(ctx, ...) and backward(ctx, ...); call through .apply(...).

    The other form has forward(...) without ctx and setup_context(ctx, inputs, output)."""

    def __init__(self, *args, **kwargs):
        raise RuntimeError(f"{type(self)} should not be instantiated. Methods on autograd functions are all "
                           "static, so you should invoke them on the class itself. Instantiating an autograd "
                           "function will raise an error in a future version.")

    def __call__(self, *args, **kwargs):
        raise RuntimeError("Legacy autograd function with non-static forward method is deprecated. Please use "
                           "new-style autograd function with static forward method.")

    @staticmethod
    def forward(*args, **kwargs):
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        raise NotImplementedError("You must implement either the backward or vjp method for your custom "
                                  "autograd.Function to use it with backward mode AD.")

    @classmethod
    def apply(cls, *args, **kwargs):
        if kwargs:
            raise TypeError(f"{cls.__name__}.apply() takes no keyword arguments")
        if cls.backward is Function.backward and hasattr(cls, "vjp"):
            cls.backward = staticmethod(cls.vjp)
        return _C._function_apply(cls, cls._backward_cls, cls._name, args,
                                  cls.setup_context is not Function.setup_context)


class _Once(Function):
    @staticmethod
    def forward(ctx, *args):
        return tuple(a.detach() if isinstance(a, _C.Tensor) else a for a in args)

    @staticmethod
    def backward(ctx, *args):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def once_differentiable(fn):
    """Decorates backward: its own operations are not recorded, so it has no second derivative."""
    @functools.wraps(fn)
    def wrapper(ctx, *args):
        grad = _C.is_grad_enabled()
        _C._set_grad_enabled(False)
        try:
            out = fn(ctx, *args)
        finally:
            _C._set_grad_enabled(grad)
        if not grad or not any(isinstance(a, _C.Tensor) and a.requires_grad for a in args):
            return out
        single = not isinstance(out, tuple)
        outs = (out,) if single else out
        fresh = tuple(o.detach().requires_grad_() if isinstance(o, _C.Tensor) and o.is_floating_point() else o
                      for o in outs)
        outs = _Once.apply(*fresh)
        return outs[0] if single else outs
    return wrapper


def traceable(fn_cls):
    return fn_cls


class InplaceFunction(Function):
    def __init__(self, inplace=False):
        super().__init__()
