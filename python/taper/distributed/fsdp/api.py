"""Names of several processes: classes that no object is of, functions that say so."""
from ..._absent import fill as _fill

_fill(globals(), "it spreads work over several processes, and Taper runs distributed programs in one",
      classes="FullyShardedDataParallel FSDPModule ShardingStrategy CPUOffload CPUOffloadPolicy OffloadPolicy MixedPrecision MixedPrecisionPolicy BackwardPrefetch FullStateDictConfig FullOptimStateDictConfig ShardedStateDictConfig ShardedOptimStateDictConfig LocalStateDictConfig LocalOptimStateDictConfig OptimStateKeyType StateDictType StateDictConfig OptimStateDictConfig StateDictSettings FlatParameter",
      functions="")
