"""The bytes of protocol buffers: fields with a number and one of four kinds of contents. Files may be hostile, so every
length is compared with what is left, messages nest only so deep, and what cannot be read is an OnnxError that says where."""
import struct

DEPTH = 64  # messages inside messages; real models have graphs of branches five or six deep at most


class OnnxError(RuntimeError):
    """A file that is no ONNX model, one that is damaged, or one that needs what Taper does not know."""


class Message:
    """What was read: fields by name; those that are absent have their default."""
    __slots__ = ("schema", "fields")

    def __init__(self, schema, **fields):
        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "fields", fields)

    def __getattr__(self, name):
        try:
            return self.fields[name]
        except KeyError:
            pass
        for field in self.schema.values():
            if field.name == name:
                return [] if field.many else field.default()
        raise AttributeError(name)

    def __setattr__(self, name, value):
        self.fields[name] = value

    def has(self, name):
        return name in self.fields

    def __repr__(self):
        return f"Message({', '.join(f'{k}={v!r}' for k, v in self.fields.items())})"


class Field:
    """One row of a schema. kind: int, float, double, text, bytes, or a function that returns the schema of a message."""
    __slots__ = ("name", "kind", "many")

    def __init__(self, name, kind, many=False):
        self.name, self.kind, self.many = name, kind, many

    def default(self):
        return {"int": 0, "float": 0.0, "double": 0.0, "text": "", "bytes": b""}.get(self.kind)


_FIXED = {"float": ("<f", 4, 5), "double": ("<d", 8, 1)}


def _varint(data, at, end):
    value = shift = 0
    while True:
        if at >= end:
            raise OnnxError(f"damaged at byte {at}: a number goes on behind the end")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise OnnxError(f"damaged at byte {at}: a number of more than 64 bits")


def _signed(v):
    return v - (1 << 64) if v >> 63 else v


def _packed(kind, data, at, end):
    if kind in _FIXED:
        form, size, _ = _FIXED[kind]
        if (end - at) % size:
            raise OnnxError(f"damaged at byte {at}: numbers of {size} bytes do not fill {end - at}")
        return list(struct.unpack(f"<{(end - at) // size}{form[1]}", data[at:end]))
    out = []
    while at < end:
        v, at = _varint(data, at, end)
        out.append(_signed(v))
    return out


def _contents(field, wire, data, at, end, depth):
    """One field's value or list of values, and where the next begins."""
    kind = field.kind
    if wire == 0 and kind == "int":
        v, at = _varint(data, at, end)
        return _signed(v), at
    if kind in _FIXED and wire == _FIXED[kind][2]:
        form, size, _ = _FIXED[kind]
        if end - at < size:
            raise OnnxError(f"damaged at byte {at}: a number goes on behind the end")
        return struct.unpack_from(form, data, at)[0], at + size
    if wire != 2:
        raise OnnxError(f"damaged at byte {at}: field {field.name!r} cannot be of wire kind {wire}")
    n, at = _varint(data, at, end)
    if n > end - at:
        raise OnnxError(f"damaged at byte {at}: field {field.name!r} has {n} bytes where {end - at} are left")
    to = at + n
    if kind == "text":
        try:
            return str(data[at:to], "utf-8"), to
        except UnicodeDecodeError:
            raise OnnxError(f"damaged at byte {at}: field {field.name!r} is not UTF-8") from None
    if kind == "bytes":
        return data[at:to], to
    if isinstance(kind, str):
        if not field.many:
            raise OnnxError(f"damaged at byte {at}: field {field.name!r} is one number, not a list")
        return _packed(kind, data, at, to), to
    return read(kind(), data, at, to, depth + 1), to


def _skip(wire, data, at, end):
    if wire == 0:
        return _varint(data, at, end)[1]
    n = {1: 8, 5: 4}.get(wire)
    if wire == 2:
        n, at = _varint(data, at, end)
    if n is None:
        raise OnnxError(f"damaged at byte {at}: there is no wire kind {wire}")
    if n > end - at:
        raise OnnxError(f"damaged at byte {at}: a field of {n} bytes where {end - at} are left")
    return at + n


def read(schema, data, at=0, end=None, depth=0):
    """The message in data[at:end]. Fields that the schema does not have are passed over, as the format asks for."""
    end = len(data) if end is None else end
    if depth > DEPTH:
        raise OnnxError(f"damaged at byte {at}: messages are nested deeper than {DEPTH}")
    out = Message(schema)
    fields = out.fields
    while at < end:
        tag, at = _varint(data, at, end)
        field, wire = schema.get(tag >> 3), tag & 7
        if not tag >> 3:
            raise OnnxError(f"damaged at byte {at}: there is no field 0")
        if field is None:
            at = _skip(wire, data, at, end)
            continue
        v, at = _contents(field, wire, data, at, end, depth)
        if not field.many:
            fields[field.name] = v
        elif isinstance(v, list):
            fields.setdefault(field.name, []).extend(v)
        else:
            fields.setdefault(field.name, []).append(v)
    return out


def _number(v):
    v &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while v > 127:
        out.append(v & 127 | 128)
        v >>= 7
    out.append(v)
    return bytes(out)


def _one(number, kind, v):
    if kind == "int":
        return _number(number << 3) + _number(int(v))
    if kind in _FIXED:
        form, _, wire = _FIXED[kind]
        return _number(number << 3 | wire) + struct.pack(form, v)
    data = v.encode() if kind == "text" else bytes(v) if kind == "bytes" else write(v)
    return _number(number << 3 | 2) + _number(len(data)) + data


def write(message):
    """The bytes of a message: fields in the order of their numbers, lists of numbers in one piece."""
    out = []
    for number, field in sorted(message.schema.items()):
        v = message.fields.get(field.name)
        if v is None or field.many and not v:
            continue
        if not field.many:
            out.append(_one(number, field.kind, v))
        elif field.kind == "int":
            data = b"".join(map(_number, v))
            out.append(_number(number << 3 | 2) + _number(len(data)) + data)
        elif field.kind in _FIXED:
            data = struct.pack(f"<{len(v)}{_FIXED[field.kind][0][1]}", *v)
            out.append(_number(number << 3 | 2) + _number(len(data)) + data)
        else:
            out += [_one(number, field.kind, x) for x in v]
    return b"".join(out)
