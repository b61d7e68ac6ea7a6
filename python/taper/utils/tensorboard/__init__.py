"""Logs for TensorBoard."""
from .writer import FileWriter, SummaryWriter  # noqa: F401

__all__ = ["SummaryWriter", "FileWriter"]
