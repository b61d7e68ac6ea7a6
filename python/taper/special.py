"""Special functions."""
from . import _C

globals().update(_C._op_functions.get("special", {}))

# Other names of functions that live at the top.
for _name, _same in (("expit", "sigmoid"), ("gammaln", "lgamma"), ("psi", "digamma"), ("round", "round")):
    globals()[_name] = _C._op_functions[""][_same]


def __getattr__(name):
    if name == "multigammaln":
        from .functional import mvlgamma
        return mvlgamma
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
