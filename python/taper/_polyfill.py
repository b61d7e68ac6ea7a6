"""Builtin operations spelled out in Python, for capture to follow where the builtin would call a user's methods."""
import collections as _collections
import copy as _copy
import copyreg as _copyreg
import enum as _enum
import sys as _sys
import types as _types
import weakref as _weakref

import _string

from . import _C
from ._dynamo import graph_break as _break  # the builtin itself then says what is wrong

_zeros_like = _C._op_functions[""]["zeros_like"]
_VALUES = (int, str, bytes, complex)  # compared by value; NaN is why floats are not among them


def plain_call(func, types, args=(), kwargs=None):
    _C._overrides_off(False, 1)
    try:
        return func(*args, **(kwargs or {}))
    finally:
        _C._overrides_off(False, -1)


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


_SAME = (type(None), int, float, bool, complex, bytes, str, type, range, property, type(Ellipsis), type(NotImplemented), _types.CodeType,
         _types.FunctionType, _types.BuiltinFunctionType, _weakref.ref, _C.dtype, _C.device, _C.layout,
         _C.memory_format)  # a deep copy of these is the object itself


def deepcopy(x, memo=None):
    """copy.deepcopy(x, memo)."""
    cls = type(x)
    if cls in _SAME or isinstance(x, (type, _enum.Enum)):
        return x
    if memo is None:
        memo = {}
    d = id(x)
    if d in memo:
        return memo[d]
    if cls is list:
        y = memo[d] = []
        for v in x:
            y.append(_copy.deepcopy(v, memo))
    elif cls is dict:
        y = memo[d] = {}
        for k, v in x.items():
            y[_copy.deepcopy(k, memo)] = _copy.deepcopy(v, memo)
    elif cls is tuple:
        y = _deep_tuple(x, memo)
        if d in memo:  # it holds itself
            return memo[d]
    elif cls is _types.MethodType:
        y = cls(x.__func__, _copy.deepcopy(x.__self__, memo))
    elif hasattr(x, "__deepcopy__"):
        y = x.__deepcopy__(memo)
    elif cls in _copyreg.dispatch_table:
        y = _rebuilt(x, _copyreg.dispatch_table[cls](x), memo)
    else:
        y = _rebuilt(x, _reduced(x, cls), memo)
    if y is not x:
        memo[d] = y
        memo.setdefault(id(memo), []).append(x)
    return y


def _deep_tuple(x, memo):
    out, same = [], True
    for v in x:
        c = _copy.deepcopy(v, memo)
        if type(v) not in _SAME and c is not v:
            same = False
        out.append(c)
    return x if same else tuple(out)


def _reduced(x, cls):
    """x.__reduce_ex__(4), which objects have from their class or from object."""
    if cls.__reduce_ex__ is not object.__reduce_ex__:
        return x.__reduce_ex__(4)
    if cls.__reduce__ is not object.__reduce__:
        if cls is _collections.OrderedDict:
            return cls, (), None, None, iter(x.items())
        if cls is _collections.defaultdict:
            return cls, (x.default_factory,), None, None, iter(x.items())
        if cls is _collections.deque:
            return cls, ((), x.maxlen), None, iter(x)
        if cls is set or cls is frozenset:
            return cls, (list(x),)
        return x.__reduce__()
    if not _C._is_python_class(cls):
        _break()  # only its own C code knows how
    args = (cls,)
    if hasattr(cls, "__getnewargs_ex__"):
        _break()
    if hasattr(cls, "__getnewargs__"):
        args = (cls, *x.__getnewargs__())
    if getattr(cls, "__getstate__", None) is not getattr(object, "__getstate__", None):
        state = x.__getstate__()
    else:
        state = x.__dict__ if hasattr(x, "__dict__") else None
        slots = {}
        for base in cls.__mro__:
            names = getattr(base, "__slots__", ())
            for n in (names,) if isinstance(names, str) else names:
                if n in ("__dict__", "__weakref__"):
                    continue
                if n.startswith("__") and not n.endswith("__"):
                    n = "_" + base.__name__.lstrip("_") + n
                if hasattr(x, n):
                    slots[n] = getattr(x, n)
        if slots:
            state = (state, slots)
    items = iter(x) if isinstance(x, list) else None
    pairs = iter(x.items()) if isinstance(x, dict) else None
    return _new, args, state, items, pairs


def _new(cls, *args):
    return cls.__new__(cls, *args)


def _rebuilt(x, plan, memo):
    if isinstance(plan, str):
        return x
    func, args = plan[0], plan[1]
    y = func(*[_copy.deepcopy(a, memo) for a in args])
    memo[id(x)] = y
    state = plan[2] if len(plan) > 2 else None
    if state is not None:
        state = _copy.deepcopy(state, memo)
        if hasattr(y, "__setstate__"):
            y.__setstate__(state)
        else:
            slots = None
            if isinstance(state, tuple) and len(state) == 2:
                state, slots = state
            if state is not None:
                y.__dict__.update(state)
            if slots is not None:
                for k, v in slots.items():
                    setattr(y, k, v)
    if len(plan) > 3 and plan[3] is not None:
        for v in plan[3]:
            y.append(_copy.deepcopy(v, memo))
    if len(plan) > 4 and plan[4] is not None:
        for k, v in plan[4]:
            y[_copy.deepcopy(k, memo)] = _copy.deepcopy(v, memo)
    return y


def tolist(x):
    """Tensor.tolist() as numbers that the graph computes."""
    if x.dim() == 0:
        return x.item()
    return [tolist(v) for v in x.unbind(0)]


class NextTime:
    """Calls a function from the second call on."""

    def __init__(self, f):
        self.f, self.called = f, False

    def __call__(self, *args, **kwargs):
        if self.called:
            self.f(*args, **kwargs)
        self.called = True


def getter(kind, keys, o):
    """operator.attrgetter, itemgetter and methodcaller."""
    if kind == "methodcaller":
        return getattr(o, keys[0])(*keys[1:])
    found = []
    for key in keys:
        at = o
        if kind == "itemgetter":
            at = o[key]
        else:
            for name in key.split("."):
                at = getattr(at, name)
        found.append(at)
    return found[0] if len(found) == 1 else tuple(found)


def get_annotations(obj, *, globals=None, locals=None, eval_str=False, format=1):
    """inspect.get_annotations of a function. format: since CPython 3.14; 1 are the values."""
    if eval_str or format != 1 or not isinstance(obj, _types.FunctionType):
        _break()
    return dict(obj.__annotations__)


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
    """What autograd.Function's forward and backward are given while they are traced."""

    def __init__(self, args):
        self.needs_input_grad = tuple(isinstance(a, _C.Tensor) and a.requires_grad for a in args)
        self.saved_tensors = self._dirty = self._non_diff = ()
        self._zeros = True

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def mark_dirty(self, *tensors):
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors):
        self._non_diff = tensors

    def set_materialize_grads(self, value):
        self._zeros = value


def _function_forward(cls, ctx, args, setup):
    if not setup:
        return cls.forward(ctx, *args)
    out = cls.forward(*args)
    cls.setup_context(ctx, args, out)
    return out


def function_apply(cls, ctx_class, name, args, setup):
    """autograd.Function.apply() where no gradient will be asked for."""
    was = _C._set_grad_enabled(False)
    try:
        out = _function_forward(cls, FunctionCtx(args), args, setup)
    finally:
        _C._set_grad_enabled(was)
    return out


def function_record(cls, ctx_class, name, args, setup):
    """The same with gradients: the tracer makes a graph of backward, too."""
    ctx, was = FunctionCtx(args), _C._set_grad_enabled(False)
    try:
        out = _function_forward(cls, ctx, args, setup)
        outs = out if isinstance(out, tuple) else (out,)
        # an argument that is handed back is a tensor of its own
        made = tuple([o.detach() if isinstance(o, _C.Tensor) and any([o is a for a in args]) else o for o in outs])
    finally:
        _C._set_grad_enabled(was)
    made = _function_link(cls, ctx, args, made, _function_backward)
    if ctx._dirty:  # arguments that were written to are results themselves
        for d in ctx._dirty:
            if not any([d is o for o in outs]):
                _break()
        made = tuple([_function_dirty(o, m) if any([d is o for d in ctx._dirty]) else m for o, m in zip(outs, made)])
    return made if isinstance(out, tuple) else made[0]


def _function_link(cls, ctx, args, outs, backward):
    raise RuntimeError("only the tracer gives results a derivative in this way")


_C._capture_role(_function_link, "hop:function")


def _function_dirty(written, result):
    raise RuntimeError("only the tracer gives a tensor another history")


_C._capture_role(_function_dirty, "hop:function_dirty")


def _function_backward(cls, ctx, args, grads, outs):
    """The gradients of args; those of results without a derivative are zeros, or None where the function wants that."""
    if ctx._zeros:
        grads = [_zeros_like(o) if g is None and isinstance(o, _C.Tensor) else g for g, o in zip(grads, outs)]
    given = [list(a) if type(a) is list else None for a in args]
    r = cls.backward(ctx, *grads)
    for a, was in zip(args, given):
        if was is not None and (len(a) != len(was) or any([x is not y for x, y in zip(a, was)])):
            _break()  # it changes a list that the function was given
    if not isinstance(r, tuple):
        r = (r,)
    if len(r) < len(args) or any([g is not None for g in r[len(args):]]):
        _break()
    for a, g in zip(args, r):
        if g is not None and not (isinstance(a, _C.Tensor) and isinstance(g, _C.Tensor)):
            _break()
    return r


def hook_backward(hook, ctx, args, grads, outs):
    """What a hook makes of the gradient of a tensor."""
    r = hook(grads[0])
    if r is None:
        return grads
    if not isinstance(r, _C.Tensor):
        _break()
    return (r,)


def new_parameter(data=None, requires_grad=True):
    """nn.Parameter(): a leaf that the graph makes."""
    from .nn.parameter import Parameter
    if not isinstance(data, _C.Tensor) or type(data) is not _C.Tensor or not isinstance(requires_grad, bool):
        _break()
    p = data.detach().as_subclass(Parameter)
    return p.requires_grad_() if requires_grad else p


def legacy_new(dtype, args):
    """torch.Tensor(...), torch.FloatTensor(...), x.new(...): sizes, values, or nothing."""
    if len(args) == 1 and type(args[0]) in (list, tuple):
        return _C.tensor(args[0], dtype=dtype)
    if len(args) == 1 and not isinstance(args[0], (int, tuple)):
        if "numpy" not in _sys.modules or not isinstance(args[0], numpy_class()):
            _break()
        return numpy_tensor(args[0], dtype)
    return _C._op_functions[""]["empty"](args[0] if len(args) == 1 and isinstance(args[0], tuple) else args if args else (0,), dtype=dtype)


def legacy_tensor(*args):
    return legacy_new(_C.get_default_dtype(), args)


def numpy_class():
    """taper._numpy.ndarray where NumPy is in use, or None."""
    if "numpy" not in _sys.modules:
        return None
    from . import _numpy
    return _numpy.ndarray


def numpy_array(x, force=False):
    from . import _numpy
    return _numpy.array_of(x, force)


def numpy_tensor(a, dtype=None, device=None, requires_grad=False):
    from . import _numpy
    t = _numpy.tensor_of(a, True, dtype, device)
    return t.requires_grad_() if requires_grad else t


def numpy_as_tensor(a, dtype=None, device=None):
    from . import _numpy
    return _numpy.tensor_of(a, False, dtype, device)
