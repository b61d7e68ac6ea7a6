"""Special functions."""
from . import _C

globals().update(_C._op_functions.get("special", {}))
