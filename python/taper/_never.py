"""Functions that are never captured: apart from the rest of taper._dynamo, which programs without a compiled function do not load."""
import functools

from . import _C

_role = _C._capture_role


def never_captured(fn, recursive=True, reason=None):
    """fn as taper.compiler.disable gives it."""
    fn = getattr(fn, "_torchdynamo_orig_callable", fn)
    if recursive:
        @functools.wraps(fn)
        def disabled(*args, **kwargs):
            _C._capture_disable(1)
            try:
                return fn(*args, **kwargs)
            finally:
                _C._capture_disable(-1)
    else:
        _role(fn, "skip")  # its own frame is left alone, the frames it starts are not

        @functools.wraps(fn)
        def disabled(*args, **kwargs):
            frames = _C._capture_pause(0)
            try:
                return fn(*args, **kwargs)
            finally:
                _C._capture_pause(frames)
    disabled._torchdynamo_disable = True
    disabled._torchdynamo_disable_msg = reason
    disabled._torchdynamo_disable_recursive = recursive
    disabled._torchdynamo_orig_callable = fn
    _role(disabled, "disable")
    return disabled
