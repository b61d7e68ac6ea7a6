"""ExportedProgram: the graph with a placeholder for every weight and argument, what each stands for, and the weights."""
import ast
import contextlib
import dataclasses
import inspect
import operator

from ..fx.graph import Graph, GraphModule, map_aggregate, map_arg
from ..utils import _pytree as pytree
from .dynamic_shapes import Dim, ValueRanges, limits_of, mark, relations
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
    _related = ()  # sizes that follow from others: dynamic_shapes.relations()

    def __init__(self, graph_module, signature, state, constants, in_spec, out_spec, call, example, free, parameters):
        self._graph_module, self._graph_signature, self._state_dict, self._constants = graph_module, signature, state, constants
        self._in_spec, self._out_spec, self._call, self._example, self._free, self._parameters = in_spec, out_spec, call, example, free, parameters

    graph_module = property(lambda self: self._graph_module)
    graph = property(lambda self: self._graph_module.graph)
    graph_signature = property(lambda self: self._graph_signature)
    state_dict = property(lambda self: self._state_dict)
    constants = tensor_constants = property(lambda self: self._constants)
    example_inputs = property(lambda self: self._example)
    range_constraints = property(lambda self: _ranges(self))
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
        """The same program in functional form: operators are taken apart (those of decomp_table by what the table makes of them), and what it wrote to
        buffers and arguments are results of the graph."""
        from .functional import functional_program
        return functional_program(self, default_decompositions() if decomp_table is None else decomp_table)

    def __str__(self):
        return f"ExportedProgram:\n    {self._graph_module.print_readable(print_output=False).strip()}\n\nGraph signature: {self._graph_signature}\nRange constraints: {self.range_constraints}\n"

    __repr__ = __str__


@dataclasses.dataclass
class _CallSpec:
    in_spec: object
    out_spec: object


def _ranges(program):
    """{the size as it is written in the graph: its limits}"""
    out = {}
    found = {s.arg.name: s for s in program.graph_signature.input_specs if s.kind == InputKind.USER_INPUT}
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder" and n.name in found}
    for (path, _), name in zip(program._shapes, found):
        for d, size in enumerate(getattr(values.get(name), "shape", ())):
            limits = program._free.get(f"{path}.shape[{d}]")
            if limits is not None and not isinstance(size, int):
                out[str(size)] = ValueRanges(*limits)
    return out


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
            self.__dict__["_program"] = program
            kinds = {s.target: s for s in program._graph_signature.input_specs if s.target}
            for name, value in {**program._state_dict, **program._constants}.items():
                owner, leaf = self._owner(name)
                spec = kinds.get(name)
                if isinstance(value, nn.Parameter):
                    owner.register_parameter(leaf, value)
                else:
                    owner.register_buffer(leaf, value, persistent=name in program._state_dict and (spec is None or spec.kind == InputKind.BUFFER))

        def _owner(self, name):
            """The module that holds what has this name, made where it is not there yet; and the last part of the name."""
            *path, leaf = name.split(".")
            at = self
            for part in path:
                if part not in at._modules:
                    at.add_module(part, nn.Module())
                at = at._modules[part]
            return at, leaf

        def _value(self, name):
            owner, leaf = self._owner(name)
            return getattr(owner, leaf)

        def train(self, mode=True):
            raise NotImplementedError(f"Calling {'train' if mode else 'eval'}() is not supported yet.")

        def eval(self):
            return self.train(False)

        def forward(self, *args, **kwargs):
            leaves, spec = pytree.tree_flatten(_bound(program._call, args, kwargs))
            if not _alike(spec, program._in_spec):
                raise ValueError(f"the arguments have another structure than those of export: {spec}, not {program._in_spec}")
            if check:
                _check(program, leaves)
            rest = iter(leaves)
            full = [next(rest) if s.kind == InputKind.USER_INPUT else self._value(s.target) for s in program._graph_signature.input_specs]
            outs = list(program._graph_module(*full))
            places = {s.target if s.target else s.arg.name: x for s, x in zip(program._graph_signature.input_specs, full)}
            for s, value in zip(program._graph_signature.output_specs, outs):
                if s.kind != OutputKind.USER_OUTPUT:  # of a functional program: what the original wrote in place
                    places[s.target].data.copy_(value)
            return pytree.tree_unflatten([o for s, o in zip(program._graph_signature.output_specs, outs) if s.kind == OutputKind.USER_OUTPUT], program._out_spec)

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
    sizes = {}
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
            sizes[f"{path}.shape[{d}]"] = b
            if limits is None and a != b:
                raise RuntimeError(f"Expected input at {path}.shape[{d}] to be equal to {a}, but got {b}. If you meant for this dimension to be dynamic, please "
                                   "re-export and specify dynamic_shapes (e.g. with Dim.DYNAMIC)")
            if limits is not None and not limits[0] <= b <= limits[1]:
                raise RuntimeError(f"Expected input at {path}.shape[{d}] to be >= {limits[0]} and <= {limits[1]}, but got {b}")
    for text, times, place, plus, other in program._related:
        if not place and other in sizes and (sizes[other] - plus) % times:
            raise RuntimeError(f"Expected input at {other} to be {text}, but got {sizes[other]}")
        if place in sizes and other in sizes and sizes[other] != times * sizes[place] + plus:
            raise RuntimeError(f"Expected input at {other} to be {text}, where {place} is {sizes[place]}, but got {sizes[other]}")


def _bound(names, args, kwargs):
    """(args, kwargs) with every argument that is given where its name puts it; names: those by position, then those by keyword."""
    if names is None:
        return args, kwargs
    signature = inspect.Signature([inspect.Parameter(n, kind, default=inspect.Parameter.empty if not has else value) for n, kind, has, value in names])
    b = signature.bind(*args, **kwargs)
    return b.args, b.kwargs


def _signature(fn):
    try:
        s = inspect.signature(fn.forward if isinstance(fn, _nn().Module) else fn)
    except (TypeError, ValueError):
        return None
    return [(p.name, p.kind, p.default is not p.empty, None if p.default is p.empty else p.default) for p in s.parameters.values()]


@contextlib.contextmanager
def _unchanged(mod, given):
    """Capture runs the module once. What it wrote meanwhile is taken back: buffers, attributes, arguments, random numbers."""
    import taper
    dicts = [(m, dict(m.__dict__), dict(m._parameters), dict(m._buffers), dict(m._modules)) for m in mod.modules()]
    tensors = {id(t): t for t in pytree.tree_flatten(given)[0] if isinstance(t, taper.Tensor)}
    for _, attributes, _, buffers, _ in dicts:
        tensors.update({id(t): t for t in (*attributes.values(), *buffers.values()) if isinstance(t, taper.Tensor)})
    copies = [(t, t._version, t.detach().clone()) for t in tensors.values()]
    drawn = taper.get_rng_state()
    try:
        yield
    finally:
        taper.set_rng_state(drawn)
        for t, version, copy in copies:
            if t._version != version:
                t.data.copy_(copy)
        for m, attributes, parameters, buffers, modules in dicts:
            for name in [n for n in m.__dict__ if n not in attributes]:
                del m.__dict__[name]
            m.__dict__.update(attributes)
            for now, before in ((m._parameters, parameters), (m._buffers, buffers), (m._modules, modules)):
                if now != before if now is m._modules else [id(v) for v in now.values()] != [id(v) for v in before.values()]:
                    now.clear()
                    now.update(before)


def _invalid(text):
    from .._dynamo.exc import UserError, UserErrorType
    return UserError(UserErrorType.INVALID_INPUT, text)


_LEAVES = (int, float, complex, str, bool, bytes, type(None))


def _check_leaves(leaves):
    import taper
    known = _LEAVES + (taper.Tensor, taper.dtype, taper.device, taper.memory_format, taper.layout, taper.Size, taper.SymInt)
    for leaf in leaves:
        if not isinstance(leaf, known):
            raise ValueError(f"Unsupported input type {type(leaf)}. Export only supports pytree containers of basic types (Tensor, int, float, ...) as input. To "
                             "register a custom dataclass, use taper.export.register_dataclass; for another container type, taper.utils._pytree.register_pytree_node.")


def _owned(mod, used, strict):
    """{tensor's id: (name, kind)} of the module's parameters, buffers and other tensors, in the order of the program's inputs."""
    import taper
    out = {}
    for kind, named in ((InputKind.PARAMETER, mod.named_parameters()), (InputKind.BUFFER, mod.named_buffers())):
        found = {id(t): (n, kind) for n, t in named}
        if strict:  # those that the graph reads, as it reads them
            found = {i: found[i] for i in used if i in found}
        out.update(found)
    for prefix, m in mod.named_modules():
        for n, v in m.__dict__.items():
            if isinstance(v, taper.Tensor) and id(v) in used:
                out.setdefault(id(v), (f"{prefix}.{n}" if prefix else n, InputKind.CONSTANT_TENSOR))
    for i in used:
        out.setdefault(i, (f"lifted_tensor_{sum(n.startswith('lifted_tensor_') for n, _ in out.values())}", InputKind.CONSTANT_TENSOR))
    return out


def _limits(graph, inputs, shapes, free):
    """{the place of a size: its limits}, of sizes that the graph does not fix."""
    from .._dynamo.exc import UserError, UserErrorType
    limits = {f"{p}.shape[{d}]": limits_of(x) for (p, d), x in free.items()}
    said = {f"{p}.shape[{d}]": x for (p, d), x in free.items()}
    values = {n.name: n.meta.get("val") for n in graph.nodes if n.op == "placeholder"}
    symbols = {}
    for s, (path, _) in zip([s for s in inputs if s.kind == InputKind.USER_INPUT], shapes):
        for d, size in enumerate(getattr(values.get(s.arg.name), "shape", ())):
            place = f"{path}.shape[{d}]"
            if place not in limits:
                continue
            if str(size).isdigit():  # Dim.AUTO, and the graph works for this size only
                del limits[place]
                continue
            name = said[place].__name__ if isinstance(said[place], Dim) else None
            other = symbols.setdefault(str(size), (name, place))
            if name is not None and other[0] not in (None, name):
                raise UserError(UserErrorType.CONSTRAINT_VIOLATION, f"Constraints violated ({name})! {place} is {name} and {other[1]} is {other[0]}, but the "
                                "program works only when they are equal: give both the same Dim, or Dim.AUTO.")
    return limits


def export(mod, args, kwargs=None, *, dynamic_shapes=None, strict=False, preserve_module_call_signature=(), prefer_deferred_runtime_asserts_over_guards=False):
    """The one graph of mod(*args, **kwargs), with its weights. dynamic_shapes: {argument: {dimension: Dim}} for sizes that may change. The module and the
    arguments stay as they are."""
    import taper
    from .._dynamo._exported import exported
    if not isinstance(args, tuple):
        raise _invalid(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    if not isinstance(mod, _nn().Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    kwargs = kwargs or {}
    call = _signature(mod)
    tree = _bound(call, args, kwargs)
    named = inspect.signature(mod.forward).bind(*args, **kwargs)
    free = mark(named.arguments, dynamic_shapes)
    leaves, in_spec = pytree.tree_flatten(tree)
    _check_leaves(leaves)
    with _unchanged(mod, (args, kwargs)):
        flat = exported(mod, args, kwargs, True, defaults=False)
    saved, tensors = set(mod.state_dict()), {}
    for n in flat.graph.nodes:
        if n.op == "get_attr" and isinstance(getattr(flat, n.target), taper.Tensor):
            tensors.setdefault(id(getattr(flat, n.target)), (n, getattr(flat, n.target)))
    owned = _owned(mod, list(tensors), strict)
    state, constants, inputs = type(mod.state_dict())(), {}, []
    for n, v in mod.state_dict(keep_vars=True).items():
        state[n] = v
    everything = {id(t): t for _, t in [*mod.named_parameters(), *mod.named_buffers()]}
    graph, env, places = Graph(), {}, {}
    for ident, (name, kind) in owned.items():  # weights first
        lead = {InputKind.PARAMETER: "p_", InputKind.BUFFER: "b_"}.get(kind, "c_")
        at = places[ident] = graph.placeholder(lead + name.replace(".", "_"))
        value = tensors[ident][1] if ident in tensors else everything[ident]
        if ident in tensors:
            at.meta.update(tensors[ident][0].meta)
        at.meta.setdefault("val", value)
        if name not in state:
            constants[name] = value
        inputs.append(InputSpec(kind, TensorArgument(at.name), name, name in saved if kind == InputKind.BUFFER else None))
    modules = {}
    for n in flat.graph.nodes:
        if n.op == "get_attr":
            value = getattr(flat, n.target)
            if id(value) in places:
                env[n] = places[id(value)]
            else:  # a graph that an operator runs
                modules[n.target] = value
                env[n] = graph.get_attr(n.target)
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
    gm = GraphModule(modules, graph)
    limits = _limits(graph, inputs, _shapes(named, leaves), free)
    program = ExportedProgram(gm, ExportGraphSignature(inputs, specs), state, constants, in_spec, flat._out_spec, call, (args, kwargs), limits,
                              [n for n, _ in mod.named_parameters()])
    program._shapes = _shapes(named, leaves)
    program._related = relations(free)
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
    out = []
    for name, value in named.arguments.items():
        _paths(value, name, out)
    if len(out) != len(leaves):
        out = [(f"arg{i}", v) for i, v in enumerate(leaves)]
    return out


def _leaf_names(named, leaves):
    import re
    rest = [p.name for p in named.signature.parameters.values() if p.kind is inspect.Parameter.VAR_KEYWORD]
    plain = (lambda p: re.sub(rf"^{rest[0]}\['(\w+)'\]", r"\1", p)) if rest else (lambda p: p)  # **options: by their own names
    return [(re.sub(r"\W+", "_", plain(p)).strip("_"), v) for p, v in _leaf_paths(named, leaves)]


def _shapes(named, leaves):
    import taper
    return [(p, (v.dtype, tuple(v.shape))) if isinstance(v, taper.Tensor) else ((p, v), None) for p, v in _leaf_paths(named, leaves)]
