"""Quantized tensors are not supported; linear layers with int8 weights are (dynamic.py)."""
from ..._absent import fill as _fill

_fill(globals(), "quantized tensors are not supported",
      classes="QConfig QuantStub DeQuantStub QuantWrapper FakeQuantize MinMaxObserver MovingAverageMinMaxObserver PerChannelMinMaxObserver HistogramObserver ObserverBase FakeQuantizeBase PlaceholderObserver QConfigMapping",
      functions="convert prepare prepare_qat fuse_modules fuse_modules_qat get_default_qconfig get_default_qat_qconfig default_observer default_weight_observer default_per_channel_weight_observer quantize quantize_qat default_qconfig default_dynamic_qconfig float_qparams_weight_only_qconfig get_default_qconfig_mapping disable_observer enable_observer disable_fake_quant enable_fake_quant")

from .dynamic import DynamicLinear, QuantizationReport, quantization_report, quantize_dynamic  # noqa: E402,F401
