"""Marks on functions and tensors, under the name programs import them from."""
from .eval_frame import (allow_in_graph, assume_constant_result, disable, disallow_in_graph, forbid_in_graph,  # noqa: F401
                         graph_break, mark_dynamic, mark_static, mark_static_address, mark_unbacked, maybe_mark_dynamic,
                         nonstrict_trace, run, skip_frame, substitute_in_graph)
