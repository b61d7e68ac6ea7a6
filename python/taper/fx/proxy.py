"""Proxies under the name programs import them from."""
from ._symbolic_trace import Attribute, GraphAppendingTracer, Proxy, TraceError, Tracer as TracerBase  # noqa: F401
