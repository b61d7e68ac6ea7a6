"""What is refused by name."""
from ..._absent import fill as _fill

_fill(globals(), "use taper.distributed.checkpoint.load with the state_dict() of the optimizer",
      classes="",
      functions="load_sharded_optimizer_state_dict")
