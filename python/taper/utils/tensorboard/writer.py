"""Event files for TensorBoard, written without it: records of a length, its checksum, an Event in protocol buffer form, and that one's checksum."""
import os as _os
import socket as _socket
import struct as _struct
import threading as _threading
import time as _time
import zlib as _zlib

__all__ = ["SummaryWriter", "FileWriter"]


# --- checksums: CRC-32C, rotated and shifted as the format wants it ---
def _table():
    out = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
        out.append(n)
    return out


_CRC = _table()


def _masked(data):
    c = 0xffffffff
    for b in data:
        c = _CRC[(c ^ b) & 0xff] ^ c >> 8
    c ^= 0xffffffff
    return ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff


# --- protocol buffers: a field is its number and type, then the value ---
def _varint(n):
    out = bytearray()
    n &= (1 << 64) - 1
    while n > 0x7f:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    return bytes(out) + bytes([n])


def _bytes(field, b):
    b = b.encode() if isinstance(b, str) else b
    return _varint(field << 3 | 2) + _varint(len(b)) + b


def _int(field, n):
    return _varint(field << 3) + _varint(n)


def _float(field, x):
    return _varint(field << 3 | 5) + _struct.pack("<f", x)


def _double(field, x):
    return _varint(field << 3 | 1) + _struct.pack("<d", x)


def _doubles(field, xs):
    return _bytes(field, _struct.pack(f"<{len(xs)}d", *xs))


def _number(x):
    return float(x.item() if hasattr(x, "item") else x)


def _values(x):
    """A flat list of numbers."""
    if hasattr(x, "detach"):
        x = x.detach().cpu().double().reshape(-1)
    return [float(v) for v in (x.reshape(-1).tolist() if hasattr(x, "reshape") else x)]


def _edges():
    """Edges of bins that widen by a tenth, for values of any size."""
    up, v = [], 1e-12
    while v < 1e20:
        up.append(v)
        v *= 1.1
    return [-v for v in reversed(up)] + [0.0] + up


_BINS = {"tensorflow": _edges()}


def _histogram(values, bins, max_bins=None):
    values = [v for v in values if v - v == 0]
    if not values:
        raise ValueError("The input has no element.")
    if isinstance(bins, str):
        if bins not in ("tensorflow", "auto", "fd", "doane", "scott", "stone", "rice", "sturges", "sqrt"):
            raise ValueError(f"add_histogram: bins={bins!r} is not known")
        limits = _BINS["tensorflow"] if bins == "tensorflow" else None
        bins = max(int(len(values) ** 0.5), 1) if limits is None else None
    else:
        limits, bins = (None, int(bins)) if isinstance(bins, int) else ([float(b) for b in bins], None)
    if limits is None:
        low, high = min(values), max(values)
        step = (high - low) / bins or 1.0
        limits = [low + step * i for i in range(1, bins + 1)]
        limits[-1] = max(limits[-1], high)
    import bisect
    counts = [0] * (len(limits) + 1)
    for v in values:
        counts[bisect.bisect_left(limits, v)] += 1
    if counts[-1]:
        limits = limits + [max(values)]
    else:
        counts.pop()
    used = [i for i, c in enumerate(counts) if c]
    first, last = max(used[0] - 1, 0), used[-1] + 1
    return (_double(1, min(values)) + _double(2, max(values)) + _double(3, len(values)) + _double(4, sum(values)) + _double(5, sum(v * v for v in values))
            + _doubles(6, limits[first:last]) + _doubles(7, counts[first:last]))


def _png(rows, width, channels):
    """PNG of rows of bytes."""
    def chunk(kind, data):
        return _struct.pack(">I", len(data)) + kind + data + _struct.pack(">I", _zlib.crc32(kind + data))
    head = _struct.pack(">IIBBBBB", width, len(rows), 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", _zlib.compress(b"".join(b"\0" + r for r in rows))) + chunk(b"IEND", b"")


def _image(x, layout):
    import taper
    t = x if isinstance(x, taper.Tensor) else taper.as_tensor(x)
    if t.dim() != len(layout) or sorted(layout.upper()) not in (["H", "W"], ["C", "H", "W"]):
        raise ValueError(f"add_image: an image of {t.dim()} dimensions does not fit dataformats={layout!r}")
    order = [layout.upper().index(c) for c in "HWC" if c in layout.upper()]
    t = t.detach().cpu().permute(*order)
    t = t.unsqueeze(-1) if t.dim() == 2 else t
    if t.shape[2] not in (1, 3, 4):
        raise ValueError(f"add_image: an image has 1, 3 or 4 channels, not {t.shape[2]}")
    if t.is_floating_point():
        t = (t.float() * 255).clamp(0, 255)
    t = t.to(taper.uint8).contiguous()
    h, w, c = t.shape
    raw = bytes(t.untyped_storage())[:h * w * c]
    return _int(1, h) + _int(2, w) + _int(3, c) + _bytes(4, _png([raw[i * w * c:(i + 1) * w * c] for i in range(h)], w, c))


def _plugin(name, content=b""):
    return _bytes(9, _bytes(1, _bytes(1, name) + (_bytes(2, content) if content else b"")))


# --- graphs: a GraphDef has a NodeDef for each operator, weight and input; "/" in names makes boxes ---
def _attribute(key, value):
    return _bytes(5, _bytes(1, key) + _bytes(2, value))


def _shape(size):
    return _bytes(7, b"".join(_bytes(2, _int(1, int(n))) for n in size))


def _tensors(x):
    if isinstance(x, (list, tuple)):
        return [n for e in x for n in _tensors(e)]
    return [x] if hasattr(x, "op") and hasattr(x, "meta") else []


def _graph(model, args):
    """The exported model as a GraphDef: operators stand in the box of the module whose weights they use."""
    from taper.export import export
    program = export(model, args)
    top, weights = type(model).__name__, {**program.graph_signature.inputs_to_parameters, **program.graph_signature.inputs_to_buffers}
    names, out = {}, b""
    for node in program.graph.nodes:
        sources = _tensors(node.args) + _tensors(list(node.kwargs.values()))
        if node.op == "placeholder":
            name = f"{top}/{weights[node.name].replace('.', '/')}" if node.name in weights else f"input/{node.name}"
        else:
            owner = next((weights[n.name].split(".")[:-1] for n in sources if n.name in weights), [])
            name = "output/" + node.name if node.op == "output" else "/".join([top, *owner, node.name])
        names[node.name] = name
        kind = "Weight" if node.name in weights else "Input" if node.op == "placeholder" else "Output" if node.op == "output" else str(node.target)
        value = node.meta.get("val")
        size = value.shape if value is not None else program.state_dict[weights[node.name]].shape if node.name in weights else None
        said = _attribute("_output_shapes", _bytes(1, _shape(size))) if size is not None and all(isinstance(n, int) for n in size) else b""
        out += _bytes(1, _bytes(1, name) + _bytes(2, kind) + b"".join(_bytes(3, names[n.name]) for n in sources) + said)
    return program, out + _bytes(4, _int(1, 22))


class FileWriter:
    """One event file."""
    _count = 0

    def __init__(self, log_dir, max_queue=10, flush_secs=120, filename_suffix=""):
        _os.makedirs(log_dir, exist_ok=True)
        self._dir, self._lock = str(log_dir), _threading.Lock()
        FileWriter._count += 1
        name = f"events.out.tfevents.{int(_time.time())}.{_socket.gethostname()}.{_os.getpid()}.{FileWriter._count - 1}{filename_suffix}"
        self._file = open(_os.path.join(self._dir, name), "wb")
        self._record(_double(1, _time.time()) + _bytes(3, "brain.Event:2"))
        self.flush()

    def get_logdir(self):
        return self._dir

    def _record(self, data):
        head = _struct.pack("<Q", len(data))
        with self._lock:
            self._file.write(head + _struct.pack("<I", _masked(head)) + data + _struct.pack("<I", _masked(data)))

    def event(self, field, content, step=None, walltime=None):
        if self._file.closed:
            raise ValueError("the SummaryWriter is closed")
        self._record(_double(1, _time.time() if walltime is None else walltime) + _int(2, int(step or 0)) + _bytes(field, content))

    def summary(self, value, step=None, walltime=None):
        self.event(5, _bytes(1, value), step, walltime)

    def flush(self):
        if not self._file.closed:
            self._file.flush()

    def close(self):
        self._file.close()


class SummaryWriter:
    """Scalars, histograms, images, texts and graphs for TensorBoard:

        writer = SummaryWriter("runs/first")
        writer.add_scalar("loss", loss, step)
        writer.close()"""

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix=""):
        if not log_dir:
            log_dir = _os.path.join("runs", _time.strftime("%b%d_%H-%M-%S") + "_" + _socket.gethostname() + comment)
        self.log_dir, self._suffix = str(log_dir), filename_suffix
        self.file_writer, self.all_writers = FileWriter(self.log_dir, filename_suffix=filename_suffix), {}

    def get_logdir(self):
        return self.log_dir

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False):
        self.file_writer.summary(_bytes(1, tag) + _float(2, _number(scalar_value)), global_step, walltime)

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Several curves in one picture: each is a run of its own, in a folder below."""
        for tag, value in tag_scalar_dict.items():
            folder = _os.path.join(self.log_dir, main_tag.replace("/", "_") + "_" + tag)
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, filename_suffix=self._suffix)
            self.all_writers[folder].summary(_bytes(1, main_tag) + _float(2, _number(value)), global_step, walltime)

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None, max_bins=None):
        self.file_writer.summary(_bytes(1, tag) + _bytes(5, _histogram(_values(values), bins)), global_step, walltime)

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        self.file_writer.summary(_bytes(1, tag) + _bytes(4, _image(img_tensor, dataformats)), global_step, walltime)

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        """Several images, side by side as one."""
        import taper
        t = img_tensor if isinstance(img_tensor, taper.Tensor) else taper.as_tensor(img_tensor)
        order = [dataformats.upper().index(c) for c in "NCHW"]
        self.add_image(tag, taper.cat(list(t.permute(*order)), 2), global_step, walltime)

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        tensor = _int(1, 7) + _bytes(2, _bytes(2, _int(1, 1))) + _bytes(8, text_string)  # type string, shape [1]
        self.file_writer.summary(_bytes(1, tag + "/text_summary") + _bytes(8, tensor) + _plugin("text"), global_step, walltime)

    def add_graph(self, model, input_to_model=None, verbose=False, use_strict_trace=True):
        """The operators of a model called with input_to_model (a tensor, or a tuple of arguments), as boxes of its modules."""
        if input_to_model is None:
            raise ValueError("add_graph(model, input_to_model): the graph is recorded from a call, so an example of the input is needed")
        program, graph = _graph(model, tuple(input_to_model) if isinstance(input_to_model, (list, tuple)) else (input_to_model,))
        if verbose:
            print(program.graph)
        self.file_writer.event(4, graph)

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None, global_step=None):
        """The settings as a text, the results as scalars."""
        self.add_text("hparams", "\n".join(f"- {k}: {v}" for k, v in hparam_dict.items()), global_step)
        for k, v in metric_dict.items():
            self.add_scalar(k, v, global_step)

    def flush(self):
        for w in [self.file_writer, *self.all_writers.values()]:
            w.flush()

    def close(self):
        for w in [self.file_writer, *self.all_writers.values()]:
            w.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
