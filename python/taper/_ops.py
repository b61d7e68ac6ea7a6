"""The operator classes under the name programs import them by."""
from .ops import Argument, FunctionSchema, OpOverload, OpOverloadPacket  # noqa: F401
