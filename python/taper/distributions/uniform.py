"""Uniform, under the file name that programs import it from."""
from .continuous import Uniform  # noqa: F401
