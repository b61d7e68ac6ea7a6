"""Fully sharded parameters: fully_shard. The older FullyShardedDataParallel is not supported."""
from ..._absent import fill as _fill

_fill(globals(), "use taper.distributed.fsdp.fully_shard",
      classes="FullyShardedDataParallel ShardingStrategy CPUOffload MixedPrecision BackwardPrefetch FullStateDictConfig FullOptimStateDictConfig ShardedStateDictConfig ShardedOptimStateDictConfig LocalStateDictConfig LocalOptimStateDictConfig OptimStateKeyType StateDictType StateDictConfig OptimStateDictConfig StateDictSettings FlatParameter",
      functions="")
from ._fully_shard import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard, register_fsdp_forward_method  # noqa: E402,F401
