"""From PyTorch's FX graphs to Taper's: what each node becomes (src/capture/bridge_import.c builds it)."""
import operator
import re

import sympy
import taper
import torch
from taper import _C

DTYPES = {torch.bool: taper.bool, torch.uint8: taper.uint8, torch.int8: taper.int8, torch.int16: taper.int16,
          torch.int32: taper.int32, torch.int64: taper.int64, torch.float16: taper.float16, torch.bfloat16: taper.bfloat16,
          torch.float32: taper.float32, torch.float64: taper.float64}
CONSTS = {**DTYPES, torch.device("cpu"): taper.device("cpu"), torch.strided: taper.strided,
          torch.contiguous_format: taper.contiguous_format, torch.preserve_format: taper.preserve_format,
          torch.channels_last: taper.channels_last}
if hasattr(taper, "channels_last_3d"):
    CONSTS[torch.channels_last_3d] = taper.channels_last_3d

aten, prims = torch.ops.aten, torch.ops.prims
# Operators under another name in Taper's table, with the same arguments.
NAMES = {"_unsafe_view": "view", "lift_fresh_copy": "clone", "lift_fresh": "clone", "_unsafe_index.Tensor": "index.Tensor",
         "_unsafe_index_put": "index_put", "view_copy": "view", "expand_copy": "expand", "permute_copy": "permute",
         "squeeze_copy.dim": "squeeze.dim", "unsqueeze_copy": "unsqueeze", "t_copy": "t", "transpose_copy.int": "transpose.int",
         "detach_copy": "detach", "alias_copy": "alias"}


class Unsupported(Exception):
    """This graph stays in PyTorch."""


def row_name(op):
    """The name of an overload in Taper's table, or None: "add.Tensor"."""
    if op.namespace != "aten":
        return None
    name = op._opname + ("" if op._overloadname == "default" else "." + op._overloadname)
    name = NAMES.get(name, name)
    if not _C._has_row(name) and name.endswith(".Scalar"):
        name = name[:-6] + "Tensor"
    return name


def has_row(op):
    name = row_name(op)
    return name is not None and _C._has_row(name)


_POWER = re.compile(r"(\b\w+)\*\*(\d+)")


class _Importer:
    def __init__(self, gm, values):
        self.gm, self.out, self.symbols, self.seen = gm, [], [], set()
        self.values = values  # None: symbolic; else the values of the symbolic inputs, in order
        self.bound = {}

    # --- types ---
    def number(self, v):
        """An int, or the text of a symbolic one."""
        if isinstance(v, int):
            return int(v)
        expr = v.node.expr
        if self.bound:
            expr = expr.xreplace(self.bound)
        if expr.is_Integer:
            return int(expr)
        for s in sorted(expr.free_symbols, key=str):
            if s.name in self.seen:
                continue
            env = v.node.shape_env
            if not v.node.has_hint():
                raise Unsupported(f"the size {expr} is decided by data")
            r = env.bound_sympy(s)
            hint = (env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val)[s]
            lo = int(r.lower) if r.lower.is_Integer else 0
            hi = int(r.upper) if r.upper.is_Integer else 1 << 61
            self.seen.add(s.name)
            self.symbols.append((s.name, int(hint), lo, hi))
        return _POWER.sub(lambda m: "(" + "*".join([m[1]] * int(m[2])) + ")", str(expr))

    def type(self, v):
        if isinstance(v, torch.Tensor):
            if type(v) is not torch._subclasses.FakeTensor and type(v) not in (torch.Tensor, torch.nn.Parameter):
                raise Unsupported(f"a tensor of the subclass {type(v).__name__}")
            if v.layout is not torch.strided or v.dtype not in DTYPES or v.device.type != "cpu":
                what = v.device.type if v.device.type != "cpu" else v.dtype if v.layout is torch.strided else v.layout
                raise Unsupported(f"a tensor of {what}")
            return (DTYPES[v.dtype], [self.number(s) for s in v.size()], [self.number(s) for s in v.stride()])
        if isinstance(v, (torch.SymInt, int)) and not isinstance(v, bool):
            return str(self.number(v))
        if isinstance(v, (list, tuple)):
            return [None if e is None else self.type(e) for e in v]
        if v is None:
            return None
        raise Unsupported(f"a value of type {type(v).__name__}")

    # --- nodes ---
    def add(self, node, kind, target=None, args=(), kwargs={}, type=None):
        self.out.append((node, kind, node.name, target, tuple(args), dict(kwargs), type, node.meta.get("stack_trace")))

    def opaque(self, node):
        """(name, callable, operands): node's call as PyTorch makes it, on values of ours."""
        operands = []

        def place(n):
            if isinstance(n.meta.get("val"), torch.fx.GraphModule) or n.op == "get_attr" and isinstance(
                    getattr(self.gm, n.target, None), torch.nn.Module):
                return getattr(self.gm, n.target)
            operands.append(n)
            return _Slot(len(operands) - 1)

        args, kwargs = torch.fx.map_arg(node.args, place), torch.fx.map_arg(node.kwargs, place)
        return str(node.target), _Call(node.target, args, kwargs, node.meta.get("val")), operands

    def call(self, node):
        target, val = node.target, node.meta.get("val")
        if target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
            return self.add(node, "item", args=node.args)
        if isinstance(val, torch.SymInt):
            return self.add(node, "symbol", str(self.number(val)))
        if isinstance(val, (torch.SymFloat, torch.SymBool)):
            raise Unsupported(f"{target} computes with sizes to a {type(val).__name__}")
        if not isinstance(target, torch._ops.OpOverload):
            return self.add(node, "opaque", self.opaque(node), type=self.type(val))
        args, kwargs = node.args, node.kwargs
        if target is prims.convert_element_type.default:
            return self.add(node, "call", "_to_copy", args[:1], {"dtype": args[1]}, self.type(val))
        name = row_name(target)
        if name is None:
            return self.add(node, "opaque", self.opaque(node), type=self.type(val))
        self.add(node, "call", name, args, kwargs, self.type(val))

    def run(self, name):
        places = []
        for node in self.gm.graph.nodes:
            if node.op == "placeholder":
                val = node.meta.get("val")
                if isinstance(val, (torch.SymInt, int)) and not isinstance(val, bool):
                    places.append(val)
        if self.values is not None:  # every symbol has the value it has now
            for val, now in zip(places, self.values):
                if isinstance(val, torch.SymInt) and val.node.expr.is_Symbol:
                    self.bound[val.node.expr] = sympy.Integer(now)
        for node in self.gm.graph.nodes:
            if node.op == "placeholder":
                val = node.meta.get("val")
                self.add(node, "placeholder", type=self.type(val))
            elif node.op == "get_attr":
                t = getattr(self.gm, node.target)
                if isinstance(t, torch.nn.Module):
                    continue
                self.type(t)
                self.add(node, "const", taper.from_dlpack(t.detach()).clone())
            elif node.op == "call_function":
                self.call(node)
            elif node.op == "output":
                outs = node.args[0] if isinstance(node.args[0], (list, tuple)) else (node.args[0],)
                types = [self.type(o.meta["val"]) if isinstance(o, torch.fx.Node) and isinstance(o.meta.get("val"), torch.Tensor)
                         else None for o in outs]
                self.add(node, "output", args=outs, type=types)
            else:
                raise Unsupported(f"a node {node.op} {node.target}")
        graph, refused, keep = _C._graph_import(name, self.out, self.symbols, CONSTS, self.opaque)
        lines = {n.name: _line(n.meta.get("stack_trace")) for n in self.gm.graph.nodes}
        refused += [(n.name, str(n.target), "no row in Taper's table") for n, kind, *_ in self.out if kind == "opaque"]
        return graph, [(n, op, why, lines.get(n, "")) for n, op, why in refused], keep


class _Slot:
    __slots__ = ("i",)

    def __init__(self, i):
        self.i = i


def _line(stack):
    frames = re.findall(r'File "([^"]*)", line (\d+), in (\S+)', stack or "")
    return "%s:%s in %s" % frames[-1] if frames else ""


class _Call:
    """One call of PyTorch's inside a program of Taper's."""

    def __init__(self, target, args, kwargs, val):
        self.target, self.args, self.kwargs = target, args, kwargs
        self.flat, self.spec = torch.utils._pytree.tree_flatten((args, kwargs))
        self.want = [v for v in (val if isinstance(val, (list, tuple)) else [val])]

    def __call__(self, *values):
        there = [torch.from_dlpack(v) if isinstance(v, taper.Tensor) else v for v in values]
        args, kwargs = torch.utils._pytree.tree_unflatten([there[a.i] if isinstance(a, _Slot) else a for a in self.flat], self.spec)
        with torch.no_grad():
            out = self.target(*args, **kwargs)
        held = {v.untyped_storage().data_ptr() for v in there if isinstance(v, torch.Tensor)}
        several = isinstance(out, (list, tuple))
        back = [self.give(o, w, held) for o, w in zip(out if several else [out], self.want)]
        return back if several else back[0]

    @staticmethod
    def give(o, want, held):
        if not isinstance(o, torch.Tensor):
            return o
        if not any(isinstance(s, torch.SymInt) for s in want.stride()) and o.stride() != want.stride():
            o = torch.empty_strided(o.size(), want.stride(), dtype=o.dtype).copy_(o)  # its fake promised other strides
        elif o.untyped_storage().data_ptr() in held:
            o = o.clone(memory_format=torch.preserve_format)  # the program plans the memory of its own values
        return taper.from_dlpack(o.detach())


def import_graph(gm, name, values=None):
    """-> (graph, [(node, operator, reason, line)] of calls back into PyTorch, what must live as long as the graph)."""
    return _Importer(gm, values).run(name)
