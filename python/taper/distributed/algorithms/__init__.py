"""Names of several processes."""
from .join import Join, Joinable  # noqa: F401
