"""Builtin operations spelled out in Python, for capture to follow where the builtin would call a user's methods."""
import _string

from . import _C
from ._dynamo import graph_break as _break  # the builtin itself then says what is wrong

_VALUES = (int, str, bytes, complex)  # compared by value; NaN is why floats are not among them


def sequence_iter(o):
    i = 0
    while True:
        try:
            v = o[i]
        except IndexError:
            return
        yield v
        i += 1


def mapping(m):
    """dict(m) of anything with keys()."""
    d = {}
    for k in m.keys():
        d[k] = m[k]
    return d


def index(l, v):
    for i, e in enumerate(l):
        if type(e) not in _VALUES and e is v or e == v:
            return i
    raise ValueError(f"{v!r} is not in list")


def count(l, v):
    n = 0
    for e in l:
        if type(e) not in _VALUES and e is v or e == v:
            n += 1
    return n


def remove(l, v):
    for i, e in enumerate(l):
        if type(e) not in _VALUES and e is v or e == v:
            del l[i]
            return
    raise ValueError("list.remove(x): x not in list")


def count_elements(mapping, iterable):
    get = mapping.get
    for e in iterable:
        mapping[e] = get(e, 0) + 1


def copy_object(o):
    cls = type(o)
    r = cls.__new__(cls)
    for k, v in o.__dict__.items():
        setattr(r, k, v)
    return r


def _text(v, conversion):
    return repr(v) if conversion == "r" else ascii(v) if conversion == "a" else str(v)


def str_format(text, args, kwargs, depth=2):
    """text.format(*args, **kwargs)."""
    return _vformat(text, args, kwargs, depth, [0])


def _vformat(text, args, kwargs, depth, auto):
    if depth < 0:
        _break()
    out = []
    for literal, field, spec, conversion in _string.formatter_parser(text):
        if literal:
            out.append(literal)
        if field is None:
            continue
        first, rest = _string.formatter_field_name_split(field)
        if first == "" or isinstance(first, int):
            if first == "":
                if auto[0] is None:
                    _break()
                first = auto[0]
                auto[0] += 1
            else:
                if auto[0]:
                    _break()
                auto[0] = None
            if first >= len(args):
                _break()
            v = args[first]
        else:
            v = kwargs[first]
        for attribute, name in rest:
            v = getattr(v, name) if attribute else v[name]
        if conversion:
            if conversion not in ("r", "s", "a"):
                _break()
            v = _text(v, conversion)
        if spec:
            spec = _vformat(spec, args, kwargs, depth - 1, auto)
        out.append(f"{v:{spec}}")
    return "".join(out)


def percent(text, values):
    """text % values; each place is formatted on its own, after str() or repr() where the place asks for them."""
    out = []
    single = not isinstance(values, tuple)
    i, used, n = 0, 0, len(text)
    while i < n:
        j = text.find("%", i)
        if j < 0:
            out.append(text[i:])
            break
        out.append(text[i:j])
        i = j + 1
        key = None
        if text[i:i + 1] == "(":
            depth, k = 1, i + 1
            while k < n and depth:
                depth += (text[k] == "(") - (text[k] == ")")
                k += 1
            if depth:
                _break()
            if isinstance(values, (tuple, str)) or not hasattr(type(values), "__getitem__"):
                _break()
            key = text[i + 1:k - 1]
            i = k
        flags = i
        while i < n and text[i] in "#0- +123456789.*hlL":
            if text[i] == "*":
                _break()
            i += 1
        if i == n:
            _break()
        kind = text[i]
        i += 1
        if kind == "%":
            out.append("%")
            continue
        if key is not None:
            v = values[key]
        elif single:
            if used:
                _break()
            v = values
        else:
            if used >= len(values):
                _break()
            v = values[used]
        used += key is None
        place = text[flags:i - 1]
        if kind in "sra":
            out.append(("%" + place + "s") % (_text(v, kind),))
        elif not isinstance(v, (int, float, str, bytes)):
            _break()
        else:
            out.append(("%" + place + kind) % (v,))
    if single:
        if not used and "%(" not in text and not hasattr(type(values), "__getitem__"):
            _break()
    elif used < len(values) and "%(" not in text:
        _break()
    return "".join(out)


class FunctionCtx:
    """What autograd.Function.forward is given where no gradient will be asked for."""

    def __init__(self, n):
        self.needs_input_grad, self.saved_tensors = (False,) * n, ()

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def mark_dirty(self, *tensors):
        pass

    mark_non_differentiable = mark_dirty

    def set_materialize_grads(self, value):
        pass


def function_apply(cls, ctx_class, name, args, setup):
    ctx, was = FunctionCtx(len(args)), _C._set_grad_enabled(False)
    try:
        if setup:
            out = cls.forward(*args)
            cls.setup_context(ctx, args, out)
        else:
            out = cls.forward(ctx, *args)
    finally:
        _C._set_grad_enabled(was)
    return out
