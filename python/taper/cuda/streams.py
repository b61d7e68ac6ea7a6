"""There are no streams."""
from . import Event, ExternalStream, Stream  # noqa: F401
