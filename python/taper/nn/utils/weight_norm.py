"""Weights by length and direction."""
from . import weight_norm, remove_weight_norm  # noqa: F401
