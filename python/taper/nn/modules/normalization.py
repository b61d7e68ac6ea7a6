"""Normalisation over features, under the file name that programs import them from."""
from .norm import (GroupNorm, LayerNorm, LocalResponseNorm, RMSNorm)  # noqa: F401
