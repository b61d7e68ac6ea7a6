"""Linear algebra."""
from . import _C


class LinAlgError(RuntimeError):
    """A matrix on which the asked computation does not work."""


globals().update(_C._op_functions.get("linalg", {}))


def eig(A, *, out=None):
    """Eigenvalues of a general matrix are complex, which is not supported."""
    raise NotImplementedError("linalg.eig: the eigenvalues of a general matrix are complex numbers, which is not supported here; "
                              "linalg.eigh serves symmetric matrices")


def eigvals(A, *, out=None):
    """Eigenvalues of a general matrix are complex, which is not supported."""
    raise NotImplementedError("linalg.eigvals: the eigenvalues of a general matrix are complex numbers, which is not supported here; "
                              "linalg.eigvalsh serves symmetric matrices")
