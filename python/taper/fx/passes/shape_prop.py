"""Shapes and types of all values of a graph, learnt by running it once."""
from typing import NamedTuple

import taper

from ..graph import Interpreter, map_aggregate


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its values."""
    shape: taper.Size
    dtype: taper.dtype
    requires_grad: bool
    stride: tuple
    memory_format: taper.memory_format
    is_quantized: bool
    qparams: dict


def _extract_tensor_metadata(result, include_contiguity=True):
    form = None
    if include_contiguity:
        form = next((f for f in (taper.contiguous_format, taper.channels_last, taper.channels_last_3d)
                     if result.dim() in ((4,) if f is taper.channels_last else (5,) if f is taper.channels_last_3d else range(65))
                     and result.is_contiguous(memory_format=f)), None)
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(), form, False, {})


class ShapeProp(Interpreter):
    """ShapeProp(gm).propagate(*inputs) puts node.meta["tensor_meta"] and node.meta["type"] on every node."""

    def __init__(self, gm, fake_mode=None):
        super().__init__(gm)
        self.fake_mode = fake_mode

    def run_node(self, n):
        try:
            result = super().run_node(n)
        except Exception as e:
            raise RuntimeError(f"ShapeProp error for: node={n.format_node()} with meta={n.meta}") from e
        found = []

        def meta(o):
            if isinstance(o, taper.Tensor):
                found.append(True)
                return _extract_tensor_metadata(o)
            return o
        m = map_aggregate(result, meta)
        if found:
            n.meta["tensor_meta"] = m
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args):
        if self.fake_mode is None:
            return self.run(*args)
        with self.fake_mode:
            return self.run(*[self.fake_mode.from_tensor(a) if isinstance(a, taper.Tensor) else a for a in args])
