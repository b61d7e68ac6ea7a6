"""Channels to pixels, under the file name that programs import them from."""
from .linear import (PixelShuffle, PixelUnshuffle)  # noqa: F401
