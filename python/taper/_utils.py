"""Small helpers that libraries import."""
from . import _C
from ._tensor import _rebuild as _rebuild_tensor  # noqa: F401


def _get_device_index(device, optional=False, allow_cpu=False):
    """The ordinal of a device; of the CPU -1 where that is allowed."""
    if isinstance(device, int):
        return device
    device = _C.device(device) if isinstance(device, str) else device
    if isinstance(device, _C.device) and device.type == "cpu":
        if not allow_cpu:
            raise ValueError(f"Expected a non cpu device, but got: {device}")
        return -1
    if device is None and optional:
        return 0
    if isinstance(device, _C.device) and device.index is not None:
        return device.index
    raise ValueError(f"Expected a device with a specified index or an integer, but got: {device}")


def _element_size(dtype):
    return dtype.itemsize


def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None):
    return _rebuild_tensor(_C.Tensor, getattr(storage, "_untyped_storage", storage), getattr(storage, "dtype", _C.float32), storage_offset, size, stride,
                           requires_grad, None)


def _rebuild_parameter(data, requires_grad, backward_hooks):
    from .nn import Parameter
    return Parameter(data, requires_grad)


def _get_available_device_type():
    return None


def _get_all_device_indices():
    return []


def _flatten_dense_tensors(tensors):
    from . import cat
    return cat([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat, tensors):
    out, at = [], 0
    for t in tensors:
        out.append(flat.narrow(0, at, t.numel()).view_as(t))
        at += t.numel()
    return tuple(out)


def _take_tensors(tensors, size_limit):
    """Lists of tensors of one type, of about that many bytes."""
    groups = {}
    for t in tensors:
        g = groups.setdefault(t.dtype, [[], 0])
        n = t.numel() * t.element_size()
        if g[0] and g[1] + n > size_limit:
            yield g[0]
            g[0], g[1] = [], 0
        g[0].append(t)
        g[1] += n
    for g, _ in groups.values():
        if g:
            yield g


class ExceptionWrapper:
    """An exception with its traceback as text, for another thread or process."""

    def __init__(self, exc_info=None, where="in background"):
        import sys
        import traceback
        info = exc_info or sys.exc_info()
        self.exc_type, self.exc_msg, self.where = info[0], "".join(traceback.format_exception(*info)), where

    def reraise(self):
        msg = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        try:
            raise self.exc_type(msg)
        except TypeError:
            raise RuntimeError(msg) from None


def is_compiling():
    from .compiler import is_compiling
    return is_compiling()


class CallbackRegistry:
    def __init__(self, name):
        self.name, self.callback_list = name, []

    def add_callback(self, cb):
        self.callback_list.append(cb)

    def fire_callbacks(self, *args, **kwargs):
        for cb in self.callback_list:
            cb(*args, **kwargs)
