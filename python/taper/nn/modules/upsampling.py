"""Upsampling, under the file name that programs import them from."""
from .linear import (Upsample, UpsamplingBilinear2d, UpsamplingNearest2d)  # noqa: F401
