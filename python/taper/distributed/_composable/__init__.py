"""Functions that change a module where it is."""
from ..fsdp._fully_shard import fully_shard  # noqa: F401
from ..._absent import fill as _fill

_fill(globals(), "use nn.parallel.DistributedDataParallel, or taper.utils.checkpoint", functions="replicate checkpoint")
