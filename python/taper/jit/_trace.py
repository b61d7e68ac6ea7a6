"""Names of the tracer."""
from . import TracerWarning, is_tracing, trace, trace_module  # noqa: F401
