"""Streams and events."""
from . import Event, ExternalStream, Stream  # noqa: F401
