"""Normalisation of each sample, under the file name that programs import them from."""
from .norm import (InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, _InstanceNorm)  # noqa: F401
from .lazy import (LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d)  # noqa: F401
