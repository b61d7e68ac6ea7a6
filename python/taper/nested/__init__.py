"""Nested tensors are not supported."""
from .._absent import fill as _fill

_fill(globals(), "nested tensors are not supported; pad to one size and use a mask",
      functions="nested_tensor as_nested_tensor nested_tensor_from_jagged to_padded_tensor narrow masked_select")
