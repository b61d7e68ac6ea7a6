"""The node under the name programs import it from."""
import typing
from typing import Any, Callable, Optional, Union

from .. import _C
from .graph import Node, map_aggregate, map_arg  # noqa: F401

BaseArgumentTypes = Union[str, int, float, bool, complex, _C.dtype, _C.Tensor, _C.device, _C.memory_format, _C.layout]
base_types = typing.get_args(BaseArgumentTypes)
Target = Union[Callable[..., Any], str]
Argument = Optional[Union[tuple["Argument", ...], list["Argument"], dict[str, "Argument"], slice, range, Node, BaseArgumentTypes]]
