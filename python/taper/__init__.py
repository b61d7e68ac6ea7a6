"""Taper: a tensor compiler you can debug."""
from . import _C
from ._C import *  # noqa: F401,F403  dtypes, Tensor, Size, device, Generator, ...

__version__ = "0.1.0"

globals().update(_C._op_functions.get("", {}))
