"""The oldest names of the profiler."""
from .profiler import profile  # noqa: F401
