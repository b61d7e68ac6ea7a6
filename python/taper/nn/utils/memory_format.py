"""Memory layouts of weights."""
from . import convert_conv2d_weight_memory_format, convert_conv3d_weight_memory_format  # noqa: F401
