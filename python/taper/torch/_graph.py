"""Graphs of PyTorch's as data: taken from FX, printed as a Python function and parsed again without running it."""
import ast
import builtins
import importlib
import math
import operator
import re

import torch

_ROOTS = {"torch": torch, "operator": operator, "math": math, "builtins": builtins}
_BUILTINS = ("getattr", "len", "slice", "max", "min", "abs", "int", "float", "bool", "sum", "round")


class NoName(Exception):
    """Something in a graph that has no name or no text, so that it cannot be saved."""


class Ref:
    """A value of the graph, by name."""
    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name


class Op:
    """name = target(*args, **kwargs). kind: call, method (target is its name, the first argument the object), graph (target is a Graph)."""
    __slots__ = ("name", "kind", "target", "args", "kwargs", "line")

    def __init__(self, name, kind, target, args=(), kwargs=None, line=""):
        self.name, self.kind, self.target, self.args, self.kwargs, self.line = name, kind, target, tuple(args), kwargs or {}, line

    def replaced(self, change):
        """The operator with change(name) in place of each value."""
        return Op(self.name, self.kind, self.target, walk(self.args, change), walk(self.kwargs, change), self.line)


class Graph:
    """A straight line of operators: names of inputs, operators, and a flat list of results (Ref, number or None)."""
    __slots__ = ("inputs", "ops", "outputs")

    def __init__(self, inputs, ops, outputs):
        self.inputs, self.ops, self.outputs = list(inputs), list(ops), list(outputs)


def walk(x, change):
    if isinstance(x, Ref):
        return change(x)
    if isinstance(x, tuple):
        return tuple(walk(v, change) for v in x)
    if isinstance(x, list):
        return [walk(v, change) for v in x]
    if isinstance(x, dict):
        return {k: walk(v, change) for k, v in x.items()}
    if isinstance(x, slice):
        return slice(walk(x.start, change), walk(x.stop, change), walk(x.step, change))
    return x


def used(x):
    """The names of the values in an argument."""
    out = []
    walk(x, lambda r: out.append(r.name) or r)
    return out


def op_uses(op):
    return used(op.args) + used(op.kwargs)


# ---- names of functions ----
def resolve(path):
    """The object that a dotted path names, in torch, operator, math and among a few builtins."""
    parts = path.split(".")
    if parts[0] == "builtins" and parts[-1] not in _BUILTINS:
        raise NoName(f"'{path}' may not stand in a graph")
    obj = _ROOTS.get(parts[0])
    if obj is None:
        raise NoName(f"'{path}' is no function of PyTorch's")
    for i, p in enumerate(parts[1:], 1):
        try:
            obj = getattr(obj, p)
        except AttributeError:
            try:
                obj = importlib.import_module(".".join(parts[:i + 1])) if parts[0] == "torch" else None
            except ImportError:
                obj = None
            if obj is None:
                raise NoName(f"'{path}' does not exist in this PyTorch; a custom operator has to be registered first") from None
    return obj


def path_of(fn):
    """The path by which resolve() finds a function again."""
    tries = []
    if isinstance(fn, torch._ops.OpOverload):
        tries.append("torch.ops." + str(fn))
    elif isinstance(fn, torch._ops.OpOverloadPacket):
        tries.append("torch.ops." + str(fn).replace("::", "."))
    elif isinstance(fn, torch._ops.HigherOrderOperator):
        tries.append("torch.ops.higher_order." + fn.name())
    name, module = getattr(fn, "__name__", ""), getattr(fn, "__module__", None) or ""
    if module in ("_operator", "operator"):
        tries.append("operator." + name)
    if module in ("math", "builtins"):
        tries.append(f"{module}.{name}")
    try:
        tries.append(torch.fx.node._get_qualified_name(fn))
    except Exception:  # not every callable has one
        pass
    tries += [f"{m}.{name}" for m in (module, "torch", "torch.nn.functional", "torch._C._nn", "torch.Tensor", "torch._C._TensorBase") if m]
    for t in tries:
        try:
            if resolve(t) is fn or resolve(t) == fn:
                return t
        except NoName:
            pass
    raise NoName(f"{fn!r} has no name by which another process finds it")


# ---- from FX ----
def _line(node):
    """The user's line: the innermost frame of a trace that is not PyTorch's."""
    last = ""
    for m in re.finditer(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)', node.meta.get("stack_trace") or ""):
        inside = "/torch/" in m[1] and "site-packages" in m[1]
        if not inside or not last:
            last = f"{m[1]}:{m[2]}: {m[3].strip()}"
    return last


def from_fx(gm):
    """(graph, tensors): tensors are the constants of the module, which become inputs behind the others."""
    safe, ops, inputs, outputs, constants, refs = set(_ROOTS), [], [], [], {}, {}

    def name_of(node):
        name = re.sub(r"\W", "_", node.name)
        while name in safe:
            name += "_"
        safe.add(name)
        return name

    def arg(x):
        if isinstance(x, torch.fx.Node):
            return refs[x]
        if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return x.node.hint
        if isinstance(x, torch.Size):
            return tuple(arg(v) for v in x)
        if isinstance(x, tuple):
            return tuple(arg(v) for v in x)
        if isinstance(x, list):
            return [arg(v) for v in x]
        if isinstance(x, dict):
            return {k: arg(v) for k, v in x.items()}
        if isinstance(x, slice):
            return slice(arg(x.start), arg(x.stop), arg(x.step))
        return x

    for node in gm.graph.nodes:
        if node.op == "placeholder":
            inputs.append(name_of(node))
            refs[node] = Ref(inputs[-1])
        elif node.op == "output":
            outputs, _ = torch.utils._pytree.tree_flatten(arg(node.args[0]), is_leaf=lambda v: isinstance(v, Ref) or v is None)
        elif node.op == "get_attr":
            value = operator.attrgetter(node.target)(gm)
            name = name_of(node)
            refs[node] = Ref(name)
            if isinstance(value, torch.fx.GraphModule):
                inner, more = from_fx(value)
                if more:
                    raise NoName(f"the nested graph '{node.target}' holds constants")
                ops.append(Op(name, "graph", inner))
            elif isinstance(value, torch.Tensor):
                constants[name] = value
            else:
                raise NoName(f"attribute '{node.target}' is a {type(value).__name__}")
        elif node.op in ("call_function", "call_method"):
            call = node.op == "call_function"
            made = Op(name_of(node), "call" if call else "method", path_of(node.target) if call else node.target,
                      arg(node.args), arg(dict(node.kwargs)), _line(node))
            text(made)  # everything in it must have a text
            refs[node] = Ref(made.name)
            ops.append(made)
        else:
            raise NoName(f"a {node.op} of '{node.target}'")
    return Graph(inputs + list(constants), ops, outputs), list(constants.values())


# ---- text ----
def literal(x):
    if isinstance(x, Ref):
        return x.name
    if x is None or x is Ellipsis or isinstance(x, (bool, str)) or type(x) is int:
        return "..." if x is Ellipsis else repr(x)
    if isinstance(x, float):
        return repr(float(x)) if math.isfinite(x) else f"float('{float(x)}')"
    if isinstance(x, complex):
        return f"complex({literal(x.real)}, {literal(x.imag)})"
    if isinstance(x, tuple):
        return "(" + ", ".join(map(literal, x)) + ("," if len(x) == 1 else "") + ")"
    if isinstance(x, list):
        return "[" + ", ".join(map(literal, x)) + "]"
    if isinstance(x, dict):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in x.items()) + "}"
    if isinstance(x, slice):
        return f"slice({literal(x.start)}, {literal(x.stop)}, {literal(x.step)})"
    if isinstance(x, torch.device):
        return f"torch.device({str(x)!r})"
    if isinstance(x, (torch.dtype, torch.layout, torch.memory_format)):
        return str(x)
    if callable(x):
        return path_of(x)
    raise NoName(f"an argument of type {type(x).__name__}")


def text(op, indent="    "):
    if op.kind == "graph":
        return function(op.target, op.name, indent)
    args = [literal(a) for a in op.args] + [f"{k}={literal(v)}" for k, v in op.kwargs.items()]
    callee = op.target
    if op.kind == "method":
        callee, args = f"{args[0]}.{op.target}", args[1:]
    return f"{indent}{op.name} = {callee}({', '.join(args)})" + (f"  # {op.line}" if op.line else "")


def function(graph, name="f", indent=""):
    """The graph as a Python function of straight lines."""
    lines = [f"{indent}def {name}({', '.join(graph.inputs)}):"]
    lines += [text(op, indent + "    ") for op in graph.ops]
    lines.append(f"{indent}    return {literal(tuple(graph.outputs))}")
    return "\n".join(lines)


def _dotted(e):
    if isinstance(e, ast.Name):
        return e.id
    if isinstance(e, ast.Attribute):
        head = _dotted(e.value)
        return head and f"{head}.{e.attr}"
    return None


def parse(source):
    """The graph that function() printed. Nothing of the text is run; functions are looked up among PyTorch's."""
    tree = ast.parse(source)
    lines = source.splitlines()
    defs = [s for s in tree.body if isinstance(s, ast.FunctionDef)]
    if len(defs) != 1 or len(tree.body) != 1:
        raise NoName("a saved graph is one function")
    return _parse_function(defs[0], lines, set())


def _parse_function(fn, lines, outer):
    inputs = [a.arg for a in fn.args.args]
    known, ops, outputs = set(inputs) | outer, [], None

    def value(e):
        if isinstance(e, ast.Constant):
            return e.value
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return -value(e.operand)
        if isinstance(e, ast.Tuple):
            return tuple(value(v) for v in e.elts)
        if isinstance(e, ast.List):
            return [value(v) for v in e.elts]
        if isinstance(e, ast.Dict):
            return {value(k): value(v) for k, v in zip(e.keys, e.values)}
        if isinstance(e, ast.Name):
            if e.id not in known:
                raise NoName(f"line {e.lineno}: '{e.id}' is not defined")
            return Ref(e.id)
        path = _dotted(e)
        if path:
            return resolve(path)
        if isinstance(e, ast.Call):
            maker = {"slice": slice, "float": float, "complex": complex, "torch.device": torch.device}.get(_dotted(e.func))
            if maker:
                return maker(*[value(a) for a in e.args])
        raise NoName(f"line {e.lineno}: not an argument of a graph")

    for s in fn.body:
        if isinstance(s, ast.FunctionDef):
            ops.append(Op(s.name, "graph", _parse_function(s, lines, set())))
            known.add(s.name)
        elif isinstance(s, ast.Return):
            outputs = list(value(s.value))
        elif isinstance(s, ast.Assign) and isinstance(s.value, ast.Call) and isinstance(s.targets[0], ast.Name):
            call, path = s.value, _dotted(s.value.func)
            args, kwargs = [value(a) for a in call.args], {k.arg: value(k.value) for k in call.keywords}
            name, comment = s.targets[0].id, lines[s.end_lineno - 1][s.end_col_offset:].partition("  # ")[2]
            if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id in known:
                if call.func.attr.startswith("__") and not call.func.attr.endswith("__"):
                    raise NoName(f"line {s.lineno}: a private method")
                ops.append(Op(name, "method", call.func.attr, [Ref(call.func.value.id)] + args, kwargs, comment))
            elif path:
                resolve(path)
                ops.append(Op(name, "call", path, args, kwargs, comment))
            else:
                raise NoName(f"line {s.lineno}: not a call by name")
            known.add(name)
        else:
            raise NoName(f"line {s.lineno}: not a line of a graph")
    return Graph(inputs, ops, outputs if outputs is not None else [])


# ---- running ----
def make(graph):
    """A Python function of the graph."""
    source = function(graph)
    scope = dict(_ROOTS)
    exec(compile(source, "<graph>", "exec"), scope)
    return scope["f"]


def call(op, env):
    """One operator on values."""
    if op.kind == "graph":
        return make(op.target)
    get = lambda r: env[r.name]
    args, kwargs = walk(op.args, get), walk(op.kwargs, get)
    return getattr(args[0], op.target)(*args[1:], **kwargs) if op.kind == "method" else resolve(op.target)(*args, **kwargs)


_DOUBLE = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.complex64: torch.complex128}


def in_double(graph):
    """The graph with float64 where it names a smaller floating type."""
    def up(x):
        if isinstance(x, torch.dtype):
            return _DOUBLE.get(x, x)
        if isinstance(x, (list, tuple)):
            return type(x)(up(v) for v in x)
        if isinstance(x, dict):
            return {k: up(v) for k, v in x.items()}
        return x

    ops = []
    for op in graph.ops:
        if op.kind == "graph":
            ops.append(Op(op.name, "graph", in_double(op.target), line=op.line))
        elif op.kind == "method" and op.target in ("float", "half", "bfloat16"):
            ops.append(Op(op.name, "method", "double", op.args, {}, op.line))
        else:
            ops.append(Op(op.name, op.kind, op.target, up(op.args), up(op.kwargs), op.line))
    return Graph(graph.inputs, ops, graph.outputs)


def double(x):
    return x.to(_DOUBLE[x.dtype]) if isinstance(x, torch.Tensor) and x.dtype in _DOUBLE else x
