"""There are no graphs of a GPU."""
from . import CUDAGraph, graph, graph_pool_handle, make_graphed_callables  # noqa: F401
