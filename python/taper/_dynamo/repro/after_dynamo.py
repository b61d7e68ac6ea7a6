"""Failures of whole captured graphs: the wrapper around backends written in Python, and the script's end."""
import copy
import functools
import logging
import threading

from ... import _C
from .. import config
from ..exc import AccuracyError
from . import run as _run
from .after_aot import _dump, _note, _signature

log = logging.getLogger("taper._dynamo.repro.after_dynamo")


def run_repro(mod, load_args, *, command="run", accuracy="", save_dir=None, autocast=False, backend="inductor", **kwargs):
    return _run.run_repro(mod, load_args, inner=False, command=command, accuracy=accuracy, save_dir=save_dir, backend=backend, **kwargs)


def _call(compiled, args):
    return compiled(list(args)) if getattr(compiled, "_boxed_call", False) else compiled(*args)


_inside = threading.local()  # a check runs on this thread: what it computes is not checked again


class _Watched:
    """One graph with a backend written in Python."""

    def __init__(self, gm, fn, name):
        self.gm, self.fn, self.name, self.compiled = copy.deepcopy(gm), fn, name, None

    def save(self, args, sig, **how):
        return _dump(self.gm, args, self.name, sig, inner=False, setup=_run.backend_lines(self.name, self.fn), **how)

    def failed(self, e, args):
        log.warning("Compiled Fx GraphModule failed. Creating script to minify the error.")
        level = config.repro_level
        _note(e, self.save(args, _signature(e, "run"), launcher=level != 1, graph=level == 1))

    def compare(self, args):
        from ..debug_utils import form_difference, same_two_models
        why = ""
        if same_two_models(self.gm, self.compiled, args, only_fwd=config.repro_forward_only, ignore_non_fp=config.repro_ignore_non_fp):
            why = form_difference(self.gm, self.compiled, args)
            if not why:
                return
        log.warning("Accuracy failed for the TorchDynamo produced graph. Creating script to minify the error.")
        e = AccuracyError(f"Bad accuracy detected: {why}" if why else "Bad accuracy detected.")
        _note(e, self.save(args, _signature(e, "compare", "accuracy"), launcher=True, graph=True, accuracy=True))
        raise e

    def __call__(self, *args):
        if config.repro_after != "dynamo" or getattr(_inside, "now", False):
            return _call(self.compiled, args)
        _inside.now = True
        try:
            if config.repro_level == 3:
                self.save(args, None, launcher=True)
            if config.repro_level == 4:
                self.compare(args)
            try:
                out = _call(self.compiled, args)
                _C._sync()
                return out
            except Exception as e:
                self.failed(e, args)
                raise
        finally:
            _inside.now = False


def _nothing_saved(e, name):
    """Behind the autograd stage there is nothing to watch in most backends written in Python: say so."""
    if not hasattr(e, "minifier_path") and hasattr(e, "add_note"):
        e.minifier_path = None
        e.add_note(f"Nothing was saved: repro_after='aot' watches the compiler behind the autograd stage, and backend {name!r} failed outside of it. "
                   "Use repro_after='dynamo' (TAPER_REPRO_AFTER=dynamo).")


def wrap_backend_debug(unconfigured_compiler_fn, compiler_name):
    """The backend with its failures saved, by taper._dynamo.config.repro_after == "dynamo" and repro_level."""
    @functools.wraps(unconfigured_compiler_fn)
    def debug_wrapper(gm, example_inputs, **kwargs):
        from ..debug_utils import run_fwd_maybe_bwd
        compiler_fn = functools.partial(unconfigured_compiler_fn, **kwargs)
        if config.repro_after not in ("dynamo", "aot", None, ""):
            raise AssertionError(f"repro_after must be 'dynamo', 'aot' or unset, not {config.repro_after!r}")
        if config.repro_after != "dynamo":
            try:
                return compiler_fn(gm, example_inputs)
            except Exception as e:
                if config.repro_after == "aot":
                    _nothing_saved(e, compiler_name)
                raise
        w, level = _Watched(gm, unconfigured_compiler_fn, compiler_name), config.repro_level
        for x in example_inputs:
            if not isinstance(x, (int, _C.Tensor)):
                raise TypeError(f"cannot save an input of type {type(x).__name__}")
        if level == 3:
            w.save(example_inputs, None, launcher=True)
        _inside.now = True
        try:
            w.compiled = compiler_fn(gm, example_inputs)
            if not callable(w.compiled):
                return w.compiled
            if level != 4:
                with config.patch(repro_after=None):
                    run_fwd_maybe_bwd(w.compiled, example_inputs)
        except Exception as e:
            w.failed(e, example_inputs)
            raise
        finally:
            _inside.now = False
        return w
    debug_wrapper._torchdynamo_orig_callable = unconfigured_compiler_fn
    return debug_wrapper
