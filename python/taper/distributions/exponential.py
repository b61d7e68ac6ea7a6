"""Exponential, under the file name that programs import it from."""
from .continuous import Exponential  # noqa: F401
