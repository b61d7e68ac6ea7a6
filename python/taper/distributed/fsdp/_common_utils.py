"""What is refused by name."""
from ..._absent import fill as _fill

_fill(globals(), "use taper.distributed.fsdp.fully_shard",
      classes="FSDPState",
      functions="_get_module_fsdp_state")
