"""Wishart, under the file name that programs import it from."""
from .more import Wishart  # noqa: F401
