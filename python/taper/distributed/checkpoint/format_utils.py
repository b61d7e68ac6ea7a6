"""From and to files of one process."""
import taper

from . import _files


def dcp_to_torch_save(dcp_checkpoint_dir, torch_save_path):
    """Whole tensors of a checkpoint, by their paths, in one file of taper.save()."""
    r = _files.Reader(str(dcp_checkpoint_dir))
    out = {}
    for key, v in [(k, r.whole(k)) for k in r.index["tensors"]] + [(k, r.object(k)) for k in r.index["objects"]]:
        out[key] = v
    taper.save(out, torch_save_path)


def torch_save_to_dcp(torch_save_path, dcp_checkpoint_dir):
    _files.save(taper.load(torch_save_path), str(dcp_checkpoint_dir))
