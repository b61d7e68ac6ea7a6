"""A module whose activations are computed again in backward."""
import enum as _enum

from ....nn.modules.module import Module as _Module
from ....utils.checkpoint import checkpoint as _checkpoint


class CheckpointImpl(_enum.Enum):
    REENTRANT, NO_REENTRANT = 1, 2


class CheckpointWrapper(_Module):
    def __init__(self, mod, checkpoint_impl=CheckpointImpl.NO_REENTRANT, checkpoint_fn=None, **kwargs):
        super().__init__()
        self._checkpoint_wrapped_module, self.checkpoint_impl, self._fn, self._kwargs = mod, checkpoint_impl, checkpoint_fn, kwargs

    def forward(self, *args, **kwargs):
        if self._fn is not None:
            return self._fn(self._checkpoint_wrapped_module, *args, **self._kwargs, **kwargs)
        return _checkpoint(self._checkpoint_wrapped_module, *args, use_reentrant=self.checkpoint_impl is CheckpointImpl.REENTRANT, **self._kwargs, **kwargs)


def checkpoint_wrapper(module, checkpoint_impl=CheckpointImpl.NO_REENTRANT, checkpoint_fn=None, **kwargs):
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **kwargs)


def apply_activation_checkpointing(model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda _: True, auto_wrap_policy=None):
    """Wraps the submodules that check_fn picks, the inner ones first."""
    for name, child in list(model.named_children()):
        apply_activation_checkpointing(child, checkpoint_wrapper_fn, check_fn)
        if check_fn(child):
            setattr(model, name, checkpoint_wrapper_fn(child))
