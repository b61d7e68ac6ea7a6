"""Failures of whole captured graphs: the wrapper around backends written in Python, and the script's end."""
import copy
import functools
import logging

from ... import _C
from .. import config
from ..exc import AccuracyError
from . import run as _run
from .after_aot import _dump, _signature

log = logging.getLogger("taper._dynamo.repro.after_dynamo")


def run_repro(mod, load_args, *, command="run", accuracy="", save_dir=None, autocast=False, backend="inductor", **kwargs):
    return _run.run_repro(mod, load_args, inner=False, command=command, accuracy=accuracy, save_dir=save_dir, backend=backend, **kwargs)


def wrap_backend_debug(unconfigured_compiler_fn, compiler_name):
    """The backend with its failures saved, by taper._dynamo.config.repro_after == "dynamo" and repro_level."""
    @functools.wraps(unconfigured_compiler_fn)
    def debug_wrapper(gm, example_inputs, **kwargs):
        from ..debug_utils import run_fwd_maybe_bwd, same_two_models
        compiler_fn = functools.partial(unconfigured_compiler_fn, **kwargs)
        if config.repro_after not in ("dynamo", "aot", None, ""):
            raise AssertionError(f"repro_after must be 'dynamo', 'aot' or unset, not {config.repro_after!r}")
        if config.repro_after != "dynamo":
            return compiler_fn(gm, example_inputs)
        original, level = copy.deepcopy(gm), config.repro_level
        for x in example_inputs:
            if not isinstance(x, (int, _C.Tensor)):
                raise TypeError(f"cannot save an input of type {type(x).__name__}")
        if level == 3:
            _dump(gm, example_inputs, compiler_name, None, launcher=True, inner=False)
        try:
            compiled = compiler_fn(gm, example_inputs)
            if level != 4:
                with config.patch(repro_after=None):
                    run_fwd_maybe_bwd(compiled, example_inputs)
        except Exception as e:
            log.warning("Compiled Fx GraphModule failed. Creating script to minify the error.")
            e.minifier_path = _dump(original, example_inputs, compiler_name, _signature(e, "run"), launcher=level != 1, graph=level == 1, inner=False)
            if e.minifier_path and hasattr(e, "add_note"):
                e.add_note(f"Minifier script written to {e.minifier_path}. Run this script to find the smallest traced graph which reproduces "
                           "this error.")
            raise
        if level == 4:
            with config.patch(repro_after=None):
                ok = same_two_models(original, compiled, example_inputs, only_fwd=config.repro_forward_only, ignore_non_fp=config.repro_ignore_non_fp)
            if not ok:
                log.warning("Accuracy failed for the TorchDynamo produced graph. Creating script to minify the error.")
                e = AccuracyError("Bad accuracy detected.")
                e.minifier_path = _dump(original, example_inputs, compiler_name, _signature(e, "compare", "accuracy"), launcher=True, graph=True,
                                        accuracy=True, inner=False)
                raise e
        return compiled
    debug_wrapper._torchdynamo_orig_callable = unconfigured_compiler_fn
    return debug_wrapper
