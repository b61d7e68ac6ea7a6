"""make_fx: the operators that a function runs, as a graph."""
from ... import _C
from ...utils import _pytree
from ...utils._python_dispatch import TorchDispatchMode
from ..graph import Graph, GraphModule, map_aggregate


class _Record(TorchDispatchMode):
    def __init__(self, graph, decompositions):
        self.graph, self.table = graph, dict(decompositions or {})
        self.nodes, self.keep, self.constants = {}, [], {}

    @staticmethod
    def key(t):
        """Which value it is, also through another object for the same tensor (what backward saved)."""
        return t.untyped_storage()._cdata, t.storage_offset(), tuple(t.shape), t.stride(), t.dtype

    def bind(self, tensor, node):
        self.nodes[self.key(tensor)] = node
        self.keep.append(tensor)  # so that its memory stays its own
        node.meta["val"] = tensor.detach() if tensor.requires_grad else tensor

    def arg(self, a):
        if not isinstance(a, _C.Tensor):
            return a
        if self.key(a) not in self.nodes:
            name = f"_tensor_constant{len(self.constants)}"
            self.constants[name] = a
            self.bind(a, self.graph.get_attr(name))
        return self.nodes[self.key(a)]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        other = self.table.get(func, self.table.get(func.overloadpacket))
        if other is not None:
            with self:
                r = other(*args, **kwargs)
            if r is not NotImplemented:
                return r
        a, k = map_aggregate(tuple(args), self.arg), map_aggregate(dict(kwargs), self.arg)
        r = func(*args, **kwargs)
        node = self.graph.call_function(func, a, k, name=func._opname)
        if isinstance(r, _C.Tensor):
            self.bind(r, node)
        elif isinstance(r, (tuple, list)):
            from operator import getitem
            for i, t in enumerate(r):
                if isinstance(t, _C.Tensor):
                    self.bind(t, self.graph.call_function(getitem, (node, i)))
        return r


def make_fx(f, decomposition_table=None, tracing_mode="real", _allow_non_fake_inputs=False, *, pre_dispatch=False, record_module_stack=False,
            _allow_fake_constant=False, _error_on_data_dependent_ops=True):
    """make_fx(f)(*args): a GraphModule of the operators (taper.ops.aten...) that f(*args) runs, backward passes inside it included.
    tracing_mode "real" computes with the arguments, "fake" with their types only. Sizes are constants of the graph."""
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise ValueError(f'tracing_mode is "real" or "fake", not {tracing_mode!r}')
    if tracing_mode == "symbolic":
        raise NotImplementedError('make_fx(tracing_mode="symbolic") does not exist here; taper.compile(f, dynamic=True, backend=...) gives a graph with '
                                  'symbolic sizes')

    def traced(*args):
        leaves, spec = _pytree.tree_flatten(args)
        graph = Graph()
        mode = _Record(graph, decomposition_table)
        inside = []
        for i, leaf in enumerate(leaves):
            node = graph.placeholder(f"arg{i}_1")
            if isinstance(leaf, _C.Tensor):
                t = leaf.to("meta") if tracing_mode == "fake" else leaf.detach().requires_grad_(leaf.requires_grad) if leaf.is_leaf else leaf
                mode.bind(t, node)
                inside.append(t)
            else:
                inside.append(leaf)
        with mode:
            out = f(*_pytree.tree_unflatten(inside, spec))
        flat, out_spec = _pytree.tree_flatten(out)
        graph.output(_pytree.tree_unflatten([mode.arg(x) for x in flat], out_spec))
        root = dict(mode.constants)
        return GraphModule(root, graph, getattr(f, "__name__", "forward") if str.isidentifier(getattr(f, "__name__", "")) else "GraphModule")
    return traced


def get_proxy_mode():
    """The mode of a make_fx that runs now: it records below this level, so there is none to hand out."""
    return None


def maybe_disable_fake_tensor_mode():
    import contextlib
    return contextlib.nullcontext()


disable_proxy_modes_tracing = maybe_disable_fake_tensor_mode
