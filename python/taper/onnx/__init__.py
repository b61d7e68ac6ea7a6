"""ONNX files: load() makes a module of one, export() writes one. The format is read and written here; no package is needed.

    model = taper.onnx.load("model.onnx")
    taper.onnx.export(model, (x,), "copy.onnx")
"""
from ._export import ExportOptions, ONNXProgram, OnnxExporterError, dynamo_export, export, select_model_mode_for_export
from ._load import OnnxModule, load, supported
from ._wire import OnnxError

__all__ = ["load", "export", "supported", "OnnxModule", "OnnxError", "ONNXProgram", "OnnxExporterError", "ExportOptions", "dynamo_export",
           "select_model_mode_for_export", "is_in_onnx_export", "register_custom_op_symbolic", "unregister_custom_op_symbolic"]
producer_name, producer_version = "taper", "0"


def is_in_onnx_export():
    """False: export captures the model that is called in the ordinary way."""
    return False


def is_onnxrt_backend_supported():
    """False: ONNX Runtime is no backend."""
    return False


_symbolics = {}


def register_custom_op_symbolic(symbolic_name, symbolic_fn, opset_version):
    """Kept for programs that register rules of PyTorch's exporter; export() does not use them."""
    _symbolics[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name, opset_version):
    """Forgets what register_custom_op_symbolic() kept."""
    _symbolics.pop((symbolic_name, opset_version), None)
