"""Marks for another profiler: nobody reads them."""
import contextlib as _contextlib


def is_available():
    return False


def range_push(msg):
    return -1


def range_pop():
    return -1


def mark(msg):
    """Nobody reads it."""


@_contextlib.contextmanager
def range(msg, *args, **kwargs):
    yield
