"""Nodes, graphs and graph modules over what capture recorded."""
import builtins
import copy
import itertools
import keyword
import linecache
import math
import operator

from .. import _C
from ..nn.modules.module import Module
from ..nn.parameter import Parameter


def map_aggregate(a, fn):
    """Apply fn to every leaf of nested tuples, lists, dicts and slices."""
    if isinstance(a, tuple):
        t = tuple(map_aggregate(x, fn) for x in a)
        return t if type(a) is tuple or not hasattr(a, "_fields") else type(a)(*t)
    if isinstance(a, list):
        return [map_aggregate(x, fn) for x in a]
    if isinstance(a, dict):
        return {k: map_aggregate(v, fn) for k, v in a.items()}
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a, fn):
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


class _Row:
    """An operator by its full name: `add.Tensor`; callable."""

    def __init__(self, full):
        self.full = full
        self.__name__ = full.split(".")[0]
        self.__module__ = "taper.ops.aten"

    def __call__(self, *args, **kwargs):
        return _C._call(self.full, *args, **kwargs)

    def __repr__(self):
        return f"taper.ops.aten.{self.full}"

    __str__ = __repr__

    def __eq__(self, other):
        return self is other or getattr(other, "full", None) == self.full

    def __hash__(self):
        return hash(self.full)


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "and_": "&", "or_": "|", "xor": "^", "lshift": "<<",
          "rshift": ">>", "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}
_INPLACE = {"setitem", "delitem"} | {"i" + name.rstrip("_") for name in _SIGNS if hasattr(operator, "i" + name.rstrip("_"))}
_BEFORE = {"neg": "-", "pos": "+", "invert": "~"}
_FUNCTIONS = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
              "rshift": "bitwise_right_shift", "invert": "bitwise_not", "pos": "positive"}
_rows = {}


def function_of(n):
    """The function of the package that a call of an operator is, and whether it takes the operands the other way round."""
    name = n.target.__name__
    inplace = name[:1] == "i" and hasattr(operator, name) and (name[1:] in _SIGNS or name[1:] + "_" in _SIGNS)
    bare = (name[1:] if inplace else name).rstrip("_")
    back = not isinstance(n.args[0], Node) and bare in ("add", "sub", "mul", "and", "or", "xor")
    return ("rsub" if back and bare == "sub" else _FUNCTIONS.get(bare, bare)) + "_" * inplace, back


def _target(full):
    """The callable a user would know an operator by: taper.sin for sin, the row itself where there is none."""
    t = _rows.get(full)
    if t is None:
        name = full.split(".")[0]
        import taper
        fn = _C._op_functions.get("", {}).get(name) or _C._op_functions.get("nn.functional", {}).get(name)
        t = fn if fn is not None and (full == name or full in getattr(fn, "_rows", [])) else None
        if t is None:
            t = getattr(taper, name, None) if name.endswith("_") and callable(getattr(taper, name, None)) else None
        t = _rows[full] = t or _Row(full)
    return t


def _overload(full):
    """The operator itself: taper.ops.aten.gelu.default."""
    import taper
    name, _, overload = full.partition(".")
    return getattr(getattr(taper.ops.aten, name), overload or "default")


def _opaque(name):
    """What an opaque node calls: ops.<namespace>.<name>."""
    kind, _, rest = name.partition(".")
    if kind == "ops":
        space, _, op = rest.partition(".")
        if space == "higher_order":
            from .._higher_order_ops import graph_calls
            return graph_calls[op]
        import taper
        return getattr(getattr(taper.ops, space), op.split(".")[0]).default
    return _Missing(name)


class _Missing:
    """A callee that is known by name only."""

    def __init__(self, name):
        self.__name__ = name

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"{self.__name__!r} can only run where it was registered")


class Node:
    """One step of a graph."""

    def __init__(self, graph, name, op, target, args=(), kwargs=None, meta=None):
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self._args, self._kwargs = (), {}
        self.users = {}
        self.meta = meta if meta is not None else {}
        self.type = None
        self._prev = self._next = self
        self._erased = False
        self._set(tuple(args), dict(kwargs or {}))

    def _set(self, args, kwargs):
        for n in self.all_input_nodes:
            n.users.pop(self, None)
        self._args, self._kwargs = args, kwargs
        for n in self.all_input_nodes:
            n.users[self] = None

    @property
    def args(self):
        return self._args

    @args.setter
    def args(self, value):
        self._set(tuple(value), self._kwargs)

    @property
    def kwargs(self):
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value):
        self._set(self._args, dict(value))

    @property
    def all_input_nodes(self):
        seen = {}
        map_arg((self._args, self._kwargs), lambda n: seen.setdefault(n, None))
        return list(seen)

    @property
    def next(self):
        return self._next

    @property
    def prev(self):
        return self._prev

    @property
    def stack_trace(self):
        return self.meta.get("stack_trace")

    def replace_all_uses_with(self, other, delete_user_cb=None, *, propagate_meta=False):
        users = [u for u in self.users if u is not other or other is None]
        for u in users:
            if delete_user_cb is not None and not delete_user_cb(u):
                continue
            swap = lambda n: other if n is self else n  # noqa: E731
            u._set(tuple(map_arg(u._args, swap)), map_arg(u._kwargs, swap))
        return users

    def replace_input_with(self, old, new):
        swap = lambda n: new if n is old else n  # noqa: E731
        self._set(tuple(map_arg(self._args, swap)), map_arg(self._kwargs, swap))

    def prepend(self, other):
        if other._prev is not other:
            other._unlink()
        p = self._prev
        p._next, other._prev, other._next, self._prev = other, p, self, other

    def append(self, other):
        self._next.prepend(other)

    def _unlink(self):
        self._prev._next, self._next._prev = self._next, self._prev  # its own links stay: whoever walks the list is here

    def update_arg(self, i, v):
        a = list(self._args)
        a[i] = v
        self.args = a

    def update_kwarg(self, k, v):
        self.kwargs = {**self._kwargs, k: v}

    def format_node(self):
        return _line(self)

    def __repr__(self):
        return self.name


def _name_of(target):
    if isinstance(target, str):
        return target
    if target is operator.getitem:
        return "operator.getitem"
    mod = getattr(target, "__module__", None) or ""
    if isinstance(target, _Row):
        return repr(target)
    if mod in ("_operator", "builtins"):
        mod = "operator" if mod == "_operator" else "builtins"
    return f"{mod}.{getattr(target, '__name__', repr(target))}" if mod else getattr(target, "__name__", repr(target))


def _show(a):
    if isinstance(a, Node):
        return a.name
    if isinstance(a, tuple):
        return "(" + ", ".join(_show(x) for x in a) + ("," if len(a) == 1 else "") + ")"
    if isinstance(a, list):
        return "[" + ", ".join(_show(x) for x in a) + "]"
    if isinstance(a, GraphModule):
        return "self." + a._class_name
    return repr(a)


def _path(target):
    """layers.0.weight of self, as Python writes it."""
    out = "self"
    for part in target.split("."):
        out = f"{out}.{part}" if part.isidentifier() and not keyword.iskeyword(part) else f"getattr({out}, {part!r})"
    return out


def _line(n):
    args = ", ".join([_show(a) for a in n.args] + [f"{k} = {_show(v)}" for k, v in n.kwargs.items()])
    if n.op == "call_method":
        rest = ", ".join([_show(a) for a in n.args[1:]] + [f"{k} = {_show(v)}" for k, v in n.kwargs.items()])
        return f"{n.name} = {_show(n.args[0])}.{n.target}({rest})"
    if n.op == "get_attr":
        return f"{n.name} = {_path(n.target)}"
    if n.op == "output":
        return f"return {_show(n.args[0])}"
    if n.op == "call_module":
        return f"{n.name} = {_path(n.target)}({args})"
    if n.target is operator.getitem:
        return f"{n.name} = {_show(n.args[0])}[{_show(n.args[1])}]"
    if getattr(n.target, "__module__", "") == "_operator" and not n.kwargs and n.target is getattr(operator, n.target.__name__, None):
        sign, before = _SIGNS.get(n.target.__name__), _BEFORE.get(n.target.__name__)
        if sign and len(n.args) == 2:
            return f"{n.name} = {_show(n.args[0])} {sign} {_show(n.args[1])}"
        if before:
            return f"{n.name} = {before}{_show(n.args[0])}"
    return f"{n.name} = {_name_of(n.target)}({args})"


_NO_DEFAULT = object()


class _Insert:
    def __init__(self, graph, at):
        self.graph, self.prior = graph, graph._insert
        graph._insert = at

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.graph._insert = self.prior


class Graph:
    """An ordered list of nodes."""

    def __init__(self, owning_module=None):
        self._root = Node.__new__(Node)
        r = self._root
        r.graph, r.name, r.op, r.target, r._args, r._kwargs, r.users, r.meta = self, "", "root", "", (), {}, {}, {}
        r._prev = r._next = r
        self._insert = r
        self._names = set()
        self.owning_module = owning_module

    @property
    def nodes(self):
        return _NodeList(self)

    def _name(self, base):
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in str(base)) or "node"
        if base[0].isdigit():
            base = "_" + base
        name, i = base, 0
        while name in self._names or keyword.iskeyword(name) or hasattr(builtins, name):
            i += 1
            name = f"{base}_{i}"
        self._names.add(name)
        return name

    def create_node(self, op, target, args=(), kwargs=None, name=None, type_expr=None):
        base = name or (target if isinstance(target, str) else getattr(target, "__name__", "call"))
        n = Node(self, self._name(base), op, target, tuple(args), kwargs)
        self._insert.prepend(n)
        return n

    def placeholder(self, name, type_expr=None, default_value=_NO_DEFAULT):
        return self.create_node("placeholder", name, () if default_value is _NO_DEFAULT else (default_value,))

    def call_function(self, fn, args=(), kwargs=None, type_expr=None, name=None):
        return self.create_node("call_function", fn, args, kwargs, name)

    def call_method(self, name, args=(), kwargs=None, type_expr=None):
        return self.create_node("call_method", name, args, kwargs)

    def call_module(self, name, args=(), kwargs=None, type_expr=None):
        return self.create_node("call_module", name, args, kwargs)

    def get_attr(self, name, type_expr=None):
        return self.create_node("get_attr", name)

    def output(self, result, type_expr=None):
        return self.create_node("output", "output", (result,))

    def erase_node(self, n):
        if n.users:
            raise RuntimeError(f"Tried to erase Node {n} but it still had {len(n.users)} users in the graph: {n.users}!")
        n._set((), {})
        n._unlink()
        n._erased = True

    def inserting_before(self, n=None):
        return _Insert(self, n if n is not None else self._root._next)

    def inserting_after(self, n=None):
        return _Insert(self, n._next if n is not None else self._root._next)

    def node_copy(self, node, arg_transform=lambda x: x):
        n = self.create_node(node.op, node.target, tuple(map_arg(node.args, arg_transform)), map_arg(node.kwargs, arg_transform), node.name)
        n.meta = dict(node.meta)
        return n

    def find_nodes(self, *, op, target=None, sort=True):
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def output_node(self):
        return next(iter(reversed(self.nodes)))

    def eliminate_dead_code(self):
        changed = False
        for n in reversed(list(self.nodes)):
            name = getattr(n.target, "__name__", n.target) if n.op in ("call_function", "call_method") else ""
            impure = n.op in ("placeholder", "output") or (name[-1:] == "_" and name[:-1] not in ("and", "or")) or name in _INPLACE
            if not n.users and not impure:
                self.erase_node(n)
                changed = True
        return changed

    def lint(self):
        seen = set()
        for n in self.nodes:
            if n.op not in ("placeholder", "call_function", "call_method", "call_module", "get_attr", "output"):
                raise RuntimeError(f"Node {n} had unknown opcode {n.op}!")
            if n.graph is not self:
                raise RuntimeError(f"Node {n} does not belong to this Graph!")
            for a in n.all_input_nodes:
                if a not in seen:
                    raise RuntimeError(f"Argument {a} of Node {n} was used before it has been defined! Please check that Nodes in the graph are topologically ordered\n{self}")
            seen.add(n)

    def _parameters(self):
        """The placeholders as a signature: defaults, *args and **kwargs as the traced function has them."""
        return ["self"] + ["*" * (len(n.target) - len(n.target.lstrip("*"))) + n.name + (f" = {_show(n.args[0])}" if n.args else "")
                           for n in self.nodes if n.op == "placeholder"]

    def python_code(self, root="self"):
        lines = [f"def forward({', '.join(self._parameters())}):"]
        lines += ["    " + _line(n) for n in self.nodes if n.op != "placeholder"]
        for n in reversed(list(self.nodes)):
            for a in reversed(n.args):
                if isinstance(a, GraphModule):
                    lines = a.code.replace("def forward(", f"def {a._class_name}(", 1).rstrip("\n").splitlines() + [""] + lines
        return "\n".join(lines) + "\n"

    def print_tabular(self):
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(n.op, n.name, _name_of(n.target), _show(n.args), str(dict(n.kwargs))) for n in self.nodes]
        w = [max(len(r[i]) for r in rows) for i in range(5)]
        for i, r in enumerate(rows):
            print("  ".join(c.ljust(k) for c, k in zip(r, w)).rstrip())
            if i == 0:
                print("  ".join("-" * k for k in w))

    def __str__(self):
        return "graph():\n" + "\n".join("    %" + _line(n) if n.op != "placeholder" else f"    %{n.name} = placeholder[target={n.target}]" for n in self.nodes)


class _NodeList:
    def __init__(self, graph):
        self.graph = graph

    def __iter__(self):
        n = self.graph._root._next
        while n is not self.graph._root:
            if not n._erased:
                yield n
            n = n._next

    def __reversed__(self):
        n = self.graph._root._prev
        while n is not self.graph._root:
            yield n
            n = n._prev

    def __len__(self):
        return sum(1 for _ in self)

    def __getitem__(self, i):
        return list(self)[i]


class Interpreter:
    """Runs a graph module node by node; subclass to change what nodes do."""

    def __init__(self, module, garbage_collect_values=True, graph=None):
        self.module, self.graph = module, graph or module.graph
        self.env, self.symbols, self.args_iter = {}, {}, iter(())

    def run(self, *args, initial_env=None, enable_io_processing=True):
        """initial_env: values of nodes that are not to be computed."""
        self.env, self.symbols, self.args_iter = dict(initial_env or {}), {}, iter(args)
        for n in self.graph.nodes:
            if n in self.env:
                continue
            out = self.run_node(n)
            if n.op == "output":
                return out
            self.env[n] = out
            self._bind(n.meta.get("val"), out)

    def _bind(self, fake, real):
        """Symbols in the type that was recorded take the sizes that are there now."""
        if isinstance(fake, _C.SymInt) and isinstance(real, int):
            self.symbols.setdefault(str(fake), int(real))
        elif isinstance(fake, _C.Tensor) and isinstance(real, _C.Tensor):
            for f, r in zip((*fake.shape, *fake.stride()), (*real.shape, *real.stride())):
                if isinstance(f, _C.SymInt):
                    self.symbols.setdefault(str(f), r)

    def _values(self, a):
        if isinstance(a, (list, tuple)):
            return type(a)(self._values(x) for x in a)
        return _C._sym_eval(a, self.symbols) if isinstance(a, _C.SymInt) else a

    def map_nodes_to_values(self, args, n):
        """args of the node n with values for nodes."""
        def look(x):
            if x not in self.env:
                raise RuntimeError(f"Node {n} referenced nonexistent value {x}! Run Graph.lint() to diagnose such issues")
            return self.env[x]
        return map_arg(args, look)

    def fetch_args_kwargs_from_env(self, n):
        args, kwargs = self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)
        if self.symbols:
            args, kwargs = self._values(args), {k: self._values(v) for k, v in kwargs.items()}
        return args, kwargs

    def fetch_attr(self, target):
        o = self.module
        for part in target.split("."):
            o = getattr(o, part)
        return o

    def run_node(self, n):
        return getattr(self, n.op)(n.target, *self.fetch_args_kwargs_from_env(n))

    def placeholder(self, target, args, kwargs):
        if target.startswith("*"):  # what is left of the arguments
            return list(self.args_iter)
        out = next(self.args_iter, args[0] if args else _NO_DEFAULT)
        if out is _NO_DEFAULT:
            raise RuntimeError(f"Expected positional argument for parameter {target}, but one was not passed in!")
        return out

    def call_function(self, target, args, kwargs):
        return target(*args, **kwargs)

    def call_method(self, target, args, kwargs):
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target, args, kwargs):
        return self.module.get_submodule(target)(*args, **kwargs)

    def get_attr(self, target, args, kwargs):
        return self.fetch_attr(target)

    def output(self, target, args, kwargs):
        return args[0]


# ---- graphs as Python functions ----
class _Emit:
    """Names for everything a graph's code mentions."""

    def __init__(self, graph):
        self.globals = {"inf": math.inf, "nan": math.nan}
        self.taken = set(graph._names) | set(self.globals) | {"self"}

    def bind(self, value, base):
        for name, v in self.globals.items():
            if v is value:
                return name
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in base)
        name, i = base if base.isidentifier() and not keyword.iskeyword(base) else "_" + base, 0
        while name in self.taken or hasattr(builtins, name):
            i += 1
            name = f"{base}_{i}"
        self.taken.add(name)
        self.globals[name] = value
        return name

    def target(self, fn):
        mod, name = getattr(fn, "__module__", None) or "", getattr(fn, "__name__", "call")
        if mod == "builtins" and getattr(builtins, name, None) is fn:
            return name
        return self.bind(fn, f"{mod}_{name}".lstrip("_") if mod.split(".")[0] in ("taper", "torch", "_operator", "math") else name)

    def arg(self, a):
        if isinstance(a, Node):
            return a.name
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return f"{self.bind(type(a), type(a).__name__)}({', '.join(map(self.arg, a))})"
        if isinstance(a, tuple):
            return "(" + "".join(self.arg(x) + ", " for x in a).rstrip(" " if len(a) == 1 else ", ") + ")"
        if isinstance(a, list):
            return "[" + ", ".join(map(self.arg, a)) + "]"
        if isinstance(a, dict):
            return "{" + ", ".join(f"{k!r}: {self.arg(v)}" for k, v in a.items()) + "}"
        if isinstance(a, slice):
            return f"slice({self.arg(a.start)}, {self.arg(a.stop)}, {self.arg(a.step)})"
        if type(a) in (int, float, bool, str, bytes, complex, type(None), type(Ellipsis)):
            return repr(a)
        return self.bind(a, getattr(a, "__name__", type(a).__name__))


def _function(gm):
    """forward(self, ...) of a graph, with its text where tracebacks and debuggers find it."""
    e, g = _Emit(gm.graph), gm.graph
    last = {}
    for n in g.nodes:
        for a in n.all_input_nodes:
            last[a] = n
    lines = []
    for n in g.nodes:
        call = ", ".join([e.arg(a) for a in n.args] + [f"{k} = {e.arg(v)}" for k, v in n.kwargs.items()])
        if n.op == "placeholder":
            continue
        if n.op == "output":
            lines.append(f"return {e.arg(n.args[0])}")
        elif n.op == "get_attr":
            lines.append(f"{n.name} = {_path(n.target)}")
        elif n.op == "call_module":
            lines.append(f"{n.name} = {_path(n.target)}({call})")
        elif n.op == "call_method":
            rest = ", ".join([e.arg(a) for a in n.args[1:]] + [f"{k} = {e.arg(v)}" for k, v in n.kwargs.items()])
            lines.append(f"{n.name} = {e.arg(n.args[0])}.{n.target}({rest})")
        else:
            lines.append(f"{n.name} = {e.target(n.target)}({call})")
        if n.op != "output":
            dead = [a.name for a in n.all_input_nodes if last.get(a) is n]
            if dead:
                lines[-1] += f";  {' = '.join(dead)} = None"
    params = ["self"]
    for n in g.nodes:
        if n.op == "placeholder":
            stars = "*" * (len(n.target) - len(n.target.lstrip("*")))
            params.append(stars + n.name + (f" = {e.arg(n.args[0])}" if n.args else ""))
    text = f"def forward({', '.join(params)}):\n" + "".join(f"    {x}\n" for x in lines or ["pass"])
    file = f"<graph {gm._class_name} {next(_texts)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), e.globals)
    return e.globals["forward"]


_texts = itertools.count()


class Transformer(Interpreter):
    """Runs a graph module on proxies: what its methods return instead of a call goes into a new one."""

    def __init__(self, module):
        super().__init__(module)
        from ._symbolic_trace import Tracer
        self.new_graph = Graph()
        self.tracer = Tracer()
        self.tracer.graph, self.tracer.root = self.new_graph, module

    def _proxy(self, *node):
        return self.tracer.proxy(self.new_graph.create_node(*node))

    def placeholder(self, target, args, kwargs):
        return self._proxy("placeholder", target, args)

    def get_attr(self, target, args, kwargs):
        return self._proxy("get_attr", target)

    def call_module(self, target, args, kwargs):
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target, args, kwargs):
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target, args, kwargs):
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self):
        for n in self.graph.nodes:
            look = lambda x: self.env[x]  # noqa: E731
            out = getattr(self, n.op)(n.target, map_arg(n.args, look), map_arg(n.kwargs, look))
            if n.op == "output":
                self.new_graph.output(self.tracer.create_arg(out))
            self.env[n] = out
        return GraphModule(self.module, self.new_graph)


class GraphModule(Module):
    """A graph that can be called."""

    def __init__(self, root=None, graph=None, class_name="GraphModule"):
        super().__init__()
        self._capsule = None
        self._edited = True
        self.meta = {}
        self.graph = graph or Graph(self)
        self.graph.owning_module = self
        self._class_name = class_name
        if root is not None:  # what the graph reads of the module it was made from
            if isinstance(root, Module):
                self.training = root.training
            for n in self.graph.nodes:
                if n.op in ("get_attr", "call_module"):
                    self._take(root, n.target)
            if graph is not None and self.graph.nodes:
                self.recompile()

    def _take(self, root, target):
        """The attribute of that path, with the modules on the way to it."""
        if isinstance(root, dict):
            if target not in root:
                raise RuntimeError(f"Node referenced nonexistent target {target}! Not in the root dictionary that was given")
            src = root[target]
        else:
            src = root
            for part in target.split("."):
                if not hasattr(src, part):
                    raise RuntimeError(f"Node referenced nonexistent target {target}!")
                src = getattr(src, part)
        *way, last = target.split(".")
        at = self
        for part in way:
            if not hasattr(at, part):
                at.add_module(part, Module())
            at = getattr(at, part)
        if isinstance(src, _C.Tensor) and not isinstance(src, Parameter) and last not in at._buffers:
            at.register_buffer(last, src)
        else:
            setattr(at, last, src)

    @classmethod
    def _from_capture(cls, capsule, aten=False):
        """aten: calls are shown as operators (taper.ops.aten.sin.default) instead of as users write them."""
        named = _overload if aten else _target
        gm = cls()
        gm._capsule = capsule
        gm._runner = _C._graph_runner(capsule)
        gm._class_name = _C._graph_name(capsule)
        env = {}

        def val(a):
            if type(a) is tuple and len(a) == 2 and a[0] == "%node":
                return env[a[1]]
            if type(a) is tuple and len(a) == 2 and a[0] == "%graph":
                sub = cls._from_capture(a[1], aten)
                setattr(gm, sub._class_name, sub)
                return sub
            if isinstance(a, list):
                return [val(x) for x in a]
            return a
        g = gm.graph
        for nid, op, name, target, args, kwargs, value, locs, written, back in _C._graph_nodes(capsule):
            args = tuple(val(a) for a in args)
            if written is not None and not aten:
                target, args = written, args[::-1] if back and len(args) == 2 else args
            if op == "call_function":
                target = operator.getitem if target == "%getitem" else _opaque(target[1:]) if isinstance(target, str) and target[:1] == "%" \
                    else named(target) if isinstance(target, str) else target
            elif op == "output":
                args = (args,)
            elif op == "get_attr":
                setattr(gm, name, value)
                target = name
            elif op == "placeholder":
                source, target = target, name[:1].upper() + name[1:] if name.startswith("l_") else name
            g._names.add(name)
            n = env[nid] = Node(g, name, op, target, args, {k: val(v) for k, v in kwargs.items()})
            g._root.prepend(n)
            n.meta["val"] = n.meta["example_value"] = value
            if op == "placeholder":
                n.meta["source"] = source
            if locs:
                n.meta["stack_trace"] = "".join(f'  File "{f}", line {ln}, in {fn}\n    {code}\n' for f, ln, fn, code in reversed(locs))
        gm._mark = gm._state()
        return gm

    def _state(self):
        return [(n, n.target, n.args, tuple(n.kwargs.items())) for n in self.graph.nodes]

    def forward(self, *args, **kwargs):
        if self._capsule is not None and self._state() == self._mark:
            return self._runner(*args, **kwargs)
        if self._symbolic():
            return Interpreter(self).run(*args)
        self.recompile()
        return self.forward(*args, **kwargs)

    def _symbolic(self):
        found = []
        for n in self.graph.nodes:
            map_aggregate((n.args, n.kwargs), lambda a: found.append(a) if isinstance(a, _C.SymInt) else None)
        return bool(found)

    def recompile(self):
        """The graph as Python code that calls run from now on. Graphs that were captured do so by themselves after edits."""
        self.graph.lint()
        if not self._symbolic():
            cls = type(self)
            if not cls.__dict__.get("_own"):  # forward is looked up on the class
                cls = type(cls.__name__, (cls,), {"_own": True, "__module__": cls.__module__})
                self.__class__ = cls
            cls.forward = _function(self)
        return self.graph.python_code()

    @property
    def code(self):
        return self.graph.python_code()

    def print_readable(self, print_output=True, *args, **kwargs):
        if self._capsule is not None and self._state() == self._mark:
            text = _C._graph_text(self._capsule)
        else:
            text = f"class {self._class_name}(taper.nn.Module):\n" + "\n".join("    " + line for line in self.code.splitlines()) + "\n"
        if print_output:
            print(text)
        return text

    def __deepcopy__(self, memo):
        new = GraphModule(class_name=self._class_name)
        env = {}
        for n in self.graph.nodes:
            env[n] = new.graph.node_copy(n, lambda x: env[x])
        own = copy.deepcopy({k: self.__dict__[k] for k in ("_parameters", "_buffers", "_modules")}, memo)
        new.__dict__.update(own)
        for n in self.graph.nodes:  # constants of a captured graph are plain attributes
            if n.op == "get_attr" and n.target in self.__dict__:
                setattr(new, n.target, self.__dict__[n.target])
        new.training = self.training
        return new

    def __repr__(self):
        return f"{self._class_name}()\n\n\n\n{self.code}"
