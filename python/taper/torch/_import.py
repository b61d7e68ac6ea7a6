"""From PyTorch's FX graphs to Taper's: what each node becomes (src/capture/bridge_import.c builds it)."""
import operator
import re

import sympy
import taper
import torch
from taper import _C
from torch.utils._python_dispatch import _disable_current_modes

DTYPES = {torch.bool: taper.bool, torch.uint8: taper.uint8, torch.int8: taper.int8, torch.int16: taper.int16,
          torch.int32: taper.int32, torch.int64: taper.int64, torch.float16: taper.float16, torch.bfloat16: taper.bfloat16,
          torch.float32: taper.float32, torch.float64: taper.float64}
CONSTS = {**DTYPES, torch.device("cpu"): taper.device("cpu"), torch.strided: taper.strided,
          torch.contiguous_format: taper.contiguous_format, torch.preserve_format: taper.preserve_format,
          torch.channels_last: taper.channels_last}
if hasattr(taper, "channels_last_3d"):
    CONSTS[torch.channels_last_3d] = taper.channels_last_3d

aten, prims = torch.ops.aten, torch.ops.prims
FMA = prims.fma.default if hasattr(prims, "fma") else None
# Operators under another name in Taper's table, with the same arguments.
NAMES = {"_unsafe_view": "view", "lift_fresh_copy": "clone", "lift_fresh": "clone", "_unsafe_index.Tensor": "index.Tensor",
         "_unsafe_index_put": "index_put", "pow.Scalar": "pow.Tensor_Tensor"}
# Arguments that Taper's row does not take.
UNUSED_AFTER = {"log_sigmoid_backward": 2}
# Rows whose later results PyTorch's derivatives read in a way of their own (the factors of a matrix, or of its transpose where it is
# contiguous): how many results are plain.
PLAIN_RESULTS = {"_linalg_det": 1, "_linalg_slogdet": 2, "_linalg_solve_ex": 1}
# Calls whose first result alone is a row of Taper's; usable where the others are not used.
FIRST_RESULT = {
    "_scaled_dot_product_flash_attention_for_cpu": lambda q, k, v, dropout_p=0.0, is_causal=False, attn_mask=None, scale=None:
        ("scaled_dot_product_attention", (q, k, v, attn_mask, dropout_p, is_causal), {"scale": scale, "enable_gqa": heads(q) != heads(k)})}


def heads(node):
    return node.meta["val"].shape[1]


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
        self.first = set()  # nodes that became their first result

    # --- types ---
    def value(self, v):
        """A SymFloat or SymBool as a number: the symbols have values."""
        e = v.node.expr.xreplace(self.bound)
        if e.free_symbols:
            raise Unsupported(f"{e} is computed with sizes to a {type(v).__name__}")
        return bool(e) if isinstance(v, torch.SymBool) else float(e)

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
            if any(isinstance(e, (list, tuple)) for e in v):
                raise Unsupported("a list of lists of tensors")
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
            if not isinstance(node.args[0].meta.get("val"), (list, tuple)):
                raise Unsupported(f"{node.args[0].target} gives results of unknown types")
            if node.args[0] in self.first:
                return self.add(node, "same", args=node.args)
            return self.add(node, "item", args=node.args, type=self.type(val) if isinstance(val, torch.Tensor) else None)
        if isinstance(val, torch.SymInt):
            return self.add(node, "symbol", str(self.number(val)))
        if isinstance(val, (torch.SymFloat, torch.SymBool)):
            return self.add(node, "number", self.value(val))
        if val is None and node.users:
            raise Unsupported(f"{target} gives results of unknown types")
        if not isinstance(target, torch._ops.OpOverload):
            return self.add(node, "opaque", self.opaque(node), type=self.type(val))
        args, kwargs = node.args, node.kwargs
        if target is prims.convert_element_type.default:
            return self.add(node, "call", "_to_copy", args[:1], {"dtype": args[1]}, self.type(val))
        if target is FMA:
            a, b, c = args
            a, b = (b, a) if not isinstance(a, torch.fx.Node) else (a, b)
            return self.add(node, "call", "addcmul", (c, a, b), {}, self.type(val)) if isinstance(b, torch.fx.Node) else \
                self.add(node, "call", "add.Tensor", (c, a), {"alpha": b}, self.type(val))
        name = row_name(target)
        if name is None:
            return self.add(node, "opaque", self.opaque(node), type=self.type(val))
        if name in PLAIN_RESULTS and any(u.target is operator.getitem and u.args[1] >= PLAIN_RESULTS[name] for u in node.users):
            return self.add(node, "opaque", self.opaque(node), type=self.type(val))
        if name in FIRST_RESULT and all(u.target is operator.getitem and u.args[1] == 0 for u in node.users):
            self.first.add(node)
            name, args, kwargs = FIRST_RESULT[name](*args, **kwargs)
            return self.add(node, "first", name, args, kwargs, self.type(val)[0])
        self.add(node, "call", name, args[:UNUSED_AFTER.get(name, len(args))], kwargs, self.type(val))

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
                with _disable_current_modes():  # tracing is on: the data would be fake
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
        roots = [_root(o) if isinstance(o, torch.fx.Node) else None for o in self.out[-1][4]]
        numbers = {}
        roots = [0 if r is None or r.op == "placeholder" else numbers.setdefault(r, len(numbers) + 1) for r in roots]
        lines = {n.name: _line(n.meta.get("stack_trace")) for n in self.gm.graph.nodes}
        refused += [(n.name, str(n.target), "its factors are used" if getattr(n.target, "_opname", "") in PLAIN_RESULTS
                     else "there is no operator of this name") for n, kind, *_ in self.out if kind == "opaque"]
        return graph, [(n, op, why, lines.get(n, "")) for n, op, why in refused], keep, roots


class _Slot:
    __slots__ = ("i",)

    def __init__(self, i):
        self.i = i


def _root(node):
    """The node whose memory PyTorch says node's value lies in."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], torch.fx.Node):
        of = node.args[0]
        view = node if node.target is not operator.getitem else of
        if view.op != "call_function" or not isinstance(view.target, torch._ops.OpOverload):
            break
        returns = view.target._schema.returns
        if not any(r.alias_info for r in returns):
            break
        node = of
    return node


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
        held = {v.untyped_storage().data_ptr() for v in there if isinstance(v, torch.Tensor) and v.numel()}
        several = isinstance(out, (list, tuple))
        back = [self.give(o, w, held) for o, w in zip(out if several else [out], self.want)]
        return back if several else back[0]

    @staticmethod
    def give(o, want, held):
        if not isinstance(o, torch.Tensor):
            return o
        if o._is_zerotensor():
            o = torch.zeros(o.size(), dtype=o.dtype)
        if o.dtype != want.dtype:
            o = o.to(want.dtype)  # its fake promised another type
        if not any(isinstance(s, torch.SymInt) for s in want.stride()) and o.stride() != want.stride():
            o = torch.empty_strided(o.size(), want.stride(), dtype=o.dtype).copy_(o)  # its fake promised other strides
        elif o.untyped_storage().data_ptr() in held:
            o = o.clone(memory_format=torch.preserve_format)  # the program plans the memory of its own values
        return taper.from_dlpack(o.detach())


def supported(node):
    """Has Taper types for what this node takes and gives?"""
    def fits(v):
        if isinstance(v, torch.Tensor):
            return v.layout is torch.strided and v.dtype in DTYPES and v.device.type == "cpu" and not any(
                isinstance(s, torch.SymInt) and not s.node.has_hint() for s in (*v.size(), *v.stride()))
        if isinstance(v, (list, tuple)):
            return all(not isinstance(e, (list, tuple)) and fits(e) for e in v)
        return v is None or isinstance(v, (int, float)) or isinstance(v, torch.SymInt) and v.node.has_hint()

    if isinstance(node.meta.get("val"), (int, torch.SymInt, type(None))):
        return False  # numbers stay outside: they are inputs of the parts
    if any(n.meta.get("val") is None for n in node.all_input_nodes):
        return False  # of unknown type
    return all(n.op != "get_attr" and fits(n.meta.get("val")) for n in (node, *node.all_input_nodes))


def import_graph(gm, name, values=None):
    """-> (graph, [(node, operator, reason, line)] of calls back into PyTorch, what must live as long as the graph, for each result the
    number of the value whose memory it may share, 0 for an input's)."""
    return _Importer(gm, values).run(name)
