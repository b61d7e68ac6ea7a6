"""Collectives of what a function gives, with its exceptions."""
from . import distributed_c10d as _dist


def _tried(fn):
    try:
        return True, fn() if callable(fn) else fn
    except Exception as e:  # the other ranks hear of it
        return False, f"{type(e).__name__}: {e}"


def _checked(results):
    bad = [(r, text) for r, (ok, text) in results if not ok]
    if bad:
        raise RuntimeError("it failed on " + ", ".join(f"rank {r} ({text})" for r, text in bad))


def broadcast(data_or_fn, *, success=True, stage_name=None, rank=0, pg=None):
    """What data_or_fn gives on one rank, on all ranks; where it raises there, all raise."""
    g = _dist._check(pg)
    box = [None]
    if g.rank() == rank:
        box[0] = _tried(data_or_fn) if success else (False, stage_name or "it failed before")
    _dist.broadcast_object_list(box, group_src=rank, group=g)
    _checked([(rank, box[0])])
    return box[0][1]


def all_gather(data_or_fn, stage_name=None, pg=None):
    """What data_or_fn gives on each rank; where one raises, all raise."""
    g = _dist._check(pg)
    out = [None] * g.size()
    _dist.all_gather_object(out, _tried(data_or_fn), group=g)
    _checked(list(enumerate(out)))
    return [v for _, v in out]
