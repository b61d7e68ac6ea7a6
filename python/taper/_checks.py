"""taper._check and its kin: conditions a program states about its values, and numbers that may be symbolic."""
from . import _C

__all__ = ["_check", "_check_is_size", "_check_value", "_check_index", "_check_type", "_check_not_implemented",
           "_check_with", "_check_tensor_all", "_check_tensor_all_with", "sym_max", "sym_min", "sym_int", "sym_float",
           "sym_not", "sym_ite", "sym_sum"]


def _check_with(error_type, cond, message=None):
    if cond is True:
        return
    if isinstance(cond, _C.SymInt):
        text = "Expected cond to be True, but got False." if message is None else str(message())
        _C._sym_check(cond, text, error_type.__name__)
        return
    if isinstance(cond, _C.Tensor):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if not isinstance(cond, (bool, int)) and not hasattr(cond, "__bool__"):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        text = "Expected cond to be True, but got False."
    elif callable(message):
        text = str(message())
    else:
        raise TypeError("message must be a callable")
    raise error_type(text)


def _check(cond, message=None):
    """Raises RuntimeError with message() unless cond holds."""
    _check_with(RuntimeError, cond, message)


def _check_is_size(i, message=None, *, max=None):
    """States that i is a size: not negative (and at most max)."""
    if isinstance(i, _C.SymInt):
        _C._sym_size_like(i)
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_value(cond, message=None):
    _check_with(ValueError, cond, message)


def _check_index(cond, message=None):
    _check_with(IndexError, cond, message)


def _check_type(cond, message=None):
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond, message=None):
    _check_with(NotImplementedError, cond, message)


def _check_tensor_all_with(error_type, cond, message=None):
    if not isinstance(cond, _C.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype is not _C.bool:
        raise TypeError(f"cond tensor must have dtype {_C.bool}, but got {cond.dtype}")
    _check_with(error_type, cond.all().item(), message)


def _check_tensor_all(cond, message=None):
    _check_tensor_all_with(RuntimeError, cond, message)


def sym_max(a, b):
    """The larger of two sizes, which may be symbols.

    >>> taper.sym_max(2, 3)
    3
    """
    return b if b > a else a


def sym_min(a, b):
    """The smaller of two sizes, which may be symbols.

    >>> taper.sym_min(2, 3)
    2
    """
    return b if b < a else a


def sym_int(a):
    """A size, which may be a symbol, as an integer.

    >>> taper.sym_int(2.5)
    2
    """
    return a if isinstance(a, _C.SymInt) else int(a)


def sym_float(a):
    """A size, which may be a symbol, as a floating point number.

    >>> taper.sym_float(2)
    2.0
    """
    return a if isinstance(a, _C.SymFloat) else float(a)


def sym_not(a):
    """The negation of a condition on sizes, which may be symbols.

    >>> taper.sym_not(False)
    True
    """
    return not a


def sym_ite(b, t, f):
    """One of two sizes by a condition, all of which may be symbols.

    >>> taper.sym_ite(True, 1, 2)
    1
    """
    return t if b else f


def sym_sum(args):
    """The sum of sizes, which may be symbols.

    >>> taper.sym_sum([1, 2, 3])
    6
    """
    return sum(args)


# --- questions about symbolic sizes (taper.fx.experimental.symbolic_shapes)
def is_symbolic(v):
    """Is v a size that has no number yet?"""
    return isinstance(v, _C.SymInt)


def guard_or_false(expr):
    """The truth of expr where it is known or may become a guard; False where it is about sizes that must not be guarded."""
    return False if _C._sym_open(expr) else bool(expr)


def guard_or_true(expr):
    """The truth of expr where it is known or may become a guard; True where it is about sizes that must not be guarded."""
    return True if _C._sym_open(expr) else bool(expr)


guard_size_oblivious = guard_or_false


def statically_known_true(expr):
    """True where expr holds for all sizes; a comparison of ordinary symbolic sizes has become a guard when it gets here."""
    return False if _C._sym_open(expr) else bool(expr)


def sym_and(x, *others):
    """x and all of the others; questions about sizes that must not be guarded stay questions."""
    for o in others:
        x = x & o
    return x


def sym_or(x, *others):
    """x or any of the others; questions about sizes that must not be guarded stay questions."""
    for o in others:
        x = x | o
    return x


def hint_int(v, fallback=None):
    """The number that was seen for a size."""
    if not isinstance(v, _C.SymInt):
        return v
    if _C._sym_open(v) and fallback is not None:
        return fallback
    return int(v)
