"""LKJCholesky, under the file name that programs import it from."""
from .more import LKJCholesky  # noqa: F401
