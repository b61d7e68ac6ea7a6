"""Dirichlet, under the file name that programs import it from."""
from .continuous import Dirichlet  # noqa: F401
