"""Capture: what it can be asked, and how it can be told what to do."""
import atexit as _atexit

from .. import _C
from . import config, exc, utils
from .utils import counters, register_hook_for_recompile_user_context, reset_recompile_user_contexts
from .eval_frame import (allow_in_graph, assume_constant_result, disable, disallow_in_graph, error_on_graph_break, explain, export,
                         forbid_in_graph, graph_break, is_compiling, is_dynamo_supported, mark_dynamic, mark_static, mark_static_address, mark_unbacked,
                         maybe_mark_dynamic, nonstrict_trace, optimize, optimize_assert, patch_dynamo_config, reset, run, skip_frame,
                         substitute_in_graph)
from . import backends, decorators, eval_frame
from .backends import list_backends, lookup_backend, register_backend

_C._capture_config(config._settings, counters)
_atexit.register(_C._capture_finish)


# Loaded when first named: comparing results, and saving failures.
_LATER = {"replay": "replay_record", "testing": "testing", "debug_utils": "debug_utils", "repro": "repro", "requires_bwd_pass": "testing", "reduce_to_scalar_loss": "testing",
          "collect_results": "testing", "clone_inputs_retaining_gradness": "debug_utils", "run_fwd_maybe_bwd": "debug_utils",
          "cast_to_fp64": "debug_utils", "same_two_models": "debug_utils", "backend_accuracy_fails": "debug_utils", "same": "utils"}


def __getattr__(name):
    if name == "OptimizedModule":
        return eval_frame._optimized_module_class()
    if name == "comptime":
        import importlib
        return importlib.import_module("taper._dynamo.comptime")
    where = _LATER.get(name)
    if where:
        import importlib
        m = importlib.import_module("taper._dynamo." + where)
        return m if where == name else getattr(m, name)
    raise AttributeError(f"module 'taper._dynamo' has no attribute '{name}'")
