"""The functional form of an exported program: no operator of its graph writes, and what was written is a result."""
from ..fx.graph import GraphModule, map_aggregate, map_arg
from ..utils import _pytree as pytree
from .graph_signature import ConstantArgument, ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument


def functional_program(program, table):
    import taper
    from . import exported_program as e
    leaves = pytree.tree_flatten(e._bound(program._call, *program._example))[0] if program._example else None
    if leaves is None:
        raise RuntimeError("run_decompositions() needs the example inputs, which are not in the file that the program was loaded from: call it before save()")
    full = [x.detach().clone() if isinstance(x, taper.Tensor) else x for x in e._inputs(program, leaves)]
    for place, x in _dynamic(program, full):
        taper._dynamo.maybe_mark_dynamic(x, place)
    written = _written(program.graph_module, full)
    graph, order = _capture(program.graph_module, full, written, table)
    return _assemble(program, graph, order, full, written, e)


def _dynamic(program, full):
    """(dimension, tensor) for each size that may change."""
    users = [x for s, x in zip(program.graph_signature.input_specs, full) if s.kind == InputKind.USER_INPUT]
    for (path, was), x in zip(program._shapes, users):
        for d in range(len(was[1]) if was else 0):
            if f"{path}.shape[{d}]" in program._free:
                yield d, x


def _written(gm, full):
    """Numbers of the inputs that the graph writes: a run tells."""
    import taper
    copies = [x.clone() if isinstance(x, taper.Tensor) else x for x in full]
    before = [x._version if isinstance(x, taper.Tensor) else 0 for x in copies]
    drawn = taper.get_rng_state()
    with taper.no_grad():
        gm(*copies)
    taper.set_rng_state(drawn)
    return [i for i, x in enumerate(copies) if isinstance(x, taper.Tensor) and x._version != before[i]]


def _capture(gm, full, written, table):
    """The functional graph, which returns the results and then what was written; and the input that each of its placeholders is."""
    import taper
    from .._dynamo.backends.common import AotAutograd
    from .exported_program import _unchanged  # noqa: F401
    graphs, order = [], []
    tensors = [x for x in full if isinstance(x, taper.Tensor)]

    def keep(g, inputs):
        graphs.append(g)
        return g

    def backend(g, inputs):
        order[:] = [next((i for i, x in enumerate(full) if x is t), None) for t in inputs]
        return AotAutograd(fw_compiler=keep, decompositions=table)(g, inputs)

    def run(*xs):
        rest = iter(xs)
        given = [next(rest) if isinstance(x, taper.Tensor) else x for x in full]
        outs = gm(*given)
        return tuple(o.clone() if isinstance(o, taper.Tensor) else o for o in outs) + tuple(given[i].clone() for i in written)
    drawn = taper.get_rng_state()
    taper._dynamo.reset()
    with taper.no_grad():
        taper._dynamo.optimize(backend, nopython=True)(run)(*tensors)
    taper._dynamo.reset()
    taper.set_rng_state(drawn)
    return (graphs[0] if graphs else None), order


def _assemble(program, gm, order, full, written, e):
    import taper
    from ..fx.graph import Graph
    old = program.graph_signature
    graph, env, places = Graph(), {}, []
    names = [s.arg.name for s in old.input_specs]
    metas = {n.name: n.meta for n in program.graph.nodes if n.op == "placeholder"}
    for name in names:
        places.append(graph.placeholder(name))
        places[-1].meta.update(metas.get(name, {}))
    results, sources = [], iter(order)
    for n in gm.graph.nodes if gm is not None else ():
        if n.op == "placeholder":
            at = next(sources, None)
            if at is None:
                raise RuntimeError("run_decompositions(): an input of the graph is no input of the program")
            env[n] = places[at]
            env[n].meta.update(n.meta)
        elif n.op == "output":
            results = list(n.args[0])
        else:
            env[n] = graph.node_copy(n, lambda x: env[x])
    tensors = iter([map_arg(r, lambda n: env[n]) for r in results])
    outs = []  # numbers and the like are no results of the captured graph
    for s in old.output_specs:
        outs.append(s.arg.value if isinstance(s.arg, ConstantArgument) else _original(next(tensors)))
    changed = [_original(next(tensors)) for _ in written]
    kinds = {InputKind.BUFFER: OutputKind.BUFFER_MUTATION, InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION}
    specs = [OutputSpec(kinds.get(old.input_specs[i].kind, OutputKind.BUFFER_MUTATION), TensorArgument(x.name), old.input_specs[i].target or old.input_specs[i].arg.name)
             for i, x in zip(written, changed)]
    specs += [OutputSpec(s.kind, TensorArgument(o.name) if hasattr(o, "op") else s.arg, s.target) for s, o in zip(old.output_specs, outs)]
    graph.output(tuple(e._sizes_as_nodes(graph, changed + outs)))
    for n in reversed(list(graph.nodes)):
        if n.op == "call_function" and not n.users and str(n.target) == "aten.clone.default":
            graph.erase_node(n)
    inputs = [InputSpec(s.kind, s.arg, s.target, s.persistent) for s in old.input_specs]
    made = e.ExportedProgram(GraphModule({}, graph), ExportGraphSignature(inputs, specs), program._state_dict, program._constants, program._in_spec,
                             program._out_spec, program._call, program._example, program._free, program._parameters)
    made._shapes, made._related = program._shapes, program._related
    return made


def _original(node):
    """The value behind the copy that capture made of a result."""
    while hasattr(node, "op") and str(node.target) == "aten.clone.default" and hasattr(node.args[0], "op"):
        node = node.args[0]
    return node
