"""The old name of distributed.tensor."""
from ..tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_module, distribute_tensor
