"""Variables are tensors."""
from .. import Tensor as Variable  # noqa: F401
