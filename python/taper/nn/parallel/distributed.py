"""The wrapper of a group of one process."""
from . import DistributedDataParallel  # noqa: F401
