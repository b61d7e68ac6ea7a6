"""Signal processing."""
from . import windows  # noqa: F401
