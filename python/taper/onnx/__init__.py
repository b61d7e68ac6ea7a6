"""There is no export to ONNX; programs that ask whether one runs are told that none does. taper.export() writes C."""
from .._absent import fill as _fill

_WHY = "there is no export to ONNX; taper.export(fn, args) writes a graph that runs without Python"
_fill(globals(), _WHY, classes="ONNXProgram ExportOptions", functions="export dynamo_export register_custom_op_symbolic unregister_custom_op_symbolic select_model_mode_for_export")
producer_name, producer_version = "taper", "0"


def is_in_onnx_export():
    return False


class OnnxExporterError(RuntimeError):
    """An export failed."""


def is_onnxrt_backend_supported():
    return False
