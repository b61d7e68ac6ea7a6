"""What export() returns: the graph of a function, called as the function is, whatever of its arguments the graph reads."""
import inspect

from .. import _C
from ..fx.graph import Graph, GraphModule, map_arg
from ..utils import _pytree as pytree


class ExportedModule(GraphModule):
    """A graph with one input for every leaf of the arguments, in order, and the results in the structure of the function's."""

    def forward(self, *args, **kwargs):
        leaves, spec = pytree.tree_flatten(_bound(self._signature, args, kwargs))
        if spec != self._in_spec:
            raise TypeError(f"the arguments have another structure than those it was exported with: {spec}, not {self._in_spec}")
        flat = super().forward(*leaves)
        return pytree.tree_unflatten(list(flat), self._out_spec)

    def recompile(self):
        """The graph as it is now runs from the next call on: it is interpreted."""
        self.graph.lint()
        return self.graph.python_code()

    def _symbolic(self):
        return True  # node by node


def _bound(signature, args, kwargs, defaults=True):
    if signature is None:
        return args, kwargs
    b = signature.bind(*args, **kwargs)
    if defaults:
        b.apply_defaults()
    return b.args, b.kwargs


def exported(f, args, kwargs, aten, defaults=True):
    """defaults: are arguments that are not given inputs, too?"""
    from .eval_frame import _make, _wrap, reset
    made = []  # (graph, inputs, results of the first call)

    def keep(gm, inputs):
        def run(*a):
            made[-1][2] = gm.forward(*a)
            return made[-1][2]
        made.append([gm, list(inputs), ()])
        return run
    try:
        signature = inspect.signature(f.forward if isinstance(f, _C_module()) else f)
    except (TypeError, ValueError):
        signature = None
    tree = _bound(signature, args, kwargs, defaults)
    leaves, in_spec = pytree.tree_flatten(tree)
    reset()
    result = _wrap(f, _make(keep, None, True, None))(*args, **kwargs)
    reset()
    if len(made) > 1:
        raise AssertionError(f"export needs exactly one graph, found {len(made)}")
    gm, inputs, outs = made[0] if made else (GraphModule(), [], ())
    if aten and made:
        gm = GraphModule._from_capture(gm._capsule, aten=True)
    new = ExportedModule(class_name=gm._class_name)
    g, env = new.graph, {}
    places = [g.placeholder(f"arg{i}") for i in range(len(leaves))]
    source = iter(inputs)
    for n in gm.graph.nodes:
        if n.op == "placeholder":
            x = next(source)
            at = next((k for k, leaf in enumerate(leaves) if leaf is x), None)
            if at is None:  # a parameter, or a tensor the function found elsewhere
                at = _attribute(new, g, n.name, x)
            else:
                at = places[at]
                at.meta.update(n.meta)
            env[n] = at
        elif n.op == "output":
            old = list(n.args[0])
        else:
            if n.op == "get_attr":
                setattr(new, n.target, getattr(gm, n.target))
            env[n] = g.node_copy(n, lambda x: env[x])
    flat, out_spec = pytree.tree_flatten(result)
    returned = []
    for x in flat:
        at = next((k for k, leaf in enumerate(leaves) if leaf is x), None) if isinstance(x, _C.Tensor) else None
        out = next((k for k, o in enumerate(outs) if o is x or _same(o, x)), None) if isinstance(x, _C.Tensor) and at is None else None
        if at is not None:
            returned.append(places[at])
        elif out is not None:
            returned.append(map_arg(old[out], lambda n: env[n]))
        elif isinstance(x, _C.Tensor):
            returned.append(_attribute(new, g, "returned", x))
        else:
            returned.append(x)
    g.output(tuple(returned))
    new._signature, new._in_spec, new._out_spec = signature, in_spec, out_spec
    return new


def _same(a, b):
    return (isinstance(a, _C.Tensor) and a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride() and a.numel() and a.data_ptr() == b.data_ptr()
            and a.storage_offset() == b.storage_offset())


def _attribute(gm, graph, name, value):
    while hasattr(gm, name):
        name += "_"
    setattr(gm, name, value)
    return graph.get_attr(name)


def _C_module():
    from ..nn import Module
    return Module
