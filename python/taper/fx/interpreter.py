"""Running graphs node by node, under the name programs import it from."""
from .graph import Interpreter, Transformer  # noqa: F401
