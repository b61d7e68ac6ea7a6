"""cuDNN is not used."""
from ._switches import Switches as _Switches

_Switches.into(__name__, enabled=True, benchmark=False, benchmark_limit=10, deterministic=False, allow_tf32=True, fp32_precision="none")
