"""Marks of a program's main function."""


class ChildFailedError(Exception):
    """A process of several failed."""


def record(fn, error_handler=None):
    return fn
