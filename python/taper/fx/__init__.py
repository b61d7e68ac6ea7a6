"""Captured graphs as Python objects that can be walked and edited."""
from .graph import Graph, GraphModule, Node, Proxy, Interpreter  # noqa: F401
from . import graph, node  # noqa: F401
