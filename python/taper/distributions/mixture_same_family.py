"""MixtureSameFamily, under the file name that programs import it from."""
from .more import MixtureSameFamily  # noqa: F401
