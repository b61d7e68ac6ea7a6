"""safetensors files: named tensors and strings, nothing that can run. Large models are several files and an index of which tensor is in which."""
import json
import os

from . import _C


def _save(path, tensors, metadata):
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, Tensor] but received {type(tensors)}")
    names = list(tensors)
    meta = [s for kv in (metadata or {}).items() for s in kv]
    return _C._st_save(path, names, [tensors[n] for n in names], meta)


def save_file(tensors, filename, metadata=None):
    """Writes a dict of tensors; the file appears whole or not at all."""
    _save(filename, tensors, metadata)


def save(tensors, metadata=None):
    """The bytes that save_file would write."""
    return _save(None, tensors, metadata)


def _index(path):
    """{file: names in it} of an index."""
    with open(path, encoding="utf-8") as f:
        try:
            table = json.load(f)["weight_map"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ValueError(f"{path!r} is no index of a sharded model: it has no weight_map") from None
    files = {}
    if not isinstance(table, dict):
        raise ValueError(f"{path!r} is no index of a sharded model: its weight_map is no object")
    for name, file in table.items():
        if not isinstance(file, str) or not file or os.path.basename(file) != file or file in (".", ".."):
            raise ValueError(f"{path!r} names the file {str(file)[:80]!r}; the files of a model lie beside its index")
        files.setdefault(file, []).append(name)
    return files


def _load_sharded(path):
    path, tensors = os.fspath(path), {}
    for file, names in _index(path).items():
        part = _C._st_load(os.path.join(os.path.dirname(path), file))[0]
        for name in names:
            if name not in part:
                raise ValueError(f"{path!r} says that {name[:80]!r} is in {file!r}, but it is not")
            tensors[name] = part[name]
    return tensors


def _size(text):
    units = {"KB": 10 ** 3, "MB": 10 ** 6, "GB": 10 ** 9, "KIB": 2 ** 10, "MIB": 2 ** 20, "GIB": 2 ** 30}
    if isinstance(text, str):
        for unit, n in sorted(units.items(), key=lambda u: -len(u[0])):
            if text.upper().endswith(unit):
                return int(float(text[:-len(unit)]) * n)
        raise ValueError(f"max_shard_size {text!r} is no number of bytes, such as '5GB'")
    return int(text)


def save_sharded(tensors, directory, max_shard_size="5GB", metadata=None, name="model"):
    """Writes NAME-00001-of-00003.safetensors, ... and NAME.safetensors.index.json (one file and no index where all fits). Returns the path to load."""
    limit, shards, at = _size(max_shard_size), [{}], 0
    for key, t in tensors.items():
        n = t.numel() * t.element_size()
        if shards[-1] and at + n > limit:
            shards.append({})
            at = 0
        shards[-1][key] = t
        at += n
    os.makedirs(directory, exist_ok=True)
    if len(shards) == 1:
        path = os.path.join(directory, name + ".safetensors")
        save_file(shards[0], path, metadata)
        return path
    table = {}
    for i, shard in enumerate(shards):
        file = f"{name}-{i + 1:05}-of-{len(shards):05}.safetensors"
        save_file(shard, os.path.join(directory, file), metadata)
        table.update(dict.fromkeys(shard, file))
    path = os.path.join(directory, name + ".safetensors.index.json")
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    with open(path + ".part", "w", encoding="utf-8") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": dict(sorted(table.items()))}, f, indent=2)
    os.replace(path + ".part", path)
    return path


def load_file(filename, device="cpu"):
    """The tensors of a file by name; of several where it is an index (model.safetensors.index.json)."""
    tensors = _load_sharded(filename) if os.fspath(filename).endswith(".index.json") else _C._st_load(filename)[0]
    return tensors if str(device) == "cpu" else {k: v.to(device) for k, v in tensors.items()}


def load(data):
    """The tensors in bytes that save() returned."""
    return _C._st_load(bytes(data))[0]


def metadata(filename):
    """The strings stored beside the tensors."""
    return _C._st_load(filename)[1]
