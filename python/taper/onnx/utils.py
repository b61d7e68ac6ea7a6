"""There is no export to ONNX."""
from . import is_in_onnx_export  # noqa: F401
