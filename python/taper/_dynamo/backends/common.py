"""Backends from compilers of pure graphs: aot_autograd puts the autograd stage in front of them."""
from ... import _C
from ...fx import GraphModule, Interpreter


def _eager(gm, example_inputs):
    return gm.forward


def _capsule(gm, base=None):
    """The graph behind gm as it is now; recorded again when its nodes were edited, or when it was put together from nodes
    of the graph module `base`."""
    if gm._capsule is not None and gm._state() == gm._mark:
        return gm._capsule
    if base is not None:
        known = {n.name: n.meta.get("val") for n in base.graph.nodes}
        inputs = [(n.name, n.meta.get("val", known.get(n.name))) for n in gm.graph.nodes if n.op == "placeholder"]
        return _C._graph_retrace(base._capsule, Interpreter(gm).run, inputs)
    if gm._capsule is None:
        raise TypeError("aot_autograd takes a graph that taper.compile captured")
    return _C._graph_retrace(gm._capsule, Interpreter(gm).run)


class _Decompose(Interpreter):
    """Runs a graph with some operators replaced by functions of the user's."""

    def __init__(self, gm, table):
        super().__init__(gm)
        self.table = table

    def call_function(self, target, args, kwargs):
        return self.table.get(target, target)(*args, **kwargs)


def _by_operator(table):
    """Keys of a table of decompositions are operators or their overloads; nodes name overloads."""
    out = {}
    for key, fn in table.items():
        out[key] = fn
        names = getattr(key, "overloads", None)
        for name in (names() if callable(names) else ()):
            out[getattr(key, name)] = fn
    return out


class AotAutograd:
    """A backend: forward and backward graphs go to fw_compiler and bw_compiler, graphs that need no gradient to
    inference_compiler; each is called as compiler(gm, example_inputs) and returns what runs the graph."""

    def __init__(self, *, fw_compiler=None, bw_compiler=None, inference_compiler=None, decompositions=None,
                 partition_fn=None, keep_inference_input_mutations=False, **options):
        from ..._functorch.partitioners import default_partition, min_cut_rematerialization_partition
        for name, fn in (("fw_compiler", fw_compiler), ("bw_compiler", bw_compiler),
                         ("inference_compiler", inference_compiler)):
            if fn is not None and not callable(fn):
                raise TypeError(f"{name} must be callable, not {type(fn).__name__}")
        if options:
            raise TypeError(f"aot_autograd() got an unexpected keyword argument {next(iter(options))!r}")
        if partition_fn is not None and not callable(partition_fn):
            raise TypeError(f"partition_fn must be callable, not {type(partition_fn).__name__}")
        fw = fw_compiler or _eager
        self.compilers = {"forward": fw, "backward": bw_compiler or fw, "inference": inference_compiler or fw}
        self.decompositions = _by_operator(decompositions) if decompositions else None
        self.min_cut = partition_fn is min_cut_rematerialization_partition
        self.partition_fn = None if partition_fn in (None, default_partition, min_cut_rematerialization_partition) else partition_fn
        self.__name__ = "aot_autograd"

    def _compile(self, capsule, kind, example_inputs):
        if self.decompositions:
            capsule = _C._graph_retrace(capsule, _Decompose(GraphModule._from_capture(capsule, aten=True), self.decompositions).run)
        return self.compilers[kind](GraphModule._from_capture(capsule, aten=True), example_inputs)

    def _partition(self, capsule, num_fwd_outputs):
        joint = GraphModule._from_capture(capsule, aten=True)
        inputs = [n for n in joint.graph.nodes if n.op == "placeholder"]
        primals = [n.meta["val"] for n in inputs if not n.name.startswith("tangents")]
        tangents = [n.meta["val"] for n in inputs if n.name.startswith("tangents")]
        halves = self.partition_fn(joint, (primals, tangents), num_fwd_outputs=num_fwd_outputs)
        if not (isinstance(halves, (tuple, list)) and len(halves) == 2 and all(isinstance(h, GraphModule) for h in halves)):
            raise TypeError(f"partition_fn must return a forward and a backward GraphModule, not {halves!r}")
        return tuple(_capsule(h, joint) for h in halves)

    def __call__(self, gm, example_inputs, **kwargs):
        return _C._aot_compile(_capsule(gm), list(example_inputs), self._compile, self.min_cut, self._partition if self.partition_fn else None)


def aot_autograd(**kwargs):
    """aot_autograd(fw_compiler=, bw_compiler=, inference_compiler=, decompositions=, partition_fn=) -> backend"""
    return AotAutograd(**kwargs)


def device_from_inputs(example_inputs):
    for x in example_inputs:
        if hasattr(x, "device"):
            return x.device
    return _C.device("cpu")


def dtype_from_inputs(example_inputs):
    for x in example_inputs:
        if hasattr(x, "dtype"):
            return x.dtype
    return _C.float32
