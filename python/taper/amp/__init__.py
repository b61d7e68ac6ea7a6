"""Mixed precision: products in bfloat16 or float16, what needs more in float32."""
from .autocast_mode import (autocast, custom_bwd, custom_fwd, get_autocast_cpu_dtype, get_autocast_dtype,
                            get_autocast_gpu_dtype, is_autocast_available, is_autocast_cache_enabled,
                            is_autocast_cpu_enabled, is_autocast_enabled, set_autocast_cache_enabled,
                            set_autocast_cpu_dtype, set_autocast_cpu_enabled, set_autocast_dtype,
                            set_autocast_enabled)
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
