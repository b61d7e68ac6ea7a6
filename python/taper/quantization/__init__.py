"""Quantized tensors are not supported."""
from ..ao.quantization import *  # noqa: F401,F403
