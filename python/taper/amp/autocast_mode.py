"""autocast: which type an operator computes in is decided by the operator, not by its arguments."""
import functools
import warnings

from .. import _C
from ..autograd.grad_mode import _Mode

_KINDS = ("cpu", "cuda", "mps", "xpu", "mtia", "hpu", "meta", "privateuseone")  # on all but the first nothing runs
_cache = [True]


def _kind(device_type, what):
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if device_type not in _KINDS:
        raise RuntimeError(f"{what}: there is no device type '{device_type}' here; use one of {', '.join(map(repr, _KINDS))}")
    return device_type


def is_autocast_available(device_type):
    """Can autocast do anything on such devices here?"""
    return device_type == "cpu"


def is_autocast_enabled(device_type="cuda"):
    """Is it on for the devices of this type? As in PyTorch, the type that is meant without a name is 'cuda'."""
    return _kind(device_type, "is_autocast_enabled") == "cpu" and _C._get_autocast()[0]


def set_autocast_enabled(device_type, enabled=None):
    if enabled is None:  # one argument: the old spelling, for cuda
        device_type, enabled = "cuda", device_type
    if _kind(device_type, "set_autocast_enabled") == "cpu":
        _C._set_autocast(bool(enabled), _C._get_autocast()[1])


def get_autocast_dtype(device_type):
    """The lower type: bfloat16 on the CPU unless set otherwise."""
    return _C._get_autocast()[1] if _kind(device_type, "get_autocast_dtype") == "cpu" else _C.float16


def set_autocast_dtype(device_type, dtype):
    if _kind(device_type, "set_autocast_dtype") == "cpu":
        _C._set_autocast(_C._get_autocast()[0], dtype)


def is_autocast_cpu_enabled():
    return _C._get_autocast()[0]


def set_autocast_cpu_enabled(enabled):
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype():
    return _C._get_autocast()[1]


def set_autocast_cpu_dtype(dtype):
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype():
    return _C.float16


def is_autocast_cache_enabled():
    return _cache[0]


def set_autocast_cache_enabled(enabled):
    _cache[0] = bool(enabled)


class autocast(_Mode):
    """with taper.autocast("cpu", dtype=taper.bfloat16): matrix products and convolutions inside compute in the lower
    type, losses and decompositions in float32, everything else in the type of its arguments. Also a decorator."""

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        self.device = _kind(device_type, "autocast")
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self.cache_enabled = cache_enabled
        self._enabled = bool(enabled)
        if self._enabled and device_type != "cpu":
            warnings.warn(f"User provided device_type of '{device_type}', but CUDA is not available. Disabling")
            self._enabled = False
        if self._enabled and self.fast_dtype not in (_C.bfloat16, _C.float16):
            warnings.warn("In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                          "CPU Autocast only supports dtype of taper.bfloat16, taper.float16 currently.")
            self._enabled = False
        self._before = []

    def _clone(self):
        return self

    def __enter__(self):
        if self.device == "cpu":
            self._before.append(_C._set_autocast(self._enabled, self.fast_dtype))
        return self

    def __exit__(self, *exc):
        if self.device == "cpu":
            old = self._before.pop()
            _C._set_autocast(old[0], old[1])
        return False


def _cast(value, device_type, dtype):
    if isinstance(value, _C.Tensor):
        eligible = value.is_floating_point() and value.device.type == device_type and value.dtype != _C.float64
        return value.to(dtype) if eligible else value
    if isinstance(value, dict):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_cast(v, device_type, dtype) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def custom_fwd(fwd=None, *, device_type, cast_inputs=None):
    """For forward of an autograd.Function: runs it as the caller's autocast says, or, with cast_inputs, without autocast
    on arguments of that type."""
    _kind(device_type, "custom_fwd")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(ctx, *args, **kwargs):
        ctx._dtype = get_autocast_dtype(device_type)
        ctx._fwd_used_autocast = is_autocast_enabled(device_type)
        if cast_inputs is None or not ctx._fwd_used_autocast:
            return fwd(ctx, *args, **kwargs)
        ctx._fwd_used_autocast = False
        with autocast(device_type, enabled=False):
            return fwd(ctx, *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))
    return decorated


def custom_bwd(bwd=None, *, device_type):
    """For backward of an autograd.Function: runs it under the autocast its forward ran under."""
    _kind(device_type, "custom_bwd")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(ctx, *args, **kwargs):
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(ctx, *args, **kwargs)
    return decorated
