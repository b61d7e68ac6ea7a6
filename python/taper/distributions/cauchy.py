"""Cauchy, under the file name that programs import it from."""
from .continuous import Cauchy  # noqa: F401
