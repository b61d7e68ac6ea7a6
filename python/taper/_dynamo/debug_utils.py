"""Comparing a graph with its compiled twin: copies of inputs, a float64 reference, one run with gradients."""
import copy
import logging
import os

from .. import _C
from . import config
from .exc import AccuracyError  # noqa: F401
from .testing import collect_results, reduce_to_scalar_loss, requires_bwd_pass
from .utils import clone_inputs, same

log = logging.getLogger("taper._dynamo.debug_utils")


def minifier_dir():
    """The folder that failures of this process are saved in; it is made if it is not there."""
    run = getattr(minifier_dir, "_run", None)
    if run is None:
        import datetime
        run = minifier_dir._run = f"run_{datetime.datetime.now():%Y_%m_%d_%H_%M_%S_%f}-pid_{os.getpid()}"
    path = os.path.join(config.debug_dir_root, run, "minifier")
    os.makedirs(path, exist_ok=True)
    return path


def get_minifier_repro_path():
    return os.path.join(minifier_dir(), "minifier_launcher.py")


def _is_float(dtype):
    return isinstance(dtype, _C.dtype) and dtype.is_floating_point


def clone_inputs_retaining_gradness(example_inputs):
    """Copies with the same strides, alignment and requires_grad; their data is their own."""
    out = clone_inputs(example_inputs)
    for old, new in zip(example_inputs, out):
        if isinstance(new, _C.Tensor) and isinstance(old, _C.Tensor) and old.requires_grad != new.requires_grad:
            new.requires_grad_(old.requires_grad)
    return out


def run_fwd_maybe_bwd(gm, args, only_fwd=False, disable_clone=False):
    """Runs gm on args and, if an output needs a gradient, backward from a scalar. Returns what came of it."""
    gm = copy.deepcopy(gm)
    if not disable_clone:
        args = clone_inputs_retaining_gradness(args)
    if hasattr(gm, "zero_grad"):
        gm.zero_grad(True)
    args = list(args)
    out = gm(list(args)) if getattr(gm, "_boxed_call", False) else gm(*args)  # a boxed callable may empty its list
    if only_fwd:
        return out
    if requires_bwd_pass(out):
        reduce_to_scalar_loss(out).backward()
    return collect_results(gm, out, None, args)


def _widen(value):
    from ..fx.graph import map_aggregate
    return map_aggregate(value, lambda v: _C.float64 if _is_float(v) else v)


def cast_to_fp64(model, inputs):
    """The model computing in float64, and the inputs: floats become float64, everything else stays."""
    graph = getattr(model, "graph", None)
    if graph is not None and hasattr(graph, "nodes"):
        for n in graph.nodes:
            if n.op == "call_function":
                args, kwargs = _widen(n.args), _widen(dict(n.kwargs))
                if args != n.args or kwargs != n.kwargs:
                    n._set(tuple(args), kwargs)
            elif n.op == "get_attr":
                t = getattr(model, n.target, None)
                if isinstance(t, _C.Tensor) and t.dtype.is_floating_point:
                    setattr(model, n.target, t.to(_C.float64))
    if hasattr(model, "to"):
        model = model.to(_C.float64)

    def cast(x):
        if isinstance(x, _C.Tensor) and x.dtype.is_floating_point:
            return x.detach().to(_C.float64).requires_grad_(x.requires_grad)
        return x
    return model, [cast(x) for x in inputs]


def same_two_models(gm, opt_gm, example_inputs, only_fwd=False, *, require_fp64=False, ignore_non_fp=False):
    """Whether the compiled model agrees with the plain one as well as float64 lets one expect."""
    ref = run_fwd_maybe_bwd(gm, example_inputs, only_fwd)
    fp64_ref = None
    if config.same_two_models_use_fp64:
        try:
            fp64_model, fp64_inputs = cast_to_fp64(copy.deepcopy(gm), clone_inputs_retaining_gradness(example_inputs))
            fp64_ref = run_fwd_maybe_bwd(fp64_model, fp64_inputs, only_fwd)
        except Exception:
            if require_fp64:
                raise RuntimeError("Could not generate fp64 outputs, workaround with taper._dynamo.config.same_two_models_use_fp64 = False") from None
            log.warning("Could not generate fp64 outputs")
    try:
        res = run_fwd_maybe_bwd(opt_gm, example_inputs, only_fwd)
    except Exception:
        # This graph fails in another way, which its own run reports; it does not disagree.
        log.exception("While minifying the program in accuracy minification mode, ran into a runtime exception which is likely an unrelated "
                      "issue. Skipping this graph.")
        return True
    return same(ref, res, fp64_ref, tol=config.repro_tolerance, equal_nan=True, ignore_non_fp=ignore_non_fp)


def _forms(args, out):
    """What can be seen of tensors beside their values: layout, place on the tape, objects and memory that are shared."""
    objects, memory, forms = {}, {}, []
    leaves = [x for x in [*args, *(out if isinstance(out, (list, tuple)) else [out])] if isinstance(x, _C.Tensor)]
    for k, x in enumerate(leaves):
        wide = [d for d in range(x.dim()) if x.shape[d] > 1] if x.numel() else []
        forms.append({
            "strides": [x.stride(d) for d in wide],
            "offset": x.storage_offset(),
            "requires_grad": x.requires_grad,
            "is_leaf": x.is_leaf,
            "object": objects.setdefault(id(x), k),
            "memory": memory.setdefault(x.untyped_storage().data_ptr(), k) if x.numel() else None,
        })
    return forms


def form_difference(gm, opt_gm, example_inputs):
    """What differs between the results of two models whose values agree, in words; None when nothing does."""
    seen = []
    for model in (gm, opt_gm):
        args = clone_inputs_retaining_gradness(example_inputs)
        out = model(list(args)) if getattr(model, "_boxed_call", False) else model(*args)
        seen.append(_forms(args, out))
    n = sum(isinstance(x, _C.Tensor) for x in example_inputs)
    for k, (want, got) in enumerate(zip(*seen)):
        for what in want:
            if want[what] != got[what]:
                where = f"input {k}" if k < n else f"result {k - n}"
                return f"{where}: the values agree, but {what} is {got[what]}, in eager mode {want[what]}"
    return None


def backend_accuracy_fails(gm, example_inputs, compiler_fn, only_fwd=False, *, require_fp64=False, ignore_non_fp=False):
    """Whether compiler_fn makes something of gm that disagrees. A compiler that fails does not disagree."""
    try:
        compiled = compiler_fn(copy.deepcopy(gm), clone_inputs_retaining_gradness(example_inputs))
        return not same_two_models(gm, compiled, example_inputs, only_fwd, require_fp64=require_fp64, ignore_non_fp=ignore_non_fp)
    except Exception:
        log.exception("While minifying the program in accuracy minification mode, ran into a runtime exception which is likely an unrelated "
                      "issue. Skipping this graph")
        return False
