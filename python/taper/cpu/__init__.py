"""The CPU as a device with the functions programs ask of one."""
import contextlib

from .. import _C
from . import amp

__all__ = ["amp", "current_device", "device_count", "is_available", "synchronize"]


def is_available():
    return True


def device_count():
    return 1


def current_device():
    return "cpu"


def set_device(device):
    """There is one."""


def synchronize(device=None):
    """Nothing is left running when a call returns; an error that a worker thread found late is raised here."""
    _C._sync()


class Stream:
    """Work on the CPU is done when the call returns: a stream changes nothing."""

    def __init__(self, priority=-1):
        pass

    def wait_stream(self, stream):
        pass


def stream(s):
    return contextlib.nullcontext()


def current_stream(device=None):
    return Stream()
