"""The group of this process."""
from . import *  # noqa: F401,F403
from . import (Backend, GroupMember, ProcessGroup, ReduceOp, Store, Work, _check, _group, all_gather, all_reduce, barrier, broadcast, get_rank,  # noqa: F401
               get_world_size, init_process_group, is_initialized)


def _get_default_group():
    from taper import distributed as d
    d._check()
    return d._group


def _get_process_group_name(pg):
    return "0"


def _find_pg_by_ranks_and_tag(tag, ranks):
    return _get_default_group()
