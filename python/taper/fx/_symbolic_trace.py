"""Recording a graph by running a function on stand-ins for its arguments (no bytecode, no example inputs)."""
import builtins
import dis
import inspect
import operator
import sys
import types

from .traceback import _mark
from .. import _C
from ..nn.modules.module import Module
from .graph import Graph, GraphModule, Node, map_aggregate

_depth = 0  # traces that run now


def is_fx_tracing():
    """True while a function runs under symbolic_trace."""
    return _depth > 0


class TraceError(ValueError):
    """The function did something that a stand-in has no answer for."""


class _PH:
    def __repr__(self):
        return "PH"


PH = _PH()


class Proxy:
    """Stands for the value of a node: what is done to it becomes another node."""

    def __init__(self, node, tracer=None):
        self.node, self.tracer = node, tracer or GraphAppendingTracer(node.graph)

    def __repr__(self):
        return f"Proxy({self.node.name})"

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self):
        f = sys._getframe(1)
        code = {i.offset: i for i in dis.get_instructions(f.f_code)}.get(f.f_lasti)
        if code is not None and code.opname == "UNPACK_SEQUENCE":
            return (self[i] for i in range(code.argval))
        raise TraceError("Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or **kwargs "
                         "function argument: the number of items is not known while tracing. Use taper.compile, which reads the code, or pass "
                         "the number in by concrete_args.")

    def __bool__(self):
        f = sys._getframe(1)
        code = {i.offset: i for i in dis.get_instructions(f.f_code)}.get(f.f_lasti)
        at = f"{f.f_code.co_filename}:{f.f_lineno}"
        what = "an assertion" if code is not None and code.opname == "POP_JUMP_IF_TRUE" else "control flow"
        raise TraceError(f"symbolically traced variables cannot be used as inputs to {what} ({at}): which way to go depends on the value. "
                         "Use taper.cond or taper.where, or taper.compile, which breaks the graph there.")

    def __len__(self):
        raise RuntimeError("'len' is not supported in symbolic tracing by default. If you want this call to be recorded, call taper.fx.wrap('len') "
                           "at the top level of the module")

    def __index__(self):
        raise TraceError("a symbolically traced variable cannot be used as an index or a number: its value is not known while tracing")

    __int__ = __float__ = __index__

    def keys(self):
        raise TraceError("a symbolically traced variable cannot be unpacked by **: its keys are not known while tracing")

    @classmethod
    def __torch_function__(cls, func, types_, args=(), kwargs=None):
        found = []
        map_aggregate((args, kwargs or {}), lambda a: found.append(a.tracer) if isinstance(a, Proxy) else None)
        if len({id(t) for t in found}) > 1:
            raise RuntimeError(f"Found multiple different tracers {found} while trying to trace operations {func}")
        if isinstance(func, type(_C.Tensor.add)) or isinstance(func, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return found[0].create_proxy("call_method", func.__name__, args, kwargs or {})
        return found[0].create_proxy("call_function", func, args, kwargs or {})


class Attribute(Proxy):
    """x.name: a node only when it is used as a value; called, it is a call of the method."""

    def __init__(self, root, name):
        self.root, self.attr, self.tracer, self._node = root, name, root.tracer, None

    @property
    def node(self):
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def _operators():
    def forward(fn):
        return lambda self, *a: self.tracer.create_proxy("call_function", fn, (self, *a), {})

    def reflected(fn):
        return lambda self, other: self.tracer.create_proxy("call_function", fn, (other, self), {})
    for name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor", "matmul"):
        fn, bare = getattr(operator, name), name.rstrip("_")
        setattr(Proxy, f"__{bare}__", forward(fn))
        setattr(Proxy, f"__r{bare}__", reflected(fn))
    for name in ("eq", "ne", "lt", "gt", "le", "ge", "pos", "neg", "invert", "getitem"):
        setattr(Proxy, f"__{name}__", forward(getattr(operator, name)))
    Proxy.__abs__ = forward(builtins.abs)
    Proxy.__round__ = forward(builtins.round)
    Proxy.__hash__ = object.__hash__


_operators()
_wrapped = []  # (globals, name): functions that become one node


def wrap(fn_or_name):
    """At the top level of a module: calls of this function are recorded as one node instead of being followed."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(f"wrap() takes a function or its name, not {fn_or_name!r}")
    f = sys._getframe(1)
    if f.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped.append((f.f_globals, fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__))
    return fn_or_name


def _has_proxy(args, kwargs):
    found = []
    map_aggregate((args, kwargs), lambda a: found.append(a) if isinstance(a, Proxy) else None)
    return found[0] if found else None


class Tracer:
    """Runs a module or function on proxies; subclass to decide what is followed."""

    def __init__(self, autowrap_modules=(), autowrap_functions=(), param_shapes_constant=False):
        self.autowrap_modules, self.autowrap_functions = tuple(autowrap_modules), tuple(autowrap_functions)
        self.graph = self.root = None
        self._constants = {}

    # --- what subclasses change
    def is_leaf_module(self, m, module_qualified_name):
        """Leaves become one call_module node: those of taper.nn except containers."""
        from ..nn import Sequential
        return (m.__module__.startswith(("taper.nn", "torch.nn"))) and not isinstance(m, Sequential)

    def call_module(self, m, forward, args, kwargs):
        path = self.path_of_module(m)
        if not self.is_leaf_module(m, path):
            return forward(*args, **kwargs)
        return self.create_proxy("call_module", path, args, kwargs)

    def path_of_module(self, mod):
        for name, m in self.root.named_modules():
            if m is mod:
                return name
        raise NameError(f"module {type(mod).__name__} is not installed as a submodule")

    def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
        return _mark(self.graph.create_node(kind, target, args, kwargs, name))

    def proxy(self, node):
        return Proxy(node, self)

    def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, proxy_factory_fn=None):
        node = self.create_node(kind, target, self.create_arg(tuple(args)), self.create_arg(dict(kwargs)), name)
        f = sys._getframe(1)
        while f is not None and f.f_globals.get("__name__") in (__name__, "taper.nn.modules.module"):
            f = f.f_back
        if f is not None:
            node.meta["stack_trace"] = f'  File "{f.f_code.co_filename}", line {f.f_lineno}, in {f.f_code.co_name}\n'
        return (proxy_factory_fn or self.proxy)(node)

    def create_arg(self, a):
        """What a value is as an argument of a node."""
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, Node):
            return a
        if isinstance(a, (tuple, list, dict, slice)):
            if isinstance(a, tuple) and hasattr(a, "_fields"):
                return type(a)(*[self.create_arg(x) for x in a])
            if isinstance(a, dict):
                for k in a:
                    if isinstance(k, Proxy):
                        raise RuntimeError("Keys for dictionaries used as an argument cannot contain a Node. Got key: " + repr(k))
                return {k: self.create_arg(v) for k, v in a.items()}
            if isinstance(a, slice):
                return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
            return type(a)(self.create_arg(x) for x in a)
        if isinstance(a, range):
            return range(a.start, a.stop, a.step)
        if isinstance(a, _C.Tensor):
            return self._tensor(a)
        if isinstance(a, (str, int, float, bool, complex, bytes, type(None), type(Ellipsis), _C.dtype, _C.device, _C.memory_format, _C.layout)) \
                or callable(a):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _tensor(self, t):
        known = list(self.root.named_parameters()) + list(self.root.named_buffers()) if isinstance(self.root, Module) else []
        for name, p in known:
            if p is t:
                return self.create_node("get_attr", name, (), {})
        if id(t) not in self._constants:
            i = 0
            while hasattr(self.root, f"_tensor_constant{i}"):
                i += 1
            object.__setattr__(self.root, f"_tensor_constant{i}", t)
            self._constants[id(t)] = f"_tensor_constant{i}"
        return self.create_node("get_attr", self._constants[id(t)], (), {})

    # --- the trace
    def _arguments(self, fn, concrete):
        sig = inspect.signature(fn)
        args, kwargs = [], {}
        for p in sig.parameters.values():
            if p.name in concrete and concrete[p.name] is not PH:
                v = concrete[p.name]
            else:
                stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
                default = () if p.default is p.empty else (self.create_arg(p.default),)
                node = self.create_node("placeholder", stars + p.name, default, {}, p.name)
                v = self.proxy(node)
                if stars:
                    raise TraceError(f"{stars}{p.name}: how many arguments there are is not known while tracing; give the function named parameters, or use taper.compile")
            if p.kind == p.KEYWORD_ONLY:
                kwargs[p.name] = v
            else:
                args.append(v)
        unknown = set(concrete) - set(sig.parameters)
        if unknown:
            raise ValueError(f"concrete_args names {sorted(unknown)}, which {getattr(fn, '__name__', fn)!r} does not take")
        return args, kwargs

    def trace(self, root, concrete_args=None):
        global _depth
        if isinstance(root, Module):
            self.root, fn = root, type(root).forward.__get__(root)
        elif callable(root):
            self.root, fn = Module(), root
        else:
            raise TypeError(f"symbolic_trace() takes a Module or a function, not {type(root).__name__}")
        self.graph = Graph()
        self._constants = {}
        args, kwargs = self._arguments(fn, dict(concrete_args or {}))
        undo = []

        def patch(where, name, new):
            if isinstance(where, dict):
                old = where.get(name, getattr(builtins, name, None))
                had = name in where
                where[name] = new
                undo.append(lambda: where.__setitem__(name, old) if had else where.pop(name))
            else:
                old = where.__dict__[name]
                setattr(where, name, new)
                undo.append(lambda: setattr(where, name, old))
            return old
        plain_call, plain_get = Module.__dict__["__call__"], Module.__dict__["__getattr__"]
        parameters = {}

        def call(mod, *a, **k):
            if _has_proxy(a, k) is None:
                return plain_call(mod, *a, **k)
            return self.call_module(mod, lambda *x, **y: plain_call(mod, *x, **y), a, k)

        def get(mod, name):
            v = plain_get(mod, name)
            if isinstance(v, _C.Tensor):
                for path, p in (*self.root.named_parameters(), *self.root.named_buffers()):
                    if p is v:
                        if path not in parameters:
                            parameters[path] = self.create_proxy("get_attr", path, (), {})
                        return parameters[path]
            return v

        def one_node(fn):
            def recorded(*a, **k):
                p = _has_proxy(a, k)
                return fn(*a, **k) if p is None else p.tracer.create_proxy("call_function", fn, a, k)
            return recorded
        _depth += 1
        try:
            patch(Module, "__call__", call)
            patch(Module, "__getattr__", get)
            for space, name in _wrapped:
                fn_ = space.get(name, getattr(builtins, name, None))
                if callable(fn_):
                    patch(space, name, one_node(fn_))
            space = getattr(fn, "__globals__", getattr(getattr(fn, "__func__", None), "__globals__", {}))
            for f in self.autowrap_functions:
                for name in [k for k, v in space.items() if v is f]:
                    patch(space, name, one_node(f))
            _C._capture_disable(1)
            try:
                out = fn(*args, **kwargs)
            finally:
                _C._capture_disable(-1)
        finally:
            _depth -= 1
            for u in reversed(undo):
                u()
        self.create_node("output", "output", (self.create_arg(out),), {}, "output")
        return self.graph


class GraphAppendingTracer(Tracer):
    """Adds nodes to a graph that is there already; of a proxy that was made from a node by hand."""

    def __init__(self, graph):
        super().__init__()
        self.graph, self.root = graph, graph.owning_module or Module()


def symbolic_trace(root, concrete_args=None):
    """A GraphModule of what root does, recorded by running it on stand-ins for its arguments."""
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "GraphModule")
    return GraphModule(tracer.root, graph, name)
