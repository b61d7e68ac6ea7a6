"""Linear algebra."""
from . import _C


class LinAlgError(RuntimeError):
    """A matrix on which the asked computation does not work."""


globals().update(_C._op_functions.get("linalg", {}))


def eig(A, *, out=None):
    """Eigenvalues of a general matrix are complex, which Taper has no type for."""
    raise NotImplementedError("linalg.eig: the eigenvalues of a general matrix are complex numbers, and Taper has no complex types; "
                              "linalg.eigh serves symmetric matrices")


def eigvals(A, *, out=None):
    """Eigenvalues of a general matrix are complex, which Taper has no type for."""
    raise NotImplementedError("linalg.eigvals: the eigenvalues of a general matrix are complex numbers, and Taper has no complex types; "
                              "linalg.eigvalsh serves symmetric matrices")
