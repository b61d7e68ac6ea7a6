"""There is no Apple GPU."""
from ._switches import Switches as _Switches


def is_macos_or_newer(major, minor):
    return False


def is_macos13_or_newer(minor=0):
    return False


_Switches.into(__name__)
