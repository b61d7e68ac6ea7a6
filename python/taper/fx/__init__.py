"""Graphs as Python objects that can be walked and edited: what capture recorded, and what symbolic_trace records."""
from .graph import Graph, GraphModule, Node, Interpreter, Transformer, map_arg  # noqa: F401
from ._symbolic_trace import PH, Proxy, TraceError, Tracer, symbolic_trace, wrap  # noqa: F401
from .subgraph_rewriter import replace_pattern  # noqa: F401
from . import graph, node, subgraph_rewriter, _symbolic_trace, immutable_collections  # noqa: F401


def __getattr__(name):
    """Submodules are loaded when they are asked for."""
    if name == "experimental":
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
