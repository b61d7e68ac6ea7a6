"""Checkpoints of several ranks: a safetensors file a rank and an index; any number of ranks loads them (see _files.py)."""
from ..._absent import fill as _fill
from . import _files, state_dict  # noqa: F401
from .filesystem import FileSystemReader, FileSystemWriter  # noqa: F401
from .stateful import Stateful  # noqa: F401

_fill(globals(), "checkpoints are read and written by taper.distributed.checkpoint.save and load",
      classes="StorageReader StorageWriter LoadPlanner SavePlanner DefaultLoadPlanner DefaultSavePlanner BytesStorageMetadata TensorStorageMetadata Metadata",
      functions="")


def _path(checkpoint_id, storage):
    path = checkpoint_id if checkpoint_id is not None else getattr(storage, "path", None)
    if path is None:
        raise ValueError("a checkpoint needs a folder: checkpoint_id, or a storage that has one")
    return str(path)


def save(state_dict, *, checkpoint_id=None, storage_writer=None, planner=None, process_group=None, no_dist=False, use_collectives=True):
    """Every rank calls it; parts of sharded tensors are written by their ranks, other tensors and values by rank 0."""
    _files.save(state_dict, _path(checkpoint_id, storage_writer), process_group)


def async_save(state_dict, *, checkpoint_id=None, storage_writer=None, planner=None, process_group=None, **kwargs):
    """Saves now; the future is done."""
    from ...futures import Future
    f = Future()
    save(state_dict, checkpoint_id=checkpoint_id, storage_writer=storage_writer, process_group=process_group)
    f.set_result(None)
    return f


def load(state_dict, *, checkpoint_id=None, storage_reader=None, planner=None, process_group=None, no_dist=False):
    """Fills state_dict in place, each rank the parts that it has."""
    _files.load(state_dict, _path(checkpoint_id, storage_reader), process_group)


save_state_dict, load_state_dict = save, load
