"""Kumaraswamy, under the file name that programs import it from."""
from .more import Kumaraswamy  # noqa: F401
