"""Settings of the last stage. Those of `_WORDS` are options of the backend (docs/options.md); the others name what the
original has and Taper does not do, and are kept as they are set. Faults are planted by the original's switches; TAPER_INJECT
can do more."""
import sys as _sys
from .. import _C
from ..utils._config_module import Section as _Section, install_config_module as _install

_KINDS = ("compile_error", "runtime_error", "accuracy")


class _Switch:
    """cpp.inject_<op>_bug_TESTING_ONLY = "accuracy": the fault op:accuracy@gen."""

    def __init__(self, op, kinds):
        self.op, self.kinds = op, kinds

    def _rest(self):
        spec = [s for s in (_C._injected() or "").split(",") if s]
        mine = [s for s in spec if s.startswith(self.op + ":") and s.endswith("@gen")]
        return mine, [s for s in spec if s not in mine]

    def __get__(self, obj, cls=None):
        mine = self._rest()[0]
        return mine[0].split(":")[1].split("@")[0] if mine else None

    def __set__(self, obj, value):
        if value is not None and value not in self.kinds:
            raise AssertionError(f"inject_{self.op}_bug_TESTING_ONLY is one of {', '.join(self.kinds)} or None, not {value!r}")
        spec = self._rest()[1] + ([f"{self.op}:{value}@gen"] if value is not None else [])
        _C._inject(",".join(spec) or None)


class _Cpp(_Section):
    inject_relu_bug_TESTING_ONLY = _Switch("relu", _KINDS)
    inject_log1p_bug_TESTING_ONLY = _Switch("log1p", _KINDS[2:])


_WORDS = ("fallback_random", "max_autotune")
_defaults = {
    "fallback_random": False, "max_autotune": False,
    "debug": False, "verbose_progress": False, "compile_threads": 1, "freezing": False, "freezing_discard_parameters": False,
    "max_autotune_pointwise": False, "max_autotune_gemm": False, "max_autotune_gemm_backends": "ATEN", "coordinate_descent_tuning": False,
    "coordinate_descent_check_all_directions": False, "epilogue_fusion": True, "pattern_matcher": True, "cpp_wrapper": False,
    "fx_graph_cache": True, "fx_graph_remote_cache": None, "force_disable_caches": False, "implicit_fallbacks": True, "layout_optimization": True,
    "keep_output_stride": True, "shape_padding": True, "permute_fusion": False, "conv_1x1_as_mm": False, "size_asserts": True,
    "nan_asserts": False, "unroll_reductions_threshold": 8, "split_reductions": True, "benchmark_kernel": False, "use_mixed_mm": False,
    "b2b_gemm_pass": False, "decompose_mem_bound_mm": False, "inplace_buffers": True, "allow_buffer_reuse": True, "memory_planning": False,
    "reorder_for_locality": True, "dynamic_scale_rblock": True, "profile_bandwidth": False, "generate_intermediate_hooks": False,
    "joint_custom_pre_pass": None, "joint_custom_post_pass": None, "post_grad_custom_pre_pass": None, "post_grad_custom_post_pass": None,
    "is_nightly_or_source": False, "emulate_precision_casts": False, "comment_origin": False, "constant_and_index_propagation": True,
    "group_fusion": False, "batch_fusion": True, "tune_layout": False, "realize_reads_threshold": 4, "realize_opcount_threshold": 30,
    "aggressive_fusion": False, "max_fusion_size": 64, "autotune_local_cache": True, "autotune_remote_cache": None, "fallback_embedding_bag_byte_unpack": False,
    "bw_outputs_user_visible": True, "triton_kernel_default_layout_constraint": "needs_fixed_stride_order", "reorder_for_compute_comm_overlap": False,
}
_install(_sys.modules[__name__])
cpp = _Cpp("taper._inductor.config.cpp", threads=-1, simdlen=None, min_chunk_size=4096, enable_kernel_profile=False, weight_prepack=True,
           dynamic_threads=False, no_redundant_loops=True, enable_floating_point_contract_flag="off", vec_isa_ok=None,
           fallback_scatter_reduce_sum=True, enable_tiling_heuristics=True, enable_grouped_gemm_template=False, max_horizontal_fusion_size=16)
triton = _Section("taper._inductor.config.triton", cudagraphs=False, cudagraph_trees=True, unique_kernel_names=True, max_tiles=None,
                  autotune_pointwise=True, multi_kernel=0, tiling_prevents_pointwise_fusion=True, tiling_prevents_reduction_fusion=True,
                  dense_indexing=False, descriptive_names="original_aten", persistent_reductions=True, store_cubin=False)
trace = _Section("taper._inductor.config.trace", enabled=False, debug_dir=None, graph_diagram=False, log_autotuning_results=False,
                 save_real_tensors=False, output_code=True, fx_graph=True)
aot_inductor = _Section("taper._inductor.config.aot_inductor", output_path="", debug_compile=False, package=False, metadata={})


def _words():
    """Options of the backend that differ from their defaults, as the core takes them."""
    return {k: str(_sys.modules[__name__]._settings[k]) for k in _WORDS if _sys.modules[__name__]._settings[k] != _defaults[k]}
