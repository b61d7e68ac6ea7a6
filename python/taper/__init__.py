"""Taper: a tensor compiler you can debug."""
from . import _C
from ._C import *  # noqa: F401,F403  dtypes, Tensor, Size, device, Generator, ...

__version__ = "0.1.0"

globals().update(_C._op_functions.get("", {}))

from . import autograd  # noqa: E402
from .autograd import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: E402,F401
from . import utils, nn, optim  # noqa: E402
