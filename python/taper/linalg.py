"""Linear algebra."""
from . import _C


class LinAlgError(RuntimeError):
    """A matrix on which the asked computation does not work."""


globals().update(_C._op_functions.get("linalg", {}))
