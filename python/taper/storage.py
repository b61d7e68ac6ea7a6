"""Storages."""
from ._C import UntypedStorage  # noqa: F401
