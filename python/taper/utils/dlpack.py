"""Tensors shared with other libraries without a copy."""
from .. import from_dlpack  # noqa: F401


def to_dlpack(tensor):
    return tensor.__dlpack__()
