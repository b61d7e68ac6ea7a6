"""Programs of several processes, with PyTorch's names: process groups, collectives, device meshes (see docs/distributed.md)."""
from .distributed_c10d import *  # noqa: F401,F403
from .distributed_c10d import (Backend, DistBackendError, DistError, DistNetworkError, DistStoreError, GroupMember, P2POp, ProcessGroup, ReduceOp, Work,  # noqa: F401
                               _all_gather_base, _get_default_group, _rank_not_in_group, _reduce_scatter_base, group)
from . import distributed_c10d as _c10d


def __getattr__(name):
    import importlib
    if name in ("DeviceMesh", "init_device_mesh"):
        return getattr(importlib.import_module(f"{__name__}.device_mesh"), name)
    if name in ("fsdp", "tensor", "checkpoint", "device_mesh", "nn", "optim", "rpc", "algorithms", "elastic", "utils", "constants",
                "_functional_collectives", "_tensor", "_composable", "_shard", "launch", "run", "pipelining", "_symmetric_memory", "collective_utils"):
        return importlib.import_module(f"{__name__}.{name}")
    if name in ("_group", "_check", "GradBucket", "Reducer"):
        return getattr(_c10d, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
