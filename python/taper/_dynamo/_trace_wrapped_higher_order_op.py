"""Indexing by tensors of one element, without looking at their value."""
import taper
from ..overrides import TorchFunctionMode


class TransformGetItemToIndex(TorchFunctionMode):
    """Inside, x[i] with tensors for i picks by the tensors, so that it can be mapped over them."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is taper.Tensor.__getitem__:
            x, index = args
            index = index if isinstance(index, tuple) else (index,)
            if any(isinstance(i, taper.Tensor) and i.dim() == 0 for i in index) and all(isinstance(i, (taper.Tensor, int)) for i in index):
                return taper.ops.aten.index(x, [i if isinstance(i, taper.Tensor) else taper.tensor(i) for i in index])
        return func(*args, **(kwargs or {}))
