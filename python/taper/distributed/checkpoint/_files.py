"""A checkpoint is a folder: a safetensors file a rank with its parts, and an index that says which part of which tensor is where.

Loading asks for regions, not for files: what four ranks saved two or one may load, each reads the parts that it needs. The
index is written last, when every file is there; without it there is no checkpoint."""
import base64
import json
import os

import taper

from ... import safetensors
from .. import _objects
from .. import distributed_c10d as c10d

INDEX = "checkpoint.index.json"
VERSION = 1


def _flatten(state, prefix=""):
    """{path: value} of nested dicts and lists."""
    if isinstance(state, dict) and (state or not prefix):
        for k, v in state.items():
            yield from _flatten(v, f"{prefix}.{k}" if prefix else str(k))
    elif isinstance(state, (list, tuple)) and state and any(isinstance(v, (taper.Tensor, dict, list)) for v in state):
        for i, v in enumerate(state):
            yield from _flatten(v, f"{prefix}.{i}")
    else:
        yield prefix, state


def _group(process_group):
    return process_group if process_group is not None else c10d._get_default_group() if c10d.is_initialized() else None


def _part(t):
    """(whole shape, first row) of a tensor: of a sharded one its own, else all of it."""
    info = getattr(t, "_shard", None)
    return (info.shape, info.start) if info is not None else (tuple(t.shape), 0)


def _plain(t):
    return taper.Tensor.detach(t).cpu().contiguous()


def _name(dtype):
    return str(dtype).split(".")[-1]


def save(state_dict, path, process_group=None):
    g = _group(process_group)
    rank = g.rank() if g is not None else 0
    os.makedirs(path, exist_ok=True)
    flat = dict(_flatten({k: v.state_dict() if hasattr(v, "state_dict") and not isinstance(v, (dict, taper.Tensor)) else v for k, v in state_dict.items()}))
    file = f"rank{rank:05d}.safetensors"
    mine, tensors, objects = {}, {}, {}
    for key, v in flat.items():
        if isinstance(v, taper.Tensor):
            shape, start = _part(v)
            if rank and not hasattr(v, "_shard"):
                continue  # the same on every rank: rank 0 writes it
            if v.numel() or not hasattr(v, "_shard"):
                mine[key] = _plain(v)
            tensors[key] = {"dtype": _name(v.dtype), "shape": list(shape), "start": start, "rows": v.shape[0] if v.ndim else -1}
        elif rank == 0:
            objects[key] = base64.b64encode(_objects.encode(v)).decode()
    safetensors.save_file(mine, os.path.join(path, file))
    everything = [None] * (g.size() if g is not None else 1)
    if g is not None:
        c10d.all_gather_object(everything, (file, tensors), g)  # and every file is there
    else:
        everything[0] = file, tensors
    if rank == 0:
        index = {}
        for name, parts in everything:
            for key, t in parts.items():
                e = index.setdefault(key, {"dtype": t["dtype"], "shape": t["shape"], "parts": []})
                if t["rows"]:
                    e["parts"].append({"file": name, "start": t["start"], "rows": t["rows"]})
        text = json.dumps({"version": VERSION, "tensors": index, "objects": objects}, indent=1)
        tmp = os.path.join(path, INDEX + ".new")
        with open(tmp, "w") as f:
            f.write(text)
        os.replace(tmp, os.path.join(path, INDEX))
    if g is not None:
        c10d.barrier(g)


class Reader:
    def __init__(self, path):
        self.path = path
        try:
            with open(os.path.join(path, INDEX)) as f:
                self.index = json.load(f)
        except FileNotFoundError:
            raise FileNotFoundError(f"{path!r} holds no checkpoint: there is no {INDEX}") from None
        if self.index.get("version") != VERSION:
            raise ValueError(f"{path!r}: a checkpoint of version {self.index.get('version')!r}")
        self._open = {}

    def _file(self, name):
        if os.path.basename(name) != name:
            raise ValueError(f"the checkpoint names the file {name!r}; its files lie beside its index")
        if name not in self._open:
            self._open[name] = safetensors.load_file(os.path.join(self.path, name))
        return self._open[name]

    def read_into(self, key, t):
        """The rows that t is, from whichever parts hold them."""
        e = self.index["tensors"].get(key)
        if e is None:
            raise RuntimeError(f"Missing key in checkpoint state_dict: {key}.")
        shape, start = _part(t)
        if tuple(e["shape"]) != shape:
            raise ValueError(f"Size mismatch between saved {tuple(e['shape'])} and current: {shape} for {key}")
        to, left = taper.Tensor.detach(t), t.shape[0] if t.ndim else 1
        with taper.no_grad():
            for p in e["parts"]:
                if not shape or p["rows"] < 0:
                    to.copy_(self._file(p["file"])[key])
                    left = 0
                    break
                a, b = max(start, p["start"]), min(start + t.shape[0], p["start"] + p["rows"])
                if a < b:
                    to[a - start:b - start].copy_(self._file(p["file"])[key][a - p["start"]:b - p["start"]])
                    left -= b - a
        if left and t.numel():
            raise ValueError(f"{left} rows of {key} are in no file of the checkpoint")

    def whole(self, key):
        e = self.index["tensors"][key]
        t = taper.empty(e["shape"], dtype=getattr(taper, e["dtype"]))
        self.read_into(key, t)
        return t

    def object(self, key):
        return _objects.decode(base64.b64decode(self.index["objects"][key]))


def load(state_dict, path, process_group=None):
    """Fills the tensors of state_dict in place and replaces its other values."""
    reader = Reader(path)

    def walk(v, prefix):
        if isinstance(v, taper.Tensor):
            reader.read_into(prefix, v)
            return v
        if isinstance(v, dict) and (v or not prefix):
            for k in v:
                v[k] = walk(v[k], f"{prefix}.{k}" if prefix else str(k))
            return v
        if isinstance(v, list) and v and any(isinstance(x, (taper.Tensor, dict, list)) for x in v):
            v[:] = [walk(x, f"{prefix}.{i}") for i, x in enumerate(v)]
            return v
        if prefix not in reader.index["objects"]:
            raise RuntimeError(f"Missing key in checkpoint state_dict: {prefix}.")
        return reader.object(prefix)
    for k, v in state_dict.items():
        if hasattr(v, "state_dict") and hasattr(v, "load_state_dict"):
            own = v.state_dict()
            walk(own, k)
            v.load_state_dict(own)
        else:
            state_dict[k] = walk(v, k)
    if _group(process_group) is not None:
        c10d.barrier(_group(process_group))
