"""Poisson, under the file name that programs import it from."""
from .discrete import Poisson  # noqa: F401
