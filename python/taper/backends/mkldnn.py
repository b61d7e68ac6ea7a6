"""oneDNN is not used."""
from ._switches import Switches as _Switches

_Switches.into(__name__, enabled=True, deterministic=False, allow_tf32=True, fp32_precision="none")
