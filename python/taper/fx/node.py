"""The node under the name programs import it from."""
from .graph import Node, map_aggregate, map_arg  # noqa: F401
