"""Gamma, under the file name that programs import it from."""
from .continuous import Gamma  # noqa: F401
