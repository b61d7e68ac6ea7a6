"""The fast path of attention modules."""
from ._switches import Switches as _Switches

_Switches.into(__name__)
