"""What is refused by name."""
from ...._absent import fill as _fill

_fill(globals(), "optimizers' states are sharded by fully_shard",
      classes="",
      functions="hook_with_zero_step")
