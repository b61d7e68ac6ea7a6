"""The wrapper of one device."""
from . import DataParallel, data_parallel  # noqa: F401
