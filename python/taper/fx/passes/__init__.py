"""Passes over graphs that come with fx."""
from . import shape_prop  # noqa: F401
