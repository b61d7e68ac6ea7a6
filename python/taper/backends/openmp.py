"""Threads are Taper's own."""
from ._switches import Switches as _Switches

_Switches.into(__name__)
