"""Control flow that stays in one graph. Outside of capture these functions simply run; while a function is
captured, the functions they are given become nested graphs."""
import sys
import types

from .. import _C
from .._C import SymInt, Tensor
from ..autograd.function import Function

_stack_tensors, _cat_tensors = _C._op_functions[""]["stack"], _C._op_functions[""]["cat"]


def _single(pred, what):
    if isinstance(pred, Tensor):
        if pred.numel() != 1:
            raise RuntimeError(f"{what} must be a bool or a tensor with one element, but it has {pred.numel()}")
        return bool(pred)
    if isinstance(pred, (bool, int, SymInt)):
        return bool(pred)
    raise RuntimeError(f"{what} must be a bool or a tensor with one element, not {type(pred).__name__}")


def cond(pred, true_fn, false_fn, operands=()):
    """true_fn(*operands) where pred holds, else false_fn(*operands). Captured, both are in the graph.

    >>> taper.cond(taper.tensor(True), lambda x: x + 1, lambda x: x - 1, (taper.ones(2),))
    tensor([2., 2.])
    """
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("cond() takes two functions")
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(f"cond() takes its operands as a tuple or list, not {type(operands).__name__}")
    return (true_fn if _single(pred, "the predicate of cond") else false_fn)(*operands)


def while_loop(cond_fn, body_fn, carried_inputs):
    """carried = body_fn(*carried) as long as cond_fn(*carried) holds; returns what is carried then, as a tuple.

    >>> taper.while_loop(lambda i: i < 3, lambda i: (i + 1,), (taper.tensor(0),))
    (tensor(3),)
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("while_loop() takes two functions")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"while_loop() takes what it carries as a tuple or list, not {type(carried_inputs).__name__}")
    carried = tuple(carried_inputs)
    while _single(cond_fn(*carried), "what cond_fn returns"):
        carried = body_fn(*carried)
        if not isinstance(carried, (tuple, list)):
            carried = (carried,)
        if len(carried) != len(carried_inputs):
            raise RuntimeError(f"body_fn must return as many values as are carried: {len(carried_inputs)} are carried "
                               f"but it returns {len(carried)}")
        carried = tuple(carried)
    return carried


def _leaves(tree, out):
    if isinstance(tree, Tensor):
        out.append(tree)
    elif isinstance(tree, (tuple, list)):
        for v in tree:
            _leaves(v, out)
    elif isinstance(tree, dict):
        for v in tree.values():
            _leaves(v, out)
    return out


def _fill(tree, leaves):
    if isinstance(tree, Tensor):
        return next(leaves)
    if isinstance(tree, tuple) and hasattr(tree, "_make"):
        return tree._make(_fill(v, leaves) for v in tree)
    if isinstance(tree, (tuple, list)):
        return type(tree)([_fill(v, leaves) for v in tree])
    if isinstance(tree, dict):
        return {k: _fill(v, leaves) for k, v in tree.items()}
    return tree


def _walk(fn, xs, dim, what):
    """fn(slices) for each step; its results stacked."""
    flat = [t.movedim(dim, 0) for t in _leaves(xs, [])]
    if not flat:
        raise RuntimeError(f"{what}: there is no tensor to walk along")
    steps = flat[0].shape[0]
    if any(t.shape[0] != steps for t in flat):
        raise RuntimeError(f"{what}: all tensors that are walked along must have the same length: "
                           + ", ".join(str(t.shape[0]) for t in flat))
    results = [fn(_fill(xs, iter([t[i] for t in flat]))) for i in range(steps)]
    return results


def _stack(results, what):
    if not results:
        raise RuntimeError(f"{what} over nothing has results of unknown type")
    columns = [_leaves(r, []) for r in results]
    return _fill(results[0], iter([_stack_tensors([c[i] for c in columns], 0) for i in range(len(columns[0]))]))


def scan(combine_fn, init, xs, *, dim=0, reverse=False):
    """carry, y = combine_fn(carry, x) for each slice x of xs along dim; returns the last carry and all y, stacked.

    >>> taper.scan(lambda c, x: (c + x, c * x), taper.tensor(0.0), taper.tensor([1.0, 2.0, 3.0]))
    (tensor(6.), tensor([0., 2., 9.]))
    """
    carry = init

    def step(x):
        nonlocal carry
        r = combine_fn(carry, x)
        if not isinstance(r, tuple) or len(r) != 2:
            raise RuntimeError("scan: combine_fn must return (carry, output)")
        for a, b in zip(_leaves(carry, []), _leaves(r[0], [])):
            if a.shape != b.shape or a.dtype != b.dtype:
                raise RuntimeError(f"scan: what is carried must keep its dtype and shape: it was {a.dtype} {list(a.shape)} "
                                   f"but combine_fn returns {b.dtype} {list(b.shape)}")
        carry = r[0]
        return r[1]

    if reverse:
        flat = [t.movedim(dim, 0).flip(0) for t in _leaves(xs, [])]
        ys = _stack(_walk(step, _fill(xs, iter(flat)), 0, "scan"), "scan")
        return carry, _fill(ys, iter([t.flip(0) for t in _leaves(ys, [])]))
    ys = _stack(_walk(step, xs, dim, "scan"), "scan")
    return carry, ys


def _combine_pairs(combine, elems):
    """All prefixes of elems (tensors with the steps in front): pairs are combined, their prefixes found, the rest filled in."""
    n = elems[0].shape[0]
    if n < 2:
        return elems
    odd = _combine_pairs(combine, combine([e[:-1:2] for e in elems], [e[1::2] for e in elems]))
    even = [e[:1] for e in elems]
    if n > 2:
        more = combine([o[:-1] for o in odd] if n % 2 == 0 else odd, [e[2::2] for e in elems])
        even = [_cat_tensors([a, b], 0) for a, b in zip(even, more)]
    rows = [_stack_tensors([a[:n // 2], b], 1).flatten(0, 1) for a, b in zip(even, odd)]
    return rows if n % 2 == 0 else [_cat_tensors([r, e[-1:]], 0) for r, e in zip(rows, even)]


def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
    """combine_fn over all prefixes of xs along dim, in about log2 of their number of steps. combine_fn takes two slices (tensors, or
    trees of them like xs) and must be associative; "pointwise" says that it works element by element."""
    if not callable(combine_fn):
        raise RuntimeError("associative_scan() takes a function")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"associative_scan: combine_mode is 'pointwise' or 'generic', not {combine_mode!r}")
    flat = [t.movedim(dim, 0) for t in _leaves(xs, [])]
    if not flat:
        raise RuntimeError("associative_scan: there is no tensor to walk along")
    if any(t.shape[0] != flat[0].shape[0] for t in flat):
        raise RuntimeError("associative_scan: all tensors that are walked along must have the same length: "
                           + ", ".join(str(t.shape[0]) for t in flat))
    if reverse:
        flat = [t.flip(0) for t in flat]

    def one(*slices):
        k = len(slices) // 2
        r = _leaves(combine_fn(_fill(xs, iter(slices[:k])), _fill(xs, iter(slices[k:]))), [])
        if len(r) != k:
            raise RuntimeError(f"associative_scan: combine_fn must return what it takes, {k} tensors, but it returns {len(r)}")
        return tuple(r)

    def combine(a, b):
        if combine_mode == "generic":
            from ..func import vmap
            return list(vmap(one)(*a, *b))
        return list(one(*a, *b))

    out = _combine_pairs(combine, flat)
    if reverse:
        out = [t.flip(0) for t in out]
    return _fill(xs, iter([t.movedim(0, dim) for t in out]))


def map(f, xs, *args):
    """f(x, *args) for each slice x of xs along its first dimension; the results stacked."""
    return _stack(_walk(lambda x: f(x, *args), xs, 0, "map"), "map")


for _f in (cond, while_loop, scan, map):
    _C._capture_role(_f, "hop:" + _f.__name__)


# --- the same as they stand in a graph: nested graphs and flat lists of tensors
def _graph_while(cond_graph, body_graph, carried, others=()):
    while _single(cond_graph(*carried, *others)[0], "what cond_fn returns"):
        carried = body_graph(*carried, *others)
    return tuple(carried)


def _graph_scan(combine, init, xs, others):
    carry, rows = list(init), []
    for i in range(xs[0].shape[0]):
        out = combine(*carry, *(x[i] for x in xs), *others)
        carry, y = list(out[:len(init)]), out[len(init):]
        rows.append(y)
    return tuple(carry) + tuple(_stack_tensors(list(c), 0) for c in zip(*rows))


def _graph_map(body, xs, others):
    return _graph_scan(body, [], xs, others)


class _Linked(Function):
    """outputs, which are computed already, with gradients that backward_graph gives to inputs."""
    @staticmethod
    def forward(ctx, backward_graph, nin, nout, *tensors):
        outputs = tensors[nin:nin + nout]
        results = tuple(o.detach() for o in outputs)
        ctx.save_for_backward(*(next((r for r, o in zip(results, outputs) if t is o), t) for t in tensors[nin + nout:]))
        ctx.graph, ctx.rest = backward_graph, len(tensors) - nin
        return results

    @staticmethod
    def backward(ctx, *grads):
        return (None, None, None) + tuple(ctx.graph(*grads, *ctx.saved_tensors)) + (None,) * ctx.rest


def _graph_function(backward_graph, inputs, outputs, others):
    return _Linked.apply(backward_graph, len(inputs), len(outputs), *inputs, *outputs, *others)


graph_calls = {"cond": cond, "while_loop": _graph_while, "scan": _graph_scan, "map": _graph_map,
               "autograd_function": _graph_function}
for _n, _f in graph_calls.items():
    _f.__name__, _f.__module__ = _n, "taper.ops.higher_order"


def wrap(body, *args, **kwargs):
    """body(*args, **kwargs): captured, it is followed like any other call."""
    return body(*args, **kwargs)


class _Package(types.ModuleType):
    """Importing the module that is named after a function does not put it in the function's place."""

    def __setattr__(self, name, value):
        if not (isinstance(value, types.ModuleType) and isinstance(self.__dict__.get(name), types.FunctionType)):
            super().__setattr__(name, value)


def _module(name, **names):
    m = types.ModuleType(f"{__name__}.{name}")
    m.__dict__.update(names)
    sys.modules[m.__name__] = m


_module("cond", cond=cond, cond_op=cond)
_module("while_loop", while_loop=while_loop, while_loop_op=while_loop)
_module("scan", scan=scan, scan_op=scan)
_module("map", map=map, map_impl=map)
_module("associative_scan", associative_scan=associative_scan, associative_scan_op=associative_scan)
_module("wrap", wrap=wrap)
sys.modules[__name__].__class__ = _Package
