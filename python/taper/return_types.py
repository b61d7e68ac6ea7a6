"""The named tuples that operators with several results return: taper.return_types.max is the type of taper.max(x, dim=0)."""
from . import _C


def __getattr__(name):
    cls = _C._return_type(name)
    if cls is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, cls)
