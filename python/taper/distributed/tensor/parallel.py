"""What is refused by name."""
from ..._absent import fill as _fill

_fill(globals(), "tensor parallelism is not there; use fully_shard, or collectives of taper.distributed.nn.functional in the modules",
      classes="ParallelStyle ColwiseParallel RowwiseParallel SequenceParallel PrepareModuleInput PrepareModuleOutput",
      functions="parallelize_module loss_parallel")
