"""safetensors files: named tensors and strings, nothing that can run."""
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


def load_file(filename, device="cpu"):
    """The tensors of a file by name."""
    tensors = _C._st_load(filename)[0]
    return tensors if str(device) == "cpu" else {k: v.to(device) for k, v in tensors.items()}


def load(data):
    """The tensors in bytes that save() returned."""
    return _C._st_load(bytes(data))[0]


def metadata(filename):
    """The strings stored beside the tensors."""
    return _C._st_load(filename)[1]
