"""Weights by their largest singular value."""
from . import spectral_norm, remove_spectral_norm  # noqa: F401
