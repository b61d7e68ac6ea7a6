"""Which libraries stand behind the operators, and the switches programs set on them."""
from . import cpu, cuda, cudnn, cusparselt, kleidiai, mha, mkl, mkldnn, mps, nnpack, openmp, opt_einsum, quantized, xeon, xnnpack  # noqa: F401

fp32_precision = "none"


def flags_frozen():
    return False


def disable_global_flags():
    """The switches change nothing here."""
