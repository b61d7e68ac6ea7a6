"""Names of PyTorch's exporter."""
from . import is_in_onnx_export  # noqa: F401
