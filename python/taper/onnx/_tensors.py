"""Tensors of ONNX files as Taper's tensors and back. Sizes are compared with the bytes that are there before any memory is
taken, and data outside the file is looked for in the model's own folder only."""
import math
import os
import struct

from ._proto import CODES, OTHER_TYPES, TENSOR, TYPES
from ._wire import Message, OnnxError


def dtype_of(code, what="a tensor"):
    """The dtype of an element type's code."""
    import taper
    name = TYPES[code][0] if code in TYPES else None
    found = getattr(taper, name, None) if name else None
    if found is None:
        raise OnnxError(f"{what} has elements of type {name or OTHER_TYPES.get(code, code)}, which Taper does not have")
    return found


def code_of(dtype, what="a tensor"):
    """The code of a dtype."""
    name = str(dtype).rpartition(".")[2]
    if name not in CODES:
        raise OnnxError(f"{what} has elements of type {name}, which ONNX does not have")
    return CODES[name]


def _external(proto, folder, name):
    """The bytes of a tensor that lie in another file of the model's folder."""
    facts = {e.key: e.value for e in proto.external_data}
    place = facts.get("location", "")
    if folder is None:
        raise OnnxError(f"the data of {name!r} lies in the file {place!r}: load the model by its path")
    path = os.path.realpath(os.path.join(folder, place))
    if not place or os.path.isabs(place) or os.path.commonpath([path, os.path.realpath(folder)]) != os.path.realpath(folder):
        raise OnnxError(f"the data of {name!r} is said to lie in {place!r}, which is not in the model's folder")
    try:
        offset = int(facts.get("offset", "0") or 0)
        length = int(facts["length"]) if facts.get("length") else None
    except ValueError:
        raise OnnxError(f"the place of the data of {name!r} is no number") from None
    try:
        size = os.path.getsize(path)
        if offset < 0 or length is not None and length < 0 or offset + (length or 0) > size:
            raise OnnxError(f"the data of {name!r} is said to end behind the end of {place!r}")
        with open(path, "rb") as f:
            f.seek(offset)
            return f.read(size - offset if length is None else length)
    except OSError as e:
        raise OnnxError(f"the data of {name!r} cannot be read from {place!r}: {e.strerror}") from None


def _listed(proto, code, size, count, name):
    """The bytes of elements that are listed as numbers."""
    dtype, _, field = TYPES[code]
    values = getattr(proto, field)
    per = 2 if dtype.startswith("complex") else 1
    if len(values) != count * per:
        raise OnnxError(f"tensor {name!r} needs {count} elements and lists {len(values) // per}")
    if field in ("float_data", "double_data"):
        return struct.pack(f"<{len(values)}{'f' if field == 'float_data' else 'd'}", *values)
    mask = (1 << 8 * size) - 1
    return b"".join((v & mask).to_bytes(size, "little") for v in values)


def load(proto, folder=None):
    """The tensor of a TensorProto."""
    import taper
    name = proto.name or "a constant"
    shape = [int(d) for d in proto.dims]
    if proto.data_type not in TYPES or any(d < 0 for d in shape) or len(shape) > 16:
        dtype_of(proto.data_type, f"tensor {name!r}")
        raise OnnxError(f"tensor {name!r} has the impossible shape {shape}")
    dtype = dtype_of(proto.data_type, f"tensor {name!r}")
    size, count = TYPES[proto.data_type][1], math.prod(shape)
    if proto.data_location == 1:
        data = _external(proto, folder, name)
    elif proto.has("raw_data"):
        data = proto.raw_data
    else:
        data = _listed(proto, proto.data_type, size, count, name)
    if len(data) != count * size:
        raise OnnxError(f"tensor {name!r} of shape {shape} needs {count * size} bytes and has {len(data)}")
    if not count:
        return taper.empty(shape, dtype=dtype)
    return taper.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


def store(tensor, name):
    """The TensorProto of a tensor."""
    tensor = tensor.detach().cpu().contiguous()
    return Message(TENSOR, dims=list(tensor.shape), data_type=code_of(tensor.dtype, f"tensor {name!r}"), name=name,
                   raw_data=_bytes(tensor))


def _bytes(tensor):
    if not tensor.numel():
        return b""
    import taper
    flat = tensor.reshape(-1)
    return bytes(memoryview(flat.view(taper.uint8) if flat.dtype != taper.bool else flat.to(taper.uint8)))
