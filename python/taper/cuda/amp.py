"""Autocast for a GPU, by the old names: without one it says so once and changes nothing."""
import functools as _functools

from .. import _C
from ..amp import GradScaler as _GradScaler, autocast as _autocast, custom_bwd as _custom_bwd, custom_fwd as _custom_fwd

__all__ = ["GradScaler", "autocast", "custom_fwd", "custom_bwd"]
custom_fwd = _functools.partial(_custom_fwd, device_type="cuda")
custom_bwd = _functools.partial(_custom_bwd, device_type="cuda")


class autocast(_autocast):
    def __init__(self, enabled=True, dtype=None, cache_enabled=True):
        super().__init__("cuda", _C.float16 if dtype is None else dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
