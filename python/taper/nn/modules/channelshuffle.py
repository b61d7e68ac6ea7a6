"""Groups of channels, under the file name that programs import them from."""
from .linear import (ChannelShuffle)  # noqa: F401
