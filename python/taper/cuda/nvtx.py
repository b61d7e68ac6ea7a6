"""Marks for a GPU's profiler: without one they do nothing."""
import contextlib as _contextlib


def range_push(msg):
    return -1


def range_pop():
    return -1


def mark(msg):
    """Nobody reads it."""


@_contextlib.contextmanager
def range(msg, *args, **kwargs):
    yield
