"""The graph module under the name programs import it from."""
from .graph import GraphModule  # noqa: F401
