"""Names of several processes: placements are plain descriptions, DTensor is a class that no object is of, functions say so."""
from ..._absent import fill as _fill
from .placement_types import Partial, Placement, Replicate, Shard

_fill(globals(), "tensors over several ranks are not there; use fully_shard, or collectives on local tensors",
      classes="DTensor",
      functions="distribute_tensor distribute_module empty full ones rand randn zeros")
