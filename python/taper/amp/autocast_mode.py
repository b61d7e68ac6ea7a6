"""autocast: which type an operator computes in is decided by the operator, not by its arguments."""
import functools
import warnings

from .. import _C
from ..autograd.grad_mode import _Mode

_KINDS = ("cpu", "cuda", "mps", "xpu", "mtia", "hpu", "meta", "privateuseone")
_RUN = ("cpu", "cuda")  # on the others nothing runs
_cache = [True]


def _kind(device_type, what):
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if device_type not in _KINDS:
        raise RuntimeError(f"{what}: there is no device type '{device_type}' here; use one of {', '.join(map(repr, _KINDS))}")
    return device_type


def is_autocast_available(device_type):
    """Can autocast do anything on such devices here?"""
    return device_type == "cpu" or device_type == "cuda" and _C._cuda_is_available()


def is_autocast_enabled(device_type="cuda"):
    """Is it on for the devices of this type? As in PyTorch, the type that is meant without a name is 'cuda'.

    >>> with taper.autocast("cpu"):
    ...     on = taper.is_autocast_enabled("cpu")
    >>> on
    True
    """
    return _kind(device_type, "is_autocast_enabled") in _RUN and _C._get_autocast(device_type)[1]


def set_autocast_enabled(device_type, enabled=None):
    """Switch autocast on the devices of this type.

    >>> taper.set_autocast_enabled("cpu", False)
    """
    if enabled is None:  # one argument: the old spelling, for cuda
        device_type, enabled = "cuda", device_type
    if _kind(device_type, "set_autocast_enabled") in _RUN:
        _C._set_autocast(device_type, bool(enabled), _C._get_autocast(device_type)[2])


def get_autocast_dtype(device_type):
    """The lower type: bfloat16 on the CPU, float16 on GPUs unless set otherwise.

    >>> taper.get_autocast_dtype("cpu")
    taper.bfloat16
    """
    return _C._get_autocast(device_type)[2] if _kind(device_type, "get_autocast_dtype") in _RUN else _C.float16


def set_autocast_dtype(device_type, dtype):
    """The lower type of autocast on the devices of this type.

    >>> taper.set_autocast_dtype("cpu", taper.bfloat16)
    """
    if _kind(device_type, "set_autocast_dtype") in _RUN:
        _C._set_autocast(device_type, _C._get_autocast(device_type)[1], dtype)


def is_autocast_cpu_enabled():
    """Is autocast on for the CPU?

    >>> taper.is_autocast_cpu_enabled()
    False
    """
    return _C._get_autocast("cpu")[1]


def set_autocast_cpu_enabled(enabled):
    """Switch autocast on the CPU.

    >>> taper.set_autocast_cpu_enabled(False)
    """
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype():
    """The lower type of autocast on the CPU.

    >>> taper.get_autocast_cpu_dtype()
    taper.bfloat16
    """
    return _C._get_autocast("cpu")[2]


def set_autocast_cpu_dtype(dtype):
    """The lower type of autocast on the CPU.

    >>> taper.set_autocast_cpu_dtype(taper.bfloat16)
    """
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype():
    """The lower type of autocast on GPUs.

    >>> taper.get_autocast_gpu_dtype()
    taper.float16
    """
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype):
    set_autocast_dtype("cuda", dtype)


def is_autocast_cache_enabled():
    """Are converted weights kept while autocast is on?

    >>> taper.is_autocast_cache_enabled()
    True
    """
    return _cache[0]


def set_autocast_cache_enabled(enabled):
    """Keep converted weights while autocast is on.

    >>> taper.set_autocast_cache_enabled(True)
    """
    _cache[0] = bool(enabled)


class autocast(_Mode):
    """with taper.autocast("cpu", dtype=taper.bfloat16): matrix products and convolutions inside compute in the lower
    type, losses and decompositions in float32, everything else in the type of its arguments. Also a decorator.

    >>> with taper.autocast("cpu", dtype=taper.bfloat16):
    ...     y = taper.ones(2, 3) @ taper.ones(3, 2)
    >>> y.dtype
    taper.bfloat16
    """

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        self.device = _kind(device_type, "autocast")
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self.cache_enabled = cache_enabled
        self._enabled = bool(enabled)
        if self._enabled and not is_autocast_available(device_type):
            warnings.warn(f"User provided device_type of '{device_type}', but CUDA is not available. Disabling")
            self._enabled = False
        if self._enabled and self.fast_dtype not in (_C.bfloat16, _C.float16):
            name = device_type.upper()
            warnings.warn(f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
                          f"{name} Autocast only supports dtype of taper.bfloat16, taper.float16 currently.")
            self._enabled = False
        self._before = []

    def _clone(self):
        return self

    def __enter__(self):
        if self.device in _RUN:
            self._before.append(_C._set_autocast(self.device, self._enabled, self.fast_dtype))
        return self

    def __exit__(self, *exc):
        if self.device in _RUN:
            _C._set_autocast(*self._before.pop())
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
