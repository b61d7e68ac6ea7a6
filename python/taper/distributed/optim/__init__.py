"""What is refused by name."""
from ..._absent import fill as _fill

_fill(globals(), "states of optimizers are sharded by taper.distributed.fsdp.fully_shard",
      classes="DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer",
      functions="_apply_optimizer_in_backward")
