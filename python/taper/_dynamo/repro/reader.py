"""What load_args of a saved failure talks to."""
import hashlib
import os
import sys

from ... import _C, empty, no_grad, randn, tensor, zeros


class NopInputReader:
    """Counts the storages."""

    def __init__(self):
        self.total = 0

    def storage(self, storage_hash, nbytes, *, device=None, dtype_hint=None, data=None, fill=None):
        self.total += 1

    def tensor(self, *args, **kwargs):
        pass

    def symint(self, *args, **kwargs):
        pass

    def const(self, *args, **kwargs):
        pass


class InputReader:
    """Makes the inputs: from bytes in the script, from the bundle, or, with a warning, from random numbers."""

    def __init__(self, save_dir=None):
        self.save_dir, self.args, self._file, self._warned = save_dir, [], None, set()

    def _saved(self, storage_hash):
        if self._file is None:
            self._file = {}
            path = os.path.join(self.save_dir, "inputs.safetensors") if self.save_dir else None
            if path and os.path.exists(path):
                from ... import safetensors
                self._file = safetensors.load_file(path)
        return self._file.get(storage_hash)

    def _warn(self, text):
        if text not in self._warned:
            self._warned.add(text)
            print(f"taper: {text}", file=sys.stderr)

    def storage(self, storage_hash, nbytes, *, device=None, dtype_hint=None, data=None, fill=None):
        dtype = dtype_hint or _C.float32
        size = empty(0, dtype=dtype).element_size()
        if fill is not None:
            return _C.full((nbytes // size,), fill, dtype=dtype).view(_C.uint8) if hasattr(_C, "full") else (zeros(nbytes // size, dtype=dtype) + fill).to(dtype).view(_C.uint8)
        if data is not None:
            raw = bytes.fromhex(data)
            if storage_hash and hashlib.sha1(raw).hexdigest() != storage_hash:
                self._warn(f"the bytes of {storage_hash[:12]} in this script were changed")
            return tensor(list(raw), dtype=_C.uint8)
        found = self._saved(storage_hash) if storage_hash else None
        if found is not None:
            return found
        if self.save_dir is None and storage_hash:
            self._warn("no save_dir specified, will generate random data")
        else:
            self._warn(f"could not load {storage_hash}, generating random data instead")
        if dtype.is_floating_point:
            return randn(nbytes // size, dtype=_C.float32).to(dtype).view(_C.uint8)
        return zeros(nbytes, dtype=_C.uint8)

    def tensor(self, storage, shape, stride=None, *, storage_offset=None, dtype=None, requires_grad=False, is_leaf=None, **metadata):
        dtype = dtype or _C.float32
        if stride is None:
            stride, n = [], 1
            for s in reversed(shape):
                stride.insert(0, n)
                n *= max(s, 1)
        size = empty(0, dtype=dtype).element_size()
        whole = storage[:storage.numel() // size * size].view(dtype)
        with no_grad():
            t = whole.as_strided(tuple(shape), tuple(stride), storage_offset or 0).detach()
        if requires_grad and not is_leaf:  # a value that was computed: give it a past
            t = t.requires_grad_().clone()
        else:
            t.requires_grad_(requires_grad)
        self.args.append(t)
        return t

    def symint(self, value):
        self.args.append(value)
        return value

    def const(self, name):
        self.args.append(None)
