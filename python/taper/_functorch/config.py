"""Settings of the autograd stage in the original. Taper's own are options of the backend (docs/options.md); these are kept as they are set."""
import sys as _sys

from ..utils._config_module import install_config_module as _install

_defaults = {"functionalize_rng_ops": False, "fake_tensor_allow_meta": True, "debug_assert": False, "debug_partitioner": False, "cse": True,
             "enable_autograd_cache": True, "autograd_cache_allow_custom_autograd_functions": False, "bundled_autograd_cache": False,
             "strict_autograd_cache": False, "view_replay_for_aliased_outputs": True, "max_dist_from_bw": 1000, "ban_recompute_used_far_apart": True,
             "ban_recompute_long_fusible_chains": True, "ban_recompute_materialized_backward": True, "ban_recompute_not_in_allowlist": True,
             "ban_recompute_reductions": True, "recompute_views": False, "treat_parameters_as_free_to_save": True, "activation_memory_budget": 1.0,
             "activation_memory_budget_runtime_estimator": "flops", "activation_memory_budget_solver": "dp", "aggressive_recomputation": False,
             "fake_tensor_allow_unsafe_data_ptr_access": True, "unlift_effect_tokens": False, "donated_buffer": False, "torch_compile_graph_format": "svg",
             "fake_tensor_propagate_real_tensors": False, "backward_pass_autocast": "same_as_forward", "error_on_custom_op_aliasing": False,
             "custom_op_default_layout_constraint": "needs_fixed_stride_order", "generate_fake_kernels_from_real_mismatches": False,
             "visualize_memory_budget_pareto": False, "memory_budget_pareto_dir": None, "graphsafe_rng_functionalization": True,
             "force_non_lazy_backward_lowering": False, "force_autograd_cache": False, "selective_decompose": False, "graph_partition": False}
_install(_sys.modules[__name__])
