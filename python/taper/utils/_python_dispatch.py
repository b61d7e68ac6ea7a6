"""Modes that see the operators themselves, below gradients: one call for each row that runs, backward included."""
from .. import _C
from ..overrides import _Mode


class TorchDispatchMode(_Mode):
    """with Mode(): operators go to __torch_dispatch__(func, types, args, kwargs); func is taper.ops.aten.<name>.<overload>."""
    _rows = True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{type(self).__name__} has no __torch_dispatch__")


class BaseTorchDispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode():
    modes = _C._mode_list(True)
    return modes[-1] if modes else None


def _get_current_dispatch_mode_stack():
    return _C._mode_list(True)


def is_in_torch_dispatch_mode():
    return bool(_C._mode_list(True))
