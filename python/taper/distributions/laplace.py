"""Laplace, under the file name that programs import it from."""
from .continuous import Laplace  # noqa: F401
