"""Gumbel, under the file name that programs import it from."""
from .continuous import Gumbel  # noqa: F401
