"""Python objects as bytes for other ranks: numbers, text, containers and tensors, and nothing that runs code when it is read.

Set TAPER_COMM_PICKLE=1 on every rank to send objects of any class: reading a pickle runs what the sender put there."""
import os
import pickle
import struct

_PICKLE = b"P"


def _allowed():
    return os.environ.get("TAPER_COMM_PICKLE", "") not in ("", "0")


def _put(out, o, depth):
    import taper
    if depth > 200:
        raise ValueError("object collectives: containers are nested more than 200 deep")
    if o is None:
        out.append(b"N")
    elif o is True or o is False:
        out.append(b"T" if o else b"F")
    elif type(o) is int:
        b = o.to_bytes(o.bit_length() // 8 + 1, "little", signed=True)
        out.append(b"i" + struct.pack("<I", len(b)) + b)
    elif type(o) is float:
        out.append(b"f" + struct.pack("<d", o))
    elif type(o) is complex:
        out.append(b"c" + struct.pack("<dd", o.real, o.imag))
    elif type(o) is str:
        b = o.encode("utf-8", "surrogatepass")
        out.append(b"s" + struct.pack("<Q", len(b)) + b)
    elif type(o) in (bytes, bytearray):
        out.append((b"b" if type(o) is bytes else b"a") + struct.pack("<Q", len(o)) + bytes(o))
    elif type(o) in (list, tuple, set, frozenset):
        out.append({list: b"[", tuple: b"(", set: b"{", frozenset: b"z"}[type(o)] + struct.pack("<Q", len(o)))
        for x in o:
            _put(out, x, depth + 1)
    elif isinstance(o, dict) and type(o).__module__ in ("builtins", "collections"):
        out.append(b"d" + struct.pack("<Q", len(o)))
        for k, v in o.items():
            _put(out, k, depth + 1)
            _put(out, v, depth + 1)
    elif isinstance(o, taper.dtype):
        out.append(b"y")
        _put(out, str(o).split(".")[-1], depth + 1)
    elif isinstance(o, taper.device):
        out.append(b"v")
        _put(out, str(o), depth + 1)
    elif isinstance(o, taper.Size):
        _put(out, tuple(o), depth)
    elif isinstance(o, taper.Tensor):
        t = o.detach().cpu().contiguous()
        out.append(b"t")
        _put(out, (str(t.dtype).split(".")[-1], tuple(t.shape), bool(o.requires_grad)), depth + 1)
        raw = memoryview(t.view(-1).view(taper.uint8)).tobytes() if t.numel() else b""
        _put(out, raw, depth + 1)
    else:
        raise TypeError(f"object collectives send numbers, text, bytes, lists, tuples, sets, dicts and tensors, not {type(o).__module__}."
                        f"{type(o).__qualname__}; TAPER_COMM_PICKLE=1 on every rank allows any object (reading it runs the sender's code)")


def encode(o):
    out = []
    try:
        _put(out, o, 0)
    except TypeError:
        if not _allowed():
            raise
        return _PICKLE + pickle.dumps(o)
    return b"".join(out)


class _Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if n < 0 or self.at + n > len(self.data):
            raise ValueError("object collectives: the bytes of another rank end too early")
        b = self.data[self.at:self.at + n]
        self.at += n
        return b

    def count(self):
        n = struct.unpack("<Q", self.take(8))[0]
        if n > len(self.data):
            raise ValueError("object collectives: the bytes of another rank are damaged")
        return n

    def read(self):
        import taper
        tag = self.take(1)
        if tag == b"N":
            return None
        if tag in b"TF":
            return tag == b"T"
        if tag == b"i":
            return int.from_bytes(self.take(struct.unpack("<I", self.take(4))[0]), "little", signed=True)
        if tag == b"f":
            return struct.unpack("<d", self.take(8))[0]
        if tag == b"c":
            return complex(*struct.unpack("<dd", self.take(16)))
        if tag == b"s":
            return self.take(self.count()).decode("utf-8", "surrogatepass")
        if tag in b"ba":
            b = self.take(self.count())
            return b if tag == b"b" else bytearray(b)
        if tag in b"[({z":
            items = [self.read() for _ in range(self.count())]
            return {b"[": list, b"(": tuple, b"{": set, b"z": frozenset}[tag](items)
        if tag == b"d":
            return {self.read(): self.read() for _ in range(self.count())}
        if tag == b"y":
            return getattr(taper, self.read())
        if tag == b"v":
            return taper.device(self.read())
        if tag == b"t":
            dtype, shape, grad = self.read()
            raw = self.read()
            if not raw:
                t = taper.empty(shape, dtype=getattr(taper, dtype))
            else:
                t = taper.frombuffer(bytearray(raw), dtype=getattr(taper, dtype)).reshape(shape)
            return t.requires_grad_() if grad else t
        raise ValueError("object collectives: the bytes of another rank are damaged")


def decode(data):
    if data[:1] == _PICKLE:
        if not _allowed():
            raise ValueError("another rank sent a pickle, and TAPER_COMM_PICKLE is not set on this one")
        return pickle.loads(data[1:])
    return _Reader(data).read()
