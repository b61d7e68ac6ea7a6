"""cuSPARSELt is not used."""
from ._switches import Switches as _Switches

_Switches.into(__name__)
