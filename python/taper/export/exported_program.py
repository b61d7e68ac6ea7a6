"""ExportedProgram: the graph with a placeholder for every weight and argument, what each stands for, and the weights."""
import ast
import contextlib
import dataclasses
import inspect
import operator

from ..fx.graph import Graph, GraphModule, map_aggregate, map_arg
from ..utils import _pytree as pytree
from .dynamic_shapes import mark
from .graph_signature import ConstantArgument, ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument


@dataclasses.dataclass
class ModuleCallSignature:
    inputs: list
    outputs: list
    in_spec: object
    out_spec: object


@dataclasses.dataclass
class ModuleCallEntry:
    fqn: str
    signature: object = None


def default_decompositions():
    from .._decomp import core_aten_decompositions
    return core_aten_decompositions()


class ExportedProgram:
    """What export() makes. module() runs it; graph, graph_signature and state_dict describe it."""
    dialect = "TRAINING"

    def __init__(self, graph_module, signature, state, constants, in_spec, out_spec, call, example, free, parameters):
        self._graph_module, self._graph_signature, self._state_dict, self._constants = graph_module, signature, state, constants
        self._in_spec, self._out_spec, self._call, self._example, self._free, self._parameters = in_spec, out_spec, call, example, free, parameters

    graph_module = property(lambda self: self._graph_module)
    graph = property(lambda self: self._graph_module.graph)
    graph_signature = property(lambda self: self._graph_signature)
    state_dict = property(lambda self: self._state_dict)
    constants = tensor_constants = property(lambda self: self._constants)
    example_inputs = property(lambda self: self._example)
    range_constraints = property(lambda self: dict(self._free))
    call_spec = property(lambda self: _CallSpec(self._in_spec, self._out_spec))
    module_call_graph = property(lambda self: [ModuleCallEntry("", ModuleCallSignature([], [], self._in_spec, self._out_spec))])

    def named_parameters(self):
        return iter([(n, self._state_dict[n]) for n in self._parameters])

    def parameters(self):
        return iter([v for _, v in self.named_parameters()])

    def named_buffers(self):
        return iter([(s.target, self._state_dict.get(s.target, self._constants.get(s.target))) for s in self._graph_signature.input_specs if s.kind == InputKind.BUFFER])

    def buffers(self):
        return iter([v for _, v in self.named_buffers()])

    def __call__(self, *args, **kwargs):
        raise RuntimeError("Unable to call ExportedProgram directly. You should use `exported_program.module()` instead.")

    def module(self, check_guards=True):
        """A module that is called as the original was, with the program's weights."""
        return _Program(self, check_guards)

    def run_decompositions(self, decomp_table=None, decompose_custom_triton_ops=False):
        """The same program; its graph is of ATen operators already, with those of decomp_table replaced by what the table makes of them."""
        table = default_decompositions() if decomp_table is None else decomp_table
        if not table:
            return self
        example, spec = self._example, self._in_spec

        def again(*leaves):
            return tuple(_Decomposed(self._graph_module, table).run(*leaves))
        from ..fx.experimental.proxy_tensor import make_fx
        flat = _inputs(self, pytree.tree_flatten(example)[0])
        gm = make_fx(again)(*flat)
        names = iter([n.name for n in self.graph.nodes if n.op == "placeholder"])
        for n in gm.graph.nodes:
            if n.op == "placeholder":
                n.name = next(names)
        return ExportedProgram(gm, self._graph_signature, self._state_dict, self._constants, spec, self._out_spec, self._call, example, self._free, self._parameters)

    def __str__(self):
        return f"ExportedProgram:\n    {self._graph_module.print_readable(print_output=False).strip()}\n\nGraph signature: {self._graph_signature}\nRange constraints: {self.range_constraints}\n"

    __repr__ = __str__


@dataclasses.dataclass
class _CallSpec:
    in_spec: object
    out_spec: object


class _Decomposed:
    def __init__(self, gm, table):
        from ..fx import Interpreter

        class Run(Interpreter):
            def call_function(self, target, args, kwargs):
                fn = table.get(target)
                return fn(*args, **kwargs) if fn is not None else super().call_function(target, args, kwargs)
        self.run = Run(gm).run


def _nn():
    from .. import nn
    return nn


def _inputs(program, leaves):
    """Everything that the graph's placeholders take, in their order."""
    rest = iter(leaves)
    out = []
    for s in program._graph_signature.input_specs:
        out.append(next(rest) if s.kind == InputKind.USER_INPUT else program._state_dict[s.target] if s.target in program._state_dict else program._constants[s.target])
    return out


def _Program(program, check):
    nn = _nn()

    class Program(nn.Module):
        """An exported program, called as the original was."""

        def __init__(self):
            super().__init__()
            self._program = program
            self._names = {}
            kinds = {s.target: s for s in program._graph_signature.input_specs if s.target}
            for name, value in {**program._state_dict, **program._constants}.items():
                flat = name.replace(".", "_")
                while hasattr(self, flat):
                    flat += "_"
                self._names[name] = flat
                spec = kinds.get(name)
                if isinstance(value, nn.Parameter):
                    self.register_parameter(flat, value)
                else:
                    self.register_buffer(flat, value, persistent=spec is not None and spec.kind == InputKind.BUFFER)

        def state_dict(self, *args, **kwargs):
            return type(program._state_dict)(program._state_dict)

        def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
            for name in program._parameters:
                yield prefix + name, getattr(self, self._names[name])

        def forward(self, *args, **kwargs):
            leaves, spec = pytree.tree_flatten(_bound(program._call, args, kwargs))
            if not _alike(spec, program._in_spec):
                raise ValueError(f"the arguments have another structure than those of export: {spec}, not {program._in_spec}")
            if check:
                _check(program, leaves)
            rest = iter(leaves)
            full = [next(rest) if s.kind == InputKind.USER_INPUT else getattr(self, self._names[s.target]) for s in program._graph_signature.input_specs]
            return pytree.tree_unflatten(list(program._graph_module(*full)), program._out_spec)

    return Program()


def _alike(a, b):
    """Are two structures the same? By loops that can be captured."""
    if a.type is not b.type or len(a.children_specs) != len(b.children_specs) or a.context != b.context:
        return False
    for x, y in zip(a.children_specs, b.children_specs):
        if not _alike(x, y):
            return False
    return True


def _check(program, leaves):
    """Sizes and types are those of export, but for sizes that may change."""
    import taper
    for (path, was), now in zip(program._shapes, leaves):
        if was is None or not isinstance(now, taper.Tensor):
            if isinstance(now, taper.Tensor) != (was is not None) or (was is None and now != path[1]):
                raise RuntimeError(f"Expected input at {path[0] if was is None else path} to be {path[1] if was is None else 'a Tensor'}, but got {now!r}")
            continue
        dtype, shape = was
        if now.dtype != dtype or now.dim() != len(shape):
            raise RuntimeError(f"Expected input at {path} to be a {dtype} of {len(shape)} dimensions, but got {now.dtype} of {now.dim()}")
        for d, (a, b) in enumerate(zip(shape, now.shape)):
            limits = program._free.get(f"{path}.shape[{d}]")
            if limits is None and a != b:
                raise RuntimeError(f"Expected input at {path}.shape[{d}] to be equal to {a}, but got {b}. If you meant for this dimension to be dynamic, please "
                                   "re-export and specify dynamic_shapes (e.g. with Dim.DYNAMIC)")
            if limits is not None and not limits[0] <= b <= limits[1]:
                raise RuntimeError(f"Expected input at {path}.shape[{d}] to be >= {limits[0]} and <= {limits[1]}, but got {b}")


def _bound(names, args, kwargs):
    """(args, kwargs) with every argument where its name puts it; names: those by position, then those by keyword, with defaults."""
    if names is None:
        return args, kwargs
    signature = inspect.Signature([inspect.Parameter(n, kind, default=inspect.Parameter.empty if not has else value) for n, kind, has, value in names])
    b = signature.bind(*args, **kwargs)
    b.apply_defaults()
    return b.args, b.kwargs


def _signature(fn):
    try:
        s = inspect.signature(fn.forward if isinstance(fn, _nn().Module) else fn)
    except (TypeError, ValueError):
        return None
    return [(p.name, p.kind, p.default is not p.empty, None if p.default is p.empty else p.default) for p in s.parameters.values()]


def export(mod, args, kwargs=None, *, dynamic_shapes=None, strict=False, preserve_module_call_signature=(), prefer_deferred_runtime_asserts_over_guards=False):
    """The one graph of mod(*args, **kwargs), with its weights. dynamic_shapes: {argument: {dimension: Dim}} for sizes that may change."""
    import taper
    from .._dynamo._exported import exported
    if not isinstance(args, tuple):
        raise TypeError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    if not isinstance(mod, _nn().Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    kwargs = kwargs or {}
    call = _signature(mod)
    tree = _bound(call, args, kwargs)
    named = inspect.signature(mod.forward).bind(*args, **kwargs)
    free = mark(named.arguments, dynamic_shapes)
    leaves, in_spec = pytree.tree_flatten(tree)
    flat = exported(mod, args, kwargs, True)
    owned = {id(p): (n, InputKind.PARAMETER) for n, p in mod.named_parameters()}
    owned.update({id(b): (n, InputKind.BUFFER) for n, b in mod.named_buffers()})
    saved = set(mod.state_dict())
    state, constants, inputs = type(mod.state_dict())(), {}, []
    for n, v in mod.state_dict(keep_vars=True).items():
        state[n] = v
    graph, env = Graph(), {}
    for n in flat.graph.nodes:  # weights first
        if n.op == "get_attr":
            value = getattr(flat, n.target)
            name, kind = owned.get(id(value), (n.target, InputKind.CONSTANT_TENSOR))
            lead = {InputKind.PARAMETER: "p_", InputKind.BUFFER: "b_"}.get(kind, "c_")
            env[n] = graph.placeholder(lead + name.replace(".", "_"))
            env[n].meta.update(n.meta)
            if name not in state:
                constants[name] = value
            inputs.append(InputSpec(kind, TensorArgument(env[n].name), name, name in saved if kind == InputKind.BUFFER else None))
    given = iter(_leaf_names(named, leaves))
    for n in flat.graph.nodes:
        if n.op == "placeholder":
            name, value = next(given)
            env[n] = graph.placeholder(name)
            env[n].meta.update(n.meta)
            inputs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(env[n].name) if isinstance(value, taper.Tensor) else ConstantArgument(env[n].name, value)))
        elif n.op == "output":
            results = n.args[0]
        elif n.op != "get_attr":
            env[n] = graph.node_copy(n, lambda x: env[x])
    outs = _sizes_as_nodes(graph, [map_arg(r, lambda n: env[n]) for r in results])
    graph.output(tuple(outs))
    specs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(o.name) if hasattr(o, "op") else ConstantArgument("", o)) for o in outs]
    gm = GraphModule({}, graph)
    program = ExportedProgram(gm, ExportGraphSignature(inputs, specs), state, constants, in_spec, flat._out_spec, call, (args, kwargs),
                              {f"{p}.shape[{d}]": (getattr(x, "min", None) or 0, getattr(x, "max", None) or float("inf")) for (p, d), x in free.items()},
                              [n for n, _ in mod.named_parameters()])
    program._shapes = _shapes(named, leaves)
    return program


_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow}


def _sizes_as_nodes(graph, outs):
    """Sizes in arguments and results become nodes: aten.sym_size.int(x, 0), and arithmetic on them."""
    import taper
    where = {}  # symbol -> (placeholder, dimension)
    nodes = list(graph.nodes)
    for n in nodes:
        val = n.meta.get("val") if n.op == "placeholder" else None
        for d, size in enumerate(getattr(val, "shape", ())):
            if isinstance(size, taper.SymInt):
                where.setdefault(str(size), (n, d))
    made = {}
    first = next((n for n in nodes if n.op != "placeholder"), None)

    def node(e):
        if isinstance(e, ast.Constant):
            return e.value
        key = ast.dump(e)
        if key not in made:
            if isinstance(e, ast.Name):
                made[key] = graph.call_function(taper.ops.aten.sym_size.int, where[e.id])
            elif isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
                made[key] = graph.call_function(operator.mul, (node(e.operand), -1))
            else:
                made[key] = graph.call_function(_ARITHMETIC[type(e.op)], (node(e.left), node(e.right)))
        return made[key]

    def value(a):
        if not isinstance(a, taper.SymInt):
            return a
        try:
            return node(ast.parse(str(a), mode="eval").body)
        except (KeyError, AttributeError, SyntaxError):
            return a  # an expression of another kind: the symbol stays
    with graph.inserting_before(first) if first is not None else contextlib.nullcontext():
        for n in nodes:
            n.args, n.kwargs = map_aggregate(n.args, value), map_aggregate(n.kwargs, value)
        return map_aggregate(outs, value)


def _paths(value, path, out):
    leaves = pytree.tree_flatten(value)[0]
    if len(leaves) == 1 and leaves[0] is value:
        out.append((path, value))
    elif isinstance(value, dict):
        for k, v in value.items():
            _paths(v, f"{path}[{k!r}]", out)
    elif isinstance(value, (list, tuple)):
        for i, v in enumerate(value):
            _paths(v, f"{path}[{i}]", out)
    else:
        out += [(f"{path}[{i}]", v) for i, v in enumerate(leaves)]
    return out


def _leaf_paths(named, leaves):
    named.apply_defaults()
    out = []
    for name, value in named.arguments.items():
        _paths(value, name, out)
    if len(out) != len(leaves):
        out = [(f"arg{i}", v) for i, v in enumerate(leaves)]
    return out


def _leaf_names(named, leaves):
    import re
    return [(re.sub(r"\W+", "_", p).strip("_"), v) for p, v in _leaf_paths(named, leaves)]


def _shapes(named, leaves):
    import taper
    return [(p, (v.dtype, tuple(v.shape))) if isinstance(v, taper.Tensor) else ((p, v), None) for p, v in _leaf_paths(named, leaves)]
