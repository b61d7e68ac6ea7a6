"""Functions of functions, shaped like torch.func: derivatives by the tape, batches by one call for all their elements."""
import contextlib
import functools

import taper
from .utils import _pytree as pytree

__all__ = ["grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "linearize", "vmap", "functional_call", "stack_module_state"]


def _is_tensor(x):
    return isinstance(x, taper.Tensor)


def _recording():
    """Derivatives are taken in every mode: inference mode ends inside."""
    return taper.inference_mode(False) if taper.is_inference_mode_enabled() else taper.enable_grad()


def _records():
    return taper.is_grad_enabled() and not taper.is_inference_mode_enabled()


def _plain(t):
    """A tensor of inference mode as a copy, which may be differentiated."""
    return t.clone() if _is_tensor(t) and t.is_inference() and not taper.is_inference_mode_enabled() else t


def _fresh(tree):
    """The tensors of a tree as places to differentiate at: connected to what they came from where that wants a gradient."""
    def one(t):
        if not _is_tensor(t):
            return t
        if not (t.is_floating_point() or t.is_complex()):
            raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
        if taper._C._batch_level():
            if t.requires_grad and taper._C._is_batched(t):
                return t.view_as(t)
            return taper._C._batch_own(t).requires_grad_()
        t = _plain(t)
        return t.view_as(t) if t.requires_grad else t.detach().requires_grad_()
    return pytree.tree_map(one, tree)


def _wanted(tree):
    return [t for t in pytree.tree_leaves(tree) if _is_tensor(t) and t.requires_grad]


def _settle(tree, places, outside):
    """Results as their caller may see them: with their graph only where one is recorded outside and it leads to more than the places we made."""
    own = tuple(p for p in places if p.is_leaf)

    def one(t):
        if not _is_tensor(t) or not t.requires_grad:
            return t
        if not outside:
            return t.detach()
        if taper._C._leads_beyond(t, own):
            return t
        return taper._C._batch_own(t) if taper._C._is_batched(t) else t.detach()
    return pytree.tree_map(one, tree)


def _derivatives(outs, places, seeds=None):
    if not places:
        return []
    outs, seeds = zip(*[(o, s) for o, s in zip(outs, seeds or [None] * len(outs)) if o.requires_grad]) if any(o.requires_grad for o in outs) else ((), ())
    if not outs:
        return [taper.zeros_like(p) for p in places]
    found = taper.autograd.grad(outs, places, [taper.ones_like(o) if s is None else _plain(s) for o, s in zip(outs, seeds)], create_graph=True, allow_unused=True)
    return [taper.zeros_like(p) if g is None else g for p, g in zip(places, found)]


def _filled(tree, values):
    """The tree with its differentiated tensors replaced by values, in order."""
    it = iter(values)
    return pytree.tree_map(lambda t: next(it) if _is_tensor(t) and t.requires_grad else t, tree)


def _chosen(args, argnums):
    for i in (argnums,) if isinstance(argnums, int) else argnums:
        if not -len(args) <= i < len(args):
            raise RuntimeError(f"Got argnum={i}, but only {len(args)} positional inputs")
    many = not isinstance(argnums, int)
    return [i % len(args) for i in (argnums if many else (argnums,))], many


def _begun(args, argnums):
    """The arguments with fresh leaves where derivatives are wanted, which places these are, and whether several were asked for."""
    which, many = _chosen(args, argnums)
    return [_fresh(a) if i in which else a for i, a in enumerate(args)], which, many


def grad_and_value(func, argnums=0, has_aux=False):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        outside = _records()
        with _recording():
            args, which, many = _begun(args, argnums)
            out = func(*args, **kwargs)
            if has_aux:
                if not isinstance(out, tuple) or len(out) != 2:
                    raise RuntimeError("grad_and_value(f)(*args): output of function f should be a tuple: (output, aux) if has_aux is True")
                out, aux = out
            if not _is_tensor(out):
                raise RuntimeError(f"Expected f(*args) to return a tensor, got unsupported type {type(out)}")
            if out.dim() != 0:
                raise RuntimeError(f"Expected f(*args) to return a scalar tensor, got tensor with {out.dim()} dims. Maybe you wanted to use the vjp or jacrev APIs instead?")
            places = _wanted([args[i] for i in which])
            it = iter(_derivatives([out], places))
            grads = tuple(_filled(args[i], it) for i in which)
            grads = _settle(grads if many else grads[0], places, outside)
            out = _settle(out, places, outside)
            return (grads, (out, _settle(aux, places, outside))) if has_aux else (grads, out)
    return wrapper


def grad(func, argnums=0, has_aux=False):
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        grads, out = both(*args, **kwargs)
        return (grads, out[1]) if has_aux else grads
    return wrapper


def vjp(func, *primals, has_aux=False):
    outside = _records()
    with _recording():
        xs = _fresh(primals)
        out = func(*xs)
    if has_aux:
        out, aux = out
    places = _wanted(xs)
    flat, spec = pytree.tree_flatten(out)

    def pull(*cotangents, retain_graph=True, create_graph=True):
        seeds = pytree.tree_leaves(cotangents[0] if len(cotangents) == 1 else cotangents)
        if len(seeds) != len(flat):
            raise RuntimeError(f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. cotangents: {len(seeds)} tensors, primal output: {len(flat)} tensors")
        outside = _records()
        with _recording():
            return _settle(tuple(_filled(xs, _derivatives(flat, places, seeds))), places, outside)
    out = _settle(out, places, outside)
    return (out, pull, _settle(aux, places, outside)) if has_aux else (out, pull)


def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError("jvp: Expected primals and tangents to be tuples. E.g. it should be valid to call f(*primals).")
    _primals(primals)
    outside = _records()
    with _recording():
        xs = _fresh(primals)
        out = func(*xs)
        if has_aux:
            out, aux = out
        places, flat = _wanted(xs), pytree.tree_leaves(out)
        ways = [t for p, t in zip(pytree.tree_leaves(xs), pytree.tree_leaves(tangents)) if _is_tensor(p) and p.requires_grad]
        for p, t in zip(places, ways):
            if p.shape != t.shape:
                raise RuntimeError(f"jvp: Expected primal and tangent to have the same shape, got {tuple(p.shape)} and {tuple(t.shape)}")
        # the derivative of v -> v J along the tangents is J times them
        v = [taper.zeros_like(o).requires_grad_() for o in flat]
        pushed = _derivatives(_derivatives(flat, places, v), v, ways)
        it = iter(pushed)
        result = pytree.tree_map(lambda o: next(it), out)
        both = places + v
        result, out = _settle(result, both, outside), _settle(out, places, outside)
    return (out, result, _settle(aux, places, outside)) if has_aux else (out, result)


def linearize(func, *primals):
    """The value at primals and the map of tangents there."""
    out, _ = vjp(func, *primals)
    return out, lambda *tangents: jvp(func, primals, tangents)[1]


def _rows(o, places, chunk_size=None):
    """The derivatives of every number in o: for each place a tensor with o's dimensions in front of its own."""
    n = o.numel()
    if not n or not o.requires_grad:
        return [o.new_zeros(o.shape + p.shape) for p in places]
    if not places:
        return []
    seeds = taper.eye(n, dtype=o.dtype, device=o.device).reshape((n,) + tuple(o.shape))
    found = vmap(lambda v: tuple(_derivatives([o], places, [v])), randomness="same", chunk_size=chunk_size)(seeds)
    return [g.reshape(o.shape + p.shape) for g, p in zip(found, places)]


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None, _preallocate_and_copy=False):
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        outside = _records()
        with _recording():
            args, which, many = _begun(args, argnums)
            out = func(*args, **kwargs)
            if has_aux:
                out, aux = out
            tree = tuple(args[i] for i in which) if many else args[which[0]]
            places = _wanted(tree)

            def of(o):
                return _filled(tree, _rows(o, places, chunk_size))
            result = _settle(pytree.tree_map(of, out), places, outside)
            return (result, _settle(aux, places, outside)) if has_aux else result
    return wrapper


def _primals(tree):
    for t in pytree.tree_leaves(tree):
        if _is_tensor(t) and not (t.is_floating_point() or t.is_complex()):
            raise ValueError(f"Expected primal to be floating point or complex, but got: {t.dtype}")


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """The same matrix as jacrev's: the tape gives it by rows."""
    matrix = jacrev(func, argnums, has_aux=has_aux)

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        for i in _chosen(args, argnums)[0]:
            _primals(args[i])
        return matrix(*args, **kwargs)
    return wrapper


def hessian(func, argnums=0):
    return jacfwd(jacrev(func, argnums), argnums)


def _traced():
    return taper._C._capture_tracing()


taper._C._capture_role(_traced, "true")


def _drawn():
    """Whether a graph is being captured, and a number that random operators change there, or elsewhere."""
    return _traced(), taper._C._draws()


_RANDOMNESS = ("error", "different", "same")


class _Reads(Exception):
    """A function under vmap wants the values of a tensor that are different for each element."""


def _checked(func, in_dims, args):
    """The tensors of the arguments, their dimensions and the size of the batch."""
    name = getattr(func, "__name__", repr(func))
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got: {type(in_dims)}.")
    if not args:
        raise ValueError(f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a function with no inputs. The latter is unsupported.")
    if isinstance(in_dims, tuple) and len(in_dims) != len(args):
        raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): in_dims is not compatible with the structure of inputs. in_dims has {len(in_dims)} entries but there are {len(args)} inputs.")
    flat, spec = pytree.tree_flatten(args)
    dims, sizes = _spread(args, in_dims), []
    for t, d in zip(flat, dims):
        if d is None:
            continue
        if not _is_tensor(t):
            raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={d} for an input but the input is of type {type(t)}. We cannot vmap over non-Tensor arguments, please use None as the respective in_dim")
        if not -t.dim() <= d < t.dim():
            raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={d} for some input, but that input is a Tensor of dimensionality {t.dim()} so expected in_dim to satisfy -{t.dim()} <= in_dim < {t.dim()}.")
        sizes.append(t.shape[d])
    if not sizes:
        raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): at least one of the inputs must have a batch dimension (in_dims is None for all)")
    if len(set(sizes)) > 1:
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped dimension")
    return flat, spec, [d if d is None else d % t.dim() for t, d in zip(flat, dims)], sizes[0]


def _results(func, out):
    for o in pytree.tree_leaves(out):
        if not _is_tensor(o):
            name = getattr(func, "__name__", repr(func))
            raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(o)} as a return.")


def _together(func, flat, spec, dims, out_dims, randomness, kwargs):
    """One call of func for the whole batch: every operator in it runs once, by its batching rule."""
    front = [t if d is None else t.movedim(d, 0) for t, d in zip(flat, dims)]
    first = next(t for t, d in zip(front, dims) if d is not None)
    level, refused = taper._C._batch_enter(first, _RANDOMNESS.index(randomness)), None
    try:
        out = func(*pytree.tree_unflatten([t if d is None else taper._C._batch_wrap(t, level) for t, d in zip(front, dims)], spec), **kwargs)
        _results(func, out)
        leaves, shape = pytree.tree_flatten(out)
        wholes = [taper._C._batch_whole(t, level) for t in leaves]
    except Exception as e:
        refused = taper._C._batch_exit()
        if refused is not None or isinstance(e, taper._C.FakeTensorError):
            raise _Reads(refused or str(e).replace("a fake tensor", "one element of the batch")) from e
        raise
    taper._C._batch_exit()
    joined = []
    for t, w, d in zip(leaves, wholes, _spread(out, out_dims)):
        if d is not None:
            w = t.expand(first.shape[0], *t.shape) if w is None else w
            w = w.movedim(0, d) if d else w
        elif w is None:
            w = t
        else:
            name = getattr(func, "__name__", repr(func))
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        joined.append(w.detach() if w.requires_grad and not taper.is_grad_enabled() else w)
    return pytree.tree_unflatten(joined, shape)


def _one_by_one(func, flat, spec, dims, size, out_dims, randomness, kwargs):
    """func for each element, and the results stacked: where it reads the data of a tensor."""
    none = size == 0  # it is called with one element of zeros, which the results then leave out
    if none:
        flat = [t if d is None else taper.cat([t, t.new_zeros(*t.shape[:d], 1, *t.shape[d:][1:])], d) for t, d in zip(flat, dims)]
    state, before, outs = taper.get_rng_state() if randomness == "same" else None, _drawn(), []
    for i in range(size or 1):
        if state is not None:
            taper.set_rng_state(state)
        outs.append(func(*pytree.tree_unflatten([t if d is None else t.select(d, i) for t, d in zip(flat, dims)], spec), **kwargs))
        now = _drawn()
        if randomness == "error" and now[0] == before[0] and now[1] != before[1]:  # a graph break lies between them: not known
            raise RuntimeError("vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness flags on vmap or perform the randomness operation out of vmap")
    leaves = [pytree.tree_flatten(o)[0] for o in outs]
    shape = pytree.tree_flatten(outs[0])[1]
    _results(func, outs[0])
    to = _spread(outs[0], out_dims)
    joined = [taper.stack(list(col), d) if d is not None else col[0] for col, d in zip(zip(*leaves), to)]
    if none:
        joined = [t if d is None else t.narrow(d, 0, 0) for t, d in zip(joined, to)]
    return pytree.tree_unflatten(joined, shape)


def _vmapped(func, flat, spec, dims, size, out_dims, randomness, kwargs):
    try:
        return _together(func, flat, spec, dims, out_dims, randomness, kwargs)
    except _Reads as e:
        if taper._C._batch_level():  # the outermost one runs the whole again
            raise
        why = str(e)
    code = getattr(func, "__code__", None)
    taper._C._batch_note((getattr(func, "__qualname__", type(func).__qualname__), code.co_filename if code else "", code.co_firstlineno if code else 0, why), size)
    return _one_by_one(func, flat, spec, dims, size, out_dims, randomness, kwargs)


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """func for each slice along a dimension, its results stacked. func is called once, for all of them: every operator in it
    runs once by its batching rule. chunk_size: so many elements at a time.

    >>> taper.vmap(lambda x: x.sum())(taper.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([3., 7.])
    """
    if randomness not in _RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        flat, spec, dims, size = _checked(func, in_dims, args)
        if chunk_size is None or chunk_size >= size:
            return _vmapped(func, flat, spec, dims, size, out_dims, randomness, kwargs)
        outs = []
        for at in range(0, size, chunk_size):
            n = min(chunk_size, size - at)
            outs.append(_vmapped(func, [t if d is None else t.narrow(d, at, n) for t, d in zip(flat, dims)], spec, dims, n, out_dims, randomness, kwargs))
        leaves = [pytree.tree_flatten(o)[0] for o in outs]
        joined = [taper.cat(list(col), d) if d is not None else col[0] for col, d in zip(zip(*leaves), _spread(outs[0], out_dims))]
        return pytree.tree_unflatten(joined, pytree.tree_flatten(outs[0])[1])
    return wrapper


def _spread(tree, dims):
    """One entry of dims for each leaf of the tree; dims is a number or None for everything below it, or nested alike."""
    if dims is None or isinstance(dims, int):
        return [dims] * len(pytree.tree_leaves(tree))
    if isinstance(tree, dict):
        return [d for k in tree for d in _spread(tree[k], dims[k])]
    if isinstance(tree, (tuple, list)) and len(tree) == len(dims):
        return [d for t, e in zip(tree, dims) for d in _spread(t, e)]
    if len(dims) == 1:
        return _spread(tree, dims[0])
    raise ValueError(f"vmap: {dims} is not compatible with the structure of what it describes")


@contextlib.contextmanager
def _swapped(module, tensors, strict):
    own = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}
    if strict:
        missing, extra = [k for k in own if k not in tensors], [k for k in tensors if k not in own]
        if missing or extra:
            raise RuntimeError(f"Error(s) in loading state for {type(module).__name__}: missing keys {missing}, unexpected keys {extra}")
    # one name of a shared tensor stands for all of them
    by_id = {id(own[k]): v for k, v in tensors.items() if k in own}
    undo = []
    try:
        for name, old in own.items():
            new = tensors.get(name, by_id.get(id(old)))
            if new is None:
                continue
            path, _, leaf = name.rpartition(".")
            sub = module.get_submodule(path)
            slot = sub._parameters if leaf in sub._parameters else sub._buffers
            undo.append((slot, leaf, slot[leaf]))
            slot[leaf] = new
        yield
    finally:
        for slot, leaf, old in reversed(undo):
            slot[leaf] = old


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """module(*args) with the given tensors in place of its own parameters and buffers, which are left as they are."""
    dicts = parameter_and_buffer_dicts if isinstance(parameter_and_buffer_dicts, (tuple, list)) else [parameter_and_buffer_dicts]
    tensors = {}
    for d in dicts:
        for k, v in d.items():
            if k in tensors:
                raise ValueError(f"{k} appears in multiple dictionaries; behavior of functional call is ambiguous")
            tensors[k] = v
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _swapped(module, tensors, strict):
        return module(*args, **(kwargs or {}))


def stack_module_state(models):
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")

    def stacked(named):
        all_of = [dict(named(m)) for m in models]
        return {k: taper.stack([d[k].detach() for d in all_of]) for k in all_of[0]}
    params = {k: v.requires_grad_(dict(models[0].named_parameters())[k].requires_grad) for k, v in stacked(lambda m: m.named_parameters()).items()}
    return params, stacked(lambda m: m.named_buffers())
