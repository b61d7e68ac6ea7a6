"""There is no export to ONNX; programs that ask whether one runs are told that none does. taper.export() writes C."""
from .._absent import fill as _fill

_WHY = "there is no export to ONNX; taper.export(fn, args) writes a graph that runs without Python"
_fill(globals(), _WHY, classes="ONNXProgram ExportOptions", functions="export dynamo_export select_model_mode_for_export")
producer_name, producer_version = "taper", "0"


def is_in_onnx_export():
    return False


class OnnxExporterError(RuntimeError):
    """An export failed."""


def is_onnxrt_backend_supported():
    return False


_symbolics = {}


def register_custom_op_symbolic(symbolic_name, symbolic_fn, opset_version):
    """Kept for an exporter, of which there is none."""
    _symbolics[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name, opset_version):
    _symbolics.pop((symbolic_name, opset_version), None)
