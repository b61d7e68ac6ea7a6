"""taper.export: one graph of a function, with its weights, as files that programs without Python can use."""
import os

from . import _C
from .autograd import no_grad


class Exported:
    """A captured graph. text: what save() writes; inputs and outputs: how many it takes and returns."""

    def __init__(self, write, inputs, outputs):
        self._write = write
        self.inputs, self.outputs = inputs, outputs
        self.text = write(None)

    def save(self, path):
        """Writes the graph, and beside it PATH.safetensors with the weights that are too big for text."""
        self._write(os.fspath(path))
        return self

    def __repr__(self):
        return f"<taper.Exported: {self.inputs} inputs, {self.outputs} results; save(path) writes it, `taper compile PATH --emit c` makes C of it>"


def _tensors(x, what, out):
    import taper
    if isinstance(x, taper.Tensor):
        out.append(x)
    elif isinstance(x, (list, tuple)):
        for v in x:
            _tensors(v, what, out)
    elif isinstance(x, dict):
        for v in x.values():
            _tensors(v, what, out)
    elif what == "result" and x is not None:
        raise RuntimeError(f"taper.export: the function returns a {type(x).__name__}; only tensors in tuples, lists and dictionaries can be exported")
    return out


def export(fn, args=(), kwargs=None, path=None, dynamic=False):
    """The graph of fn(*args, **kwargs), taken as one piece.

    Tensors among the arguments become its inputs, in their order; sizes and everything else about the arguments are fixed
    as in the example. dynamic: sizes of the arguments may differ from the example's, except where the function asks for
    certain ones, and those of 0 and 1. Other tensors that fn uses (parameters, buffers, globals)
    become constants. path: save it there.
    """
    from ._dynamo import maybe_mark_dynamic
    from ._dynamo.eval_frame import compile
    if not isinstance(args, tuple):
        raise TypeError(f"taper.export takes the arguments as a tuple, not {type(args).__name__}")
    given = _tensors(args, "argument", []) + _tensors(kwargs or {}, "argument", [])
    for t in given if dynamic else ():
        for d in range(t.dim()):
            maybe_mark_dynamic(t, d)
    seen = []

    def backend(gm, example_inputs):
        outs = []
        seen.append((gm, list(example_inputs), outs))

        def run(*xs):
            outs[:] = gm(*xs)
            return tuple(outs)
        return run

    with no_grad():
        result = compile(fn, backend=backend, fullgraph=True, dynamic=None if dynamic else False)(*args, **(kwargs or {}))
    if len(seen) != 1:
        raise RuntimeError(f"taper.export: the function makes {len(seen)} graphs, not one: it computes nothing with tensors" if not seen else
                           f"taper.export: the function makes {len(seen)} graphs, not one")
    gm, inputs, outs = seen[0]
    place = {id(t): i for i, t in reversed(list(enumerate(given)))}
    weights, order = [], []
    for i, t in enumerate(inputs):
        at = place.get(id(t))
        weights.append(None if at is not None else t)
        if at is not None:
            order.append((at, i))
        elif not hasattr(t, "dtype"):
            raise RuntimeError("taper.export: a number is an input of the graph; it would have to be fixed")
    order.sort()
    wanted = []
    for k, t in enumerate(_tensors(result, "result", [])):
        at = next((i for i, o in enumerate(outs) if o is t), None)
        if at is None:  # an argument as it was
            at = next((-1 - i for i, (a, _) in enumerate(order) if given[a] is t), None)
        if at is None:
            raise RuntimeError(f"taper.export: result {k} does not come out of the graph: it is a constant, or an argument that nothing else uses")
        wanted.append(at)
    order = [i for _, i in order]

    def write(where):
        return _C._graph_export(gm._capsule, weights, order, wanted, where)
    made = Exported(write, len(order), len(wanted))
    return made.save(path) if path is not None else made
