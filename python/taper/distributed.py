"""A process group of one process: enough for programs written for several to run in one.

There is no communication between processes; asking for more than one says so.
"""
import os as _os

_group = None


def is_available():
    return True


def is_initialized():
    return _group is not None


def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, **kwargs):
    """Makes the group; world_size and rank come from WORLD_SIZE and RANK when they are not given."""
    global _group
    if _group is not None:
        raise ValueError("trying to initialize the default process group twice!")
    world_size = int(_os.environ.get("WORLD_SIZE", 1)) if world_size < 0 else world_size
    rank = int(_os.environ.get("RANK", 0)) if rank < 0 else rank
    if world_size != 1 or rank != 0:
        raise NotImplementedError(f"a group of {world_size} processes: Taper runs distributed programs in one process only")
    _group = (backend or "gloo", world_size, rank)


def destroy_process_group(group=None):
    global _group
    _group = None


def _check():
    if _group is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")


def get_world_size(group=None):
    _check()
    return _group[1]


def get_rank(group=None):
    _check()
    return _group[2]


def get_backend(group=None):
    _check()
    return _group[0]


def barrier(group=None, async_op=False):
    _check()


def all_reduce(tensor, op=None, group=None, async_op=False):
    """The sum over one process: the tensor as it is."""
    _check()


def broadcast(tensor, src=0, group=None, async_op=False):
    _check()
