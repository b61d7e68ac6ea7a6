"""Questions about objects that behave like tensors."""
from . import _C


def is_tensor_like(obj):
    """True for tensors and for objects whose type defines __torch_function__."""
    return isinstance(obj, _C.Tensor) or hasattr(type(obj), "__torch_function__")


def has_torch_function(args):
    return any(type(a) is not _C.Tensor and hasattr(type(a), "__torch_function__") for a in args)


def has_torch_function_unary(a):
    return has_torch_function((a,))
