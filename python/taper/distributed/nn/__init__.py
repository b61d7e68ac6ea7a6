"""Collectives that are differentiable."""
from . import functional  # noqa: F401
from .functional import all_gather, all_reduce, broadcast, gather, reduce, scatter  # noqa: F401
