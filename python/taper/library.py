"""Custom operators: Python or C code that graphs call without looking inside.

    @taper.library.custom_op("mylib::numpy_sin", mutates_args=())
    def numpy_sin(x: Tensor) -> Tensor: ...

    @numpy_sin.register_fake
    def _(x): return taper.empty_like(x)
"""
import inspect
import json
import sys
import types
import typing

from . import _C
from . import ops as _ops
from ._C import Tensor

_defs = {}

# --- schema from type hints
_PLAIN = {Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", _C.dtype: "ScalarType", _C.device: "Device"}


def _type_text(t, where, fn):
    if isinstance(t, str):
        t = _resolve(t, fn)
    if t in _PLAIN:
        return _PLAIN[t]
    if t is typing.Union[int, float, bool] or t is typing.Union[int, float]:
        return "Scalar"
    origin, args = typing.get_origin(t), typing.get_args(t)
    if origin is typing.Union or origin is getattr(types, "UnionType", None):
        some = [a for a in args if a is not type(None)]
        if len(some) == 1 and len(args) == 2:
            return _type_text(some[0], where, fn) + "?"
    import collections.abc
    if origin in (list, collections.abc.Sequence) and len(args) == 1:
        return _type_text(args[0], where, fn) + "[]"
    raise ValueError(f"infer_schema(func): {where} has unsupported type {t}. Supported are Tensor, int, float, bool, str, "
                     f"dtype, device, and Optional and Sequence of them. Got func with signature {inspect.signature(fn)}")


def _resolve(text, fn):
    space = dict(vars(typing))
    space.update(getattr(fn, "__globals__", {}))
    return eval(text, space)


def infer_schema(prototype_function, /, *, mutates_args, op_name=None):
    """The schema that a function's type hints say: "(Tensor x, SymInt n=3) -> Tensor"."""
    fn = prototype_function
    sig = inspect.signature(fn)
    names = list(sig.parameters)
    if isinstance(mutates_args, str) and mutates_args != "unknown":
        mutates_args = (mutates_args,)
    unknown = mutates_args == "unknown"
    for m in (() if unknown else mutates_args):
        if m not in names:
            raise ValueError(f"infer_schema(func): mutates_args names {m!r}, which is no parameter. Got func with signature {sig}")
    params, letter, kwonly = [], 97, False
    for name, p in sig.parameters.items():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise ValueError(f"infer_schema(func): *args and **kwargs are not supported. Got func with signature {sig}")
        if p.annotation is p.empty:
            raise ValueError(f"infer_schema(func): Parameter {name} must have a type annotation. Got func with signature {sig}")
        text = _type_text(p.annotation, f"parameter {name}", fn)
        if text.startswith("Tensor") and (unknown or name in mutates_args):
            text = f"Tensor({chr(letter)}!){text[6:]}"
            letter += 1
        elif not unknown and name in mutates_args:
            raise ValueError(f"infer_schema(func): parameter {name} is in mutates_args but only tensors can be written. Got func with signature {sig}")
        if p.kind is p.KEYWORD_ONLY and not kwonly:
            params.append("*")
            kwonly = True
        default = "" if p.default is p.empty else "=" + (f'"{p.default}"' if isinstance(p.default, str) else str(p.default))
        params.append(f"{text} {name}{default}")
    ret = sig.return_annotation
    if isinstance(ret, str):
        ret = _resolve(ret, fn)
    if ret is sig.empty:
        raise ValueError(f"infer_schema(func): the return type must be annotated. Got func with signature {sig}")
    if ret is None or ret is type(None):
        out = "()"
    elif typing.get_origin(ret) is tuple:
        out = "(" + ", ".join(_type_text(a, "the return value", fn) for a in typing.get_args(ret)) + ")"
    else:
        out = _type_text(ret, "the return value", fn)
    for part in out.strip("()").split(", "):
        if part and not part.startswith("Tensor"):
            raise ValueError(f"infer_schema(func): custom operators return tensors, not {part}. Got func with signature {sig}")
    return f"{op_name or ''}({', '.join(params)}) -> {out}"


# --- one operator
class _Ctx:
    """What setup_context and backward see while the derivative is traced."""

    def __init__(self, needs):
        self.needs_input_grad = needs
        self.saved_tensors = ()

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors):
        pass

    def set_materialize_grads(self, on):
        pass


def _flat(args):
    out = []
    for a in args:
        out += list(a) if isinstance(a, (list, tuple)) and a and all(isinstance(x, Tensor) for x in a) else [a]
    return out


class _Op:
    """What custom operators written in Python and in C have in common: a schema, a node in graphs."""

    def __init__(self, qualname, schema, needs):
        self._qualname, self._schema_text, self._needs = qualname, schema, needs
        self._namespace, self._name = qualname.split("::")
        self._schema = _ops.FunctionSchema(schema)
        self._mutates = tuple(i for i, a in enumerate(self._schema.arguments) if a.is_write)
        self.__name__ = self._name
        self.__qualname__ = qualname

    @property
    def _node_info(self):
        meta = json.dumps({"requires": self._needs}) if self._needs else None
        return f"ops.{self._namespace}.{self._name}", self._name, meta, self._differentiable

    def _bind(self, args, kwargs):
        spec = self._schema.arguments
        if len(args) > len(spec):
            raise TypeError(f"{self._qualname}() takes {len(spec)} arguments but {len(args)} were given")
        out = list(args)
        left = dict(kwargs)
        for a in spec[len(args):]:
            if a.name in left:
                out.append(left.pop(a.name))
            elif a.has_default_value():
                out.append(self._default(a))
            else:
                raise TypeError(f"{self._qualname}() is missing value for argument '{a.name}'")
        if left:
            raise TypeError(f"{self._qualname}() got an unexpected keyword argument '{next(iter(left))}'")
        for a, v in zip(spec, out):
            if a.type.startswith("Tensor") and not a.type.endswith(("?", "[]")) and not isinstance(v, Tensor):
                raise TypeError(f"{self._qualname}(): argument '{a.name}' must be Tensor, not {type(v).__name__}")
        return tuple(out)

    def _default(self, a):
        t = a.default_text
        if t in ("None", "True", "False"):
            return {"None": None, "True": True, "False": False}[t]
        return json.loads(t) if t[0] in '"-0123456789' else t

    def __call__(self, *args, **kwargs):
        return self._run(*self._bind(args, kwargs))

    def _run(self, *args):
        recorded = _C._custom_record(self, args)
        if recorded is not NotImplemented:
            return recorded
        if not self._mutates and _C.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in _flat(args)):
            return self._with_grad(args)
        return self._kernel(*args)

    def _with_grad(self, args):
        """The call as a step on the tape."""
        op, outer = self, args
        from .autograd import Function
        flat = _flat(args)

        class CustomOp(Function):
            @staticmethod
            def forward(ctx, *tensors):
                it = iter(tensors)
                full = tuple([next(it) for _ in a] if isinstance(a, (list, tuple)) and a and all(isinstance(x, Tensor) for x in a)
                             else next(it) for a in outer)
                out = op._kernel(*full)
                ctx.full, ctx.outputs = full, out
                if op._differentiable:
                    op._save(ctx, full, out)
                return tuple(out) if isinstance(out, list) else out

            @staticmethod
            def backward(ctx, *grads):
                if not op._differentiable:
                    raise RuntimeError(f"Trying to backward through {op._qualname} but no autograd formula was registered. "
                                       "Please use register_autograd to add one.")
                return tuple(_flat_grads(ctx.full, op._gradients(ctx, ctx.full, ctx.outputs, grads)))
        CustomOp.__name__ = CustomOp._name = self._name
        out = CustomOp.apply(*flat)
        return list(out) if isinstance(out, tuple) and self._schema.returns == ["Tensor[]"] else out

    def _vjp(self, args, out, grads):
        """While a graph's backward is traced: args, results and gradients are proxies."""
        ctx = _Ctx(tuple(isinstance(a, Tensor) and a.is_floating_point() for a in args))
        outs = tuple(out) if isinstance(out, list) and self._schema.returns != ["Tensor[]"] else out
        self._save(ctx, args, outs)
        got = self._gradients(ctx, args, outs, tuple(grads))
        return tuple(got)

    def __repr__(self):
        return f"<{type(self).__name__}({self._qualname})>"


def _flat_grads(args, grads):
    for a, g in zip(args, grads):
        if isinstance(a, (list, tuple)) and a and all(isinstance(x, Tensor) for x in a):
            yield from (g if isinstance(g, (list, tuple)) else [None] * len(a))
        else:
            yield g


_C._capture_role(_Op.__call__, "custom")


class CustomOpDef(_Op):
    """A custom operator written in Python. Made by taper.library.custom_op."""

    def __init__(self, qualname, schema, fn, effects=False, late=False):
        self._effects, self._late = effects, late  # called for what it does: never dropped; waits: called where its result is used
        module = getattr(fn, "__module__", None) if fn is not None else None
        super().__init__(qualname, schema, f"the Python module {module}" if module else None)
        self._kernels = {} if fn is None else {None: fn}
        self._fake_fn, self._backward_fn, self._setup_fn = _early_fakes.pop(qualname, None), None, None
        self._differentiable = False
        self._init_fn = fn
        if fn is not None:
            self.__doc__, self.__wrapped__ = fn.__doc__, fn
        _defs[qualname] = self
        self._publish()

    def _publish(self):
        _C._custom_register(self._schema_text, self._needs, self, self._differentiable, self._effects, self._late)
        space = getattr(sys.modules["taper.ops"], self._namespace) if "taper.ops" in sys.modules else _space(self._namespace)
        space._define(self._name, self, {"default": (self, self._schema_text)})
        setattr(_space_module(), self._namespace, space)

    def _kernel(self, *args):
        kinds = {a.device.type for a in _flat(args) if isinstance(a, Tensor)}
        fn = next((self._kernels[k] for k in kinds if k in self._kernels), self._kernels.get(None))
        if fn is None:
            raise NotImplementedError(f"{self._qualname}: no kernel is registered for {', '.join(sorted(kinds)) or 'these arguments'}")
        on = _C.is_grad_enabled()
        _C._set_grad_enabled(False)
        try:
            out = fn(*args)
        finally:
            _C._set_grad_enabled(on)
        for o in _flat(out if isinstance(out, (tuple, list)) else (out,)):
            if isinstance(o, Tensor) and any(o is a for a in _flat(args)):
                raise RuntimeError(f"{self._qualname} (with implementation in {getattr(fn, '__module__', '?')}): The output of this "
                                   "custom operator must not also be an input to this custom operator and may not alias any "
                                   "inputs to this custom operator or other returns. Fix this by cloning the result.")
        return out

    def _fake_run(self, *args):
        if self._fake_fn is None:
            if self._schema.returns in ([], [""]):
                return None
            _C._trace_missing_fake(self._qualname)
            raise RuntimeError(f"There was no fake impl registered for {self._qualname}. This is necessary for taper.compile to "
                               f"work. Please use `{self._name}.register_fake` to add an fake impl.")
        return self._fake_fn(*args)

    def _save(self, ctx, args, out):
        if self._setup_fn is not None:
            kw = "keyword_only_inputs" in inspect.signature(self._setup_fn).parameters
            self._setup_fn(ctx=ctx, inputs=args, output=out, **({"keyword_only_inputs": {}} if kw else {}))

    def _gradients(self, ctx, args, out, grads):
        if self._schema.returns == ["Tensor[]"]:
            grads = (list(grads),)
        got = self._backward_fn(ctx, *grads)
        got = got if isinstance(got, tuple) else (got,)
        if isinstance(got[0], dict):
            got = tuple(got[0].get(a.name) for a in self._schema.arguments)
        if len(got) != len(args):
            raise RuntimeError(f"{self._qualname}: the backward function must return one gradient per input: {len(args)} inputs but "
                               f"{len(got)} gradients")
        return got

    # --- registrations
    def register_kernel(self, device_types, func=None, /):
        """A kernel for some devices; usable as a decorator."""
        if func is None:
            return lambda f: self.register_kernel(device_types, f)
        for d in ([device_types] if device_types is None or isinstance(device_types, str) else device_types):
            self._kernels[d] = func
        return func

    def register_fake(self, fn, /):
        """The function that says what the results look like, given tensors without data."""
        self._fake_fn = fn
        return fn

    register_meta = register_fake

    def register_autograd(self, backward, /, *, setup_context=None):
        """The derivative: backward(ctx, *grads) after setup_context(ctx, inputs, output)."""
        if self._mutates:
            raise RuntimeError(f"Cannot register autograd formula for non-functional operator {self._qualname}: it writes to its "
                               "arguments. Please create a functional operator and register an autograd formula for that.")
        self._backward_fn, self._setup_fn = backward, setup_context
        self._differentiable = True
        self._publish()

    def register_vmap(self, *args, **kwargs):
        raise NotImplementedError("Taper has no vmap")

    @property
    def _opoverload(self):
        return getattr(_space(self._namespace), self._name).default


class NativeOp(_Op):
    """A custom operator registered from C."""

    def __init__(self, qualname, schema, needs, differentiable):
        super().__init__(qualname, schema, needs)
        self._differentiable = differentiable

    def _kernel(self, *args):
        return _C._custom_call("call", self._qualname, args)

    def _fake_run(self, *args):
        return _C._custom_call("fake", self._qualname, args)

    def _save(self, ctx, args, out):
        pass

    def _gradients(self, ctx, args, out, grads):
        if any(isinstance(a, (list, tuple)) and any(isinstance(t, Tensor) and t.requires_grad for t in a) for a in args):
            raise NotImplementedError(f"{self._qualname}: a derivative written in C gives none for lists of tensors")
        outs = tuple(out) if isinstance(out, (tuple, list)) else () if out is None else (out,)
        return _C._custom_call("backward", self._qualname, tuple(args) + outs + tuple(grads))


def _space_module():
    import taper.ops
    return taper.ops


def _space(name):
    return getattr(_space_module(), name)


def _native(namespace, name):
    """taper.ops.<namespace>.<name> of an operator that was registered from C, or None."""
    for qual, schema, needs, diff in _C._custom_list():
        if qual == f"{namespace}::{name}":
            op = NativeOp(qual, schema, needs, diff)
            space = _space(namespace)
            setattr(_space_module(), namespace, space)
            return space._define(name, op, {"default": (op, schema)})
    return None


def _native_run(qualname, args):
    namespace, name = qualname.split("::")
    return getattr(_space(namespace), name)._fn._run(*args)


def _check_name(name):
    if name.count("::") != 1 or not all(p.isidentifier() for p in name.split("::")):
        raise ValueError(f"Expected the name of an operator as 'namespace::name', got {name!r}")
    if name.split("::")[0] in ("aten", "higher_order", "prim"):
        raise ValueError(f"the namespace of {name!r} is taken")


def custom_op(name, fn=None, /, *, mutates_args, device_types=None, schema=None, tags=None):
    """Wrap a function into an operator that graphs call as a whole. mutates_args: names of the tensors it writes."""
    def inner(fn):
        _check_name(name)
        text = name + schema if schema is not None else infer_schema(fn, mutates_args=mutates_args, op_name=name)
        op = CustomOpDef(name, text, fn if device_types is None else None)
        if device_types is not None:
            op._needs = f"the Python module {fn.__module__}"
            op._init_fn = fn
            op.register_kernel(device_types, fn)
            op._publish()
        return op
    return inner if fn is None else inner(fn)


def triton_op(*args, **kwargs):
    raise NotImplementedError("Taper has no Triton")


_early_fakes = {}  # register_fake() of operators that are not there yet
_overloads = {}  # namespace::name.overload -> the name that it is kept under


def _check_overload(overload, qualname):
    if not overload.isidentifier():
        raise ValueError(f"Expected the name of an operator as 'namespace::name.overload', got {qualname!r}")


def _def_of(op):
    op = _overloads.get(op, op) if isinstance(op, str) else op
    if isinstance(op, _Op):
        return op
    if isinstance(op, (_ops.OpOverload, _ops.OpOverloadPacket)):
        op = f"{op.namespace}::{getattr(op, '_opname', op.__name__)}"
    if op not in _defs:
        raise RuntimeError(f"there is no custom operator {op!r}; it is made by taper.library.custom_op or define")
    return _defs[op]


def define(qualname, schema, *, lib=None, tags=()):
    """A new operator by its schema; impl gives it kernels."""
    name, dot, overload = qualname.partition(".")
    _check_name(name)
    if dot:  # another form of the operator: an operator of its own, found under the first one's name
        _check_overload(overload, qualname)
        name = f"{name}_{overload}"
        _overloads[qualname] = name
    CustomOpDef(name, name + schema, None)


def impl(qualname, types, func=None, *, lib=None):
    """A kernel for an operator made by define."""
    if func is None:
        return lambda f: impl(qualname, types, f, lib=lib)
    op = _def_of(qualname)
    if op._needs is None:
        op._needs = f"the Python module {func.__module__}"
        op._publish()
    types = [types] if isinstance(types, str) else list(types)
    for t in types:
        t = t.lower()
        if t in ("compositeexplicitautograd", "default", "compositeimplicitautograd"):
            op._kernels[None] = func
        elif t == "meta":
            op.register_fake(func)
        else:
            op._kernels[t] = func
    return func


def register_kernel(op, device_types, func=None, /, *, lib=None):
    return _def_of(op).register_kernel(device_types, func)


def register_fake(op, func=None, /, *, lib=None, _stacklevel=1):
    """What the results look like. It may come before the operator: a package that says so of the operators of its C++ extension can be imported
    where that extension cannot be loaded."""
    if func is None:
        return lambda f: register_fake(op, f)
    if isinstance(op, str) and _overloads.get(op, op) not in _defs:
        _check_name(op.partition(".")[0])
        _early_fakes[op] = func
        return func
    return _def_of(op).register_fake(func)


impl_abstract = register_fake


def register_autograd(op, backward, /, *, setup_context=None, lib=None):
    _def_of(op).register_autograd(backward, setup_context=setup_context)


class Library:
    """The older interface: define and impl in one namespace."""

    def __init__(self, ns, kind="DEF", dispatch_key=""):
        self.ns, self.kind = ns, kind

    def define(self, schema, alias_analysis="", *, tags=()):
        name = schema.split("(")[0].strip()
        define(f"{self.ns}::{name}", schema[len(name):])
        return name

    def impl(self, op_name, fn, dispatch_key="CompositeExplicitAutograd", *, with_keyset=False):
        impl(op_name if "::" in op_name else f"{self.ns}::{op_name}", dispatch_key, fn)

    def _register_fake(self, op_name, fn):
        register_fake(op_name if "::" in op_name else f"{self.ns}::{op_name}", fn)


# --- opcheck
class OpCheckError(Exception):
    """An operator is not what it says it is."""


_TESTS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def _copy(a):
    if isinstance(a, Tensor):
        return a.detach().clone().requires_grad_(a.requires_grad)
    if isinstance(a, (list, tuple)):
        return type(a)(_copy(x) for x in a)
    return a


def _outs(r):
    return [x for x in (r if isinstance(r, (list, tuple)) else [r]) if isinstance(x, Tensor)]


def _test_schema(op, args):
    given = _copy(args)
    before = _copy(given)
    with _no_grad():
        outs = _outs(op._run(*given))
    for i, (a, b, spec) in enumerate(zip(given, before, op._schema.arguments)):
        if isinstance(a, Tensor) and not spec.is_write and not bool(((a == b) | ((a != a) & (b != b))).all()):
            raise OpCheckError(f"argument {spec.name!r} is written although the schema does not say so ({op._schema_text}): add it "
                               "to mutates_args")
    spots = {a.untyped_storage().data_ptr(): s.name for a, s in zip(given, op._schema.arguments) if isinstance(a, Tensor)}
    for i, o in enumerate(outs):
        if o.numel() and o.untyped_storage().data_ptr() in spots:
            raise OpCheckError(f"result {i} shares memory with argument {spots[o.untyped_storage().data_ptr()]!r}: return a clone")
    want = len([r for r in op._schema.returns if r]) if op._schema.returns != ["Tensor[]"] else len(outs)
    if len(outs) != want:
        raise OpCheckError(f"it returns {len(outs)} tensors but the schema says {want} ({op._schema_text})")


def _no_grad():
    from .autograd import no_grad
    return no_grad()


def _test_faketensor(op, args):
    with _no_grad():
        real = _outs(op._run(*_copy(args)))
        fake = _outs(op._fake_run(*_copy(args)))
    if len(real) != len(fake):
        raise OpCheckError(f"the fake function returns {len(fake)} tensors, the kernel {len(real)}")
    for i, (r, f) in enumerate(zip(real, fake)):
        for what in ("dtype", "shape", "device"):
            if getattr(r, what) != getattr(f, what):
                raise OpCheckError(f"result {i}: the fake function says {what} {getattr(f, what)}, the kernel returns {getattr(r, what)}")
        if r.stride() != f.stride():
            raise OpCheckError(f"result {i}: the fake function says strides {f.stride()}, the kernel returns {r.stride()}")


def _test_autograd_registration(op, args):
    if not any(isinstance(a, Tensor) and a.requires_grad for a in _flat(args)) or op._mutates:
        return
    outs = [o for o in _outs(op._run(*_copy(args))) if o.requires_grad]
    if not outs:
        raise OpCheckError("arguments require gradients but no result does")
    if not op._differentiable:
        raise OpCheckError(f"arguments require gradients but no derivative is registered for {op._qualname}: use register_autograd")


def _grads(fn, args):
    args = _copy(args)
    outs = _outs(fn(*args))
    diff = [o for o in outs if o.requires_grad]
    if diff:
        sum((o * (i + 1)).sum() for i, o in enumerate(diff)).backward()
    return outs, [a.grad for a in _flat(args) if isinstance(a, Tensor)], [a for a in _flat(args) if isinstance(a, Tensor)]


def _test_aot_dispatch_dynamic(op, args):
    import taper
    want = _grads(op, args)
    for backend in ("aot_eager", "inductor"):
        for dynamic in (False, True):
            taper._dynamo.reset()
            try:
                got = _grads(taper.compile(lambda *a: op(*a), backend=backend, dynamic=dynamic, fullgraph=True), args)
            except Exception as e:
                raise OpCheckError(f"compiled with backend {backend!r} (dynamic={dynamic}) it fails: {type(e).__name__}: {e}") from e
            for what, a, b in zip(("results", "gradients", "arguments afterwards"), want, got):
                for x, y in zip(a, b):
                    if (x is None) != (y is None) or (x is not None and not taper.allclose(x.detach(), y.detach(), rtol=1e-4, atol=1e-5, equal_nan=True)):
                        raise OpCheckError(f"compiled with backend {backend!r} (dynamic={dynamic}) {what} differ from eager")
    taper._dynamo.reset()


def opcheck(op, args, kwargs=None, *, test_utils=_TESTS, raise_exception=True, atol=None, rtol=None):
    """Check that an operator does what its schema, fake function and derivative say. Returns {test: "SUCCESS"}."""
    op = op if isinstance(op, _Op) else _native_or_def(op)
    args = op._bind(tuple(args), kwargs or {})
    tests = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    result = {}
    for t in tests:
        if t not in _TESTS:
            raise ValueError(f"test_utils has {t!r}; there are {', '.join(_TESTS)}")
        try:
            globals()["_" + t](op, args)
            result[t] = "SUCCESS"
        except Exception as e:
            err = e if isinstance(e, OpCheckError) else OpCheckError(f"{type(e).__name__}: {e}")
            result[t] = OpCheckError(f"opcheck(op, ...): {t} failed with {err} (scroll up for stack trace)") if not isinstance(e, OpCheckError) else OpCheckError(f"opcheck(op, ...): {t} failed with {err}")
            if raise_exception:
                raise result[t] from e
    return result


def _native_or_def(op):
    if isinstance(op, (_ops.OpOverload, _ops.OpOverloadPacket)):
        fn = op._fn
        if isinstance(fn, _Op):
            return fn
    return _def_of(op)
