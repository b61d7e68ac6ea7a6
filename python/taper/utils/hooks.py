"""Handles of hooks."""
from ..nn.modules.module import RemovableHandle  # noqa: F401
from ..nn.modules.module import _BackwardHook as BackwardHook  # noqa: F401


def unserializable_hook(f):
    """Marks a hook that should not be saved with its tensor."""
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor):
    """Hooks are not saved."""
