"""Shapes, under the file name that programs import them from."""
from .linear import (Flatten, Unflatten)  # noqa: F401
