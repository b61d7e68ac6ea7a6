"""Names for annotations."""
import builtins as _b
import os
from typing import IO, List, Sequence, Tuple, Union
from ._C import Size, SymInt, Tensor, device, dtype, layout  # noqa: F401

_TensorOrTensors = Union[Tensor, Sequence[Tensor]]
_dtype, _device, _layout = dtype, device, layout
_size = Union[Size, List[_b.int], Tuple[_b.int, ...]]
_int, _float, _bool, _symint = _b.int, _b.float, _b.bool, _b.int
Number = Union[_b.int, _b.float, _b.bool]
Device = Union[device, str, _b.int, None]
IntLikeType, FloatLikeType, BoolLikeType = Union[_b.int, SymInt], _b.float, _b.bool
FileLike = Union[str, os.PathLike, IO[bytes]]
