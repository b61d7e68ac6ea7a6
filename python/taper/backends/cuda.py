"""Switches of products on a GPU: they can be set and read, and change nothing."""
import contextlib as _contextlib
import types as _types
from .._absent import absent_class as _absent_class
from ._switches import Switches as _Switches

matmul = _types.SimpleNamespace(allow_tf32=False, allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True,
                                allow_fp16_accumulation=False, fp32_precision="none")
cufft_plan_cache = _types.SimpleNamespace(size=0, max_size=0)
preferred_linalg_library = preferred_blas_library = lambda backend=None: "default"  # noqa: E731
SDPAParams = _absent_class(__name__, "SDPAParams", "there is no CUDA device")
_sdp = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def _switch(kind):
    def enabled():
        return _sdp[kind]

    def enable(enabled):
        _sdp[kind] = bool(enabled)
    return enabled, enable


flash_sdp_enabled, enable_flash_sdp = _switch("flash")
mem_efficient_sdp_enabled, enable_mem_efficient_sdp = _switch("mem_efficient")
math_sdp_enabled, enable_math_sdp = _switch("math")
cudnn_sdp_enabled, enable_cudnn_sdp = _switch("cudnn")


def can_use_flash_attention(params, debug=False):
    return False


can_use_efficient_attention = can_use_cudnn_attention = can_use_flash_attention


def is_flash_attention_available():
    return False


@_contextlib.contextmanager
def sdp_kernel(enable_flash=True, enable_math=True, enable_mem_efficient=True, enable_cudnn=True):
    was = dict(_sdp)
    _sdp.update(flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn)
    try:
        yield
    finally:
        _sdp.update(was)


_Switches.into(__name__)
