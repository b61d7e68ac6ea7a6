"""The last backend's settings, under the name programs look for them."""
from . import config  # noqa: F401
