"""A process group of one process: enough for programs written for several to run in one.

There is no communication between processes, so is_available() says no, and asking for more than one process says so. Collective
functions of a group of one do what they do in the original for one process."""
import datetime as _datetime
import enum as _enum
import os as _os

from .._absent import absent_class as _absent_class

_WHY = "Taper runs distributed programs in one process only"
_group = None
default_pg_timeout = _datetime.timedelta(minutes=30)


def is_available():
    """No: there is no communication between processes."""
    return False


def is_initialized():
    return _group is not None


def is_mpi_available():
    return False


is_nccl_available = is_ucc_available = is_xccl_available = is_torchelastic_launched = is_mpi_available


def is_gloo_available():
    return False


def is_backend_available(backend):
    return False


class ReduceOp(_enum.Enum):
    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, UNUSED = range(10)


ReduceOp.RedOpType = ReduceOp
reduce_op = ReduceOp


class Backend(str):
    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL, FAKE = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl", "fake"
    backend_list = ["undefined", "gloo", "nccl", "xccl", "ucc", "mpi"]
    default_device_backend_map = {"cpu": "gloo", "cuda": "nccl"}


class Work:
    """What a collective with async_op=True gives: done already."""

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True

    is_success = is_completed

    def get_future(self):
        from ..futures import Future
        f = Future()
        f.set_result(None)
        return f


class ProcessGroup:
    """The group of this process alone."""

    def __init__(self, backend="gloo"):
        self._backend = backend

    def size(self):
        return 1

    def rank(self):
        return 0

    def name(self):
        return self._backend


class Store:
    """Values by name, of this process."""

    def __init__(self, *args, **kwargs):
        self._values = {}

    def set(self, key, value):
        self._values[key] = value if isinstance(value, bytes) else str(value).encode()

    def get(self, key):
        return self._values[key]

    def add(self, key, amount):
        n = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(n).encode()
        return n

    def wait(self, keys, timeout=None):
        for k in keys:
            if k not in self._values:
                raise RuntimeError(f"the key {k!r} is not set, and there is no other process that could set it")

    def num_keys(self):
        return len(self._values)


HashStore = FileStore = TCPStore = PrefixStore = Store
P2POp = _absent_class(__name__, "P2POp", _WHY)
DistBackendError = type("DistBackendError", (RuntimeError,), {"__module__": __name__})
DistError = type("DistError", (RuntimeError,), {"__module__": __name__})
DistNetworkError = type("DistNetworkError", (DistError,), {"__module__": __name__})


class _Names(type):
    @property
    def WORLD(cls):
        return _group


class group(metaclass=_Names):
    """group.WORLD is the group of all processes, once there is one."""


class GroupMember(metaclass=_Names):
    NON_GROUP_MEMBER = -100


def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="", pg_options=None, device_id=None):
    """Makes the group; world_size and rank come from WORLD_SIZE and RANK when they are not given."""
    global _group
    if _group is not None:
        raise ValueError("trying to initialize the default process group twice!")
    world_size = int(_os.environ.get("WORLD_SIZE", 1)) if world_size < 0 else world_size
    rank = int(_os.environ.get("RANK", 0)) if rank < 0 else rank
    if world_size != 1 or rank != 0:
        raise NotImplementedError(f"a group of {world_size} processes: {_WHY}")
    _group = ProcessGroup(backend or "gloo")


def destroy_process_group(group=None):
    global _group
    _group = None


def _check(group=None):
    if _group is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")


def get_world_size(group=None):
    _check()
    return 1


def get_rank(group=None):
    _check()
    return 0


def get_global_rank(group, group_rank):
    return group_rank


def get_group_rank(group, global_rank):
    return global_rank


def get_process_group_ranks(group=None):
    return [0]


def get_backend(group=None):
    _check()
    return _group.name()


def get_node_local_rank(fallback_rank=None):
    return int(_os.environ.get("LOCAL_RANK", 0 if fallback_rank is None else fallback_rank))


def new_group(ranks=None, timeout=None, backend=None, pg_options=None, use_local_synchronization=False, group_desc=None, device_id=None):
    _check()
    if ranks is not None and list(ranks) != [0]:
        raise NotImplementedError(f"a group of the processes {list(ranks)}: {_WHY}")
    return ProcessGroup(backend or _group.name())


new_subgroups = new_group


def _done(async_op):
    return Work() if async_op else None


def barrier(group=None, async_op=False, device_ids=None):
    _check()
    return _done(async_op)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    _check()


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """The sum over one process: the tensor as it is."""
    _check()
    return _done(async_op)


def reduce(tensor, dst=0, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    _check()
    return _done(async_op)


def broadcast(tensor, src=0, group=None, async_op=False, group_src=None):
    _check()
    return _done(async_op)


def broadcast_object_list(object_list, src=0, group=None, device=None, group_src=None):
    _check()


def all_gather(tensor_list, tensor, group=None, async_op=False):
    _check()
    tensor_list[0].copy_(tensor)
    return _done(async_op)


def gather(tensor, gather_list=None, dst=0, group=None, async_op=False, group_dst=None):
    _check()
    if gather_list:
        gather_list[0].copy_(tensor)
    return _done(async_op)


def scatter(tensor, scatter_list=None, src=0, group=None, async_op=False, group_src=None):
    _check()
    if scatter_list:
        tensor.copy_(scatter_list[0])
    return _done(async_op)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    _check()
    output_tensor.copy_(input_tensor.view_as(output_tensor))
    return _done(async_op)


_all_gather_base = all_gather_into_tensor


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    _check()
    output.copy_(input.view_as(output))
    return _done(async_op)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    _check()
    output.copy_(input_list[0])
    return _done(async_op)


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    _check()
    output_tensor_list[0].copy_(input_tensor_list[0])
    return _done(async_op)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    _check()
    output.copy_(input)
    return _done(async_op)


def all_gather_object(object_list, obj, group=None):
    _check()
    object_list[0] = obj


def gather_object(obj, object_gather_list=None, dst=0, group=None, group_dst=None):
    _check()
    if object_gather_list:
        object_gather_list[0] = obj


def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=0, group=None, group_src=None):
    _check()
    scatter_object_output_list[0] = scatter_object_input_list[0]


def _other(name):
    def f(*args, **kwargs):
        raise NotImplementedError(f"torch.distributed.{name}: there is no other process; {_WHY}")
    f.__name__ = name
    return f


send, recv, isend, irecv, batch_isend_irecv, send_object_list, recv_object_list = (
    _other(n) for n in ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"))


def set_debug_level(level):
    """There is nothing to watch."""


def __getattr__(name):
    import importlib
    if name in ("DeviceMesh", "init_device_mesh"):
        return getattr(importlib.import_module(f"{__name__}.device_mesh"), name)
    if name in ("fsdp", "tensor", "checkpoint", "device_mesh", "distributed_c10d", "nn", "optim", "rpc", "algorithms", "elastic", "utils", "constants",
                "_functional_collectives", "_tensor", "_composable", "_shard", "launch", "run", "pipelining", "_symmetric_memory"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
