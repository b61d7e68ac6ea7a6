"""Modules without initial values."""
from . import skip_init  # noqa: F401
