"""Proxies under the name programs import them from."""
from ._symbolic_trace import Attribute, Proxy, TraceError  # noqa: F401
