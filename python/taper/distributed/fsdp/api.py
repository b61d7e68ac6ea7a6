"""What is refused by name."""
from ..._absent import fill as _fill

_fill(globals(), "use taper.distributed.fsdp.fully_shard",
      classes="FullyShardedDataParallel ShardingStrategy CPUOffload MixedPrecision BackwardPrefetch FullStateDictConfig FullOptimStateDictConfig ShardedStateDictConfig ShardedOptimStateDictConfig LocalStateDictConfig LocalOptimStateDictConfig OptimStateKeyType StateDictType StateDictConfig OptimStateDictConfig StateDictSettings FlatParameter",
      functions="")
from ._fully_shard import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy  # noqa: E402,F401
