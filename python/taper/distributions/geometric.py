"""Geometric, under the file name that programs import it from."""
from .discrete import Geometric  # noqa: F401
