"""What is refused by name."""
from ..._absent import fill as _fill

_fill(globals(), "a part of a tensor is a ShardedParameter of taper.distributed.fsdp.fully_shard",
      classes="ShardedTensor Shard",
      functions="")
