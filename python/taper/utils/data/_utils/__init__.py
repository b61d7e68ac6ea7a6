"""Parts of the loader."""
from . import collate, fetch, pin_memory, worker  # noqa: F401

MP_STATUS_CHECK_INTERVAL = 5.0
HAS_NUMPY = True
