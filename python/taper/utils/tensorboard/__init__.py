"""Logs for TensorBoard are written by its own package."""
try:
    from tensorboardX import SummaryWriter  # noqa: F401
except ImportError:
    raise ModuleNotFoundError("torch.utils.tensorboard needs the package tensorboardX (pip install tensorboardX)", name="tensorboard") from None
