"""Pareto, under the file name that programs import it from."""
from .more import Pareto  # noqa: F401
