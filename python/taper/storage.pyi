# Generated from the signatures by tools/gendocs_stubs.py; do not edit.
# mypy: disable-error-code="override,type-arg,misc"
# pyright: reportIncompatibleMethodOverride=false, reportMissingTypeArgument=false
from typing import Any, Callable, Dict, Generic, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union

from typing_extensions import Self
from ._C import Generator, Size, Tensor, UntypedStorage, device, dtype

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])

from .nn.parameter import Parameter
from .nn import Module
EventList = Any

class BFloat16Storage:
    dtype: Any
class BoolStorage:
    dtype: Any
class ByteStorage:
    dtype: Any
class CharStorage:
    dtype: Any
class ComplexDoubleStorage:
    dtype: Any
class ComplexFloatStorage:
    dtype: Any
class DoubleStorage:
    dtype: Any
class FloatStorage:
    dtype: Any
class HalfStorage:
    dtype: Any
class IntStorage:
    dtype: Any
class LongStorage:
    dtype: Any
class ShortStorage:
    dtype: Any
class TypedStorage:
    def __getitem__(self, i: Any) -> Any: ...
    def __init__(self, *, wrap_storage: Any, dtype: Any) -> None: ...
    def __iter__(self) -> Any: ...
    def __len__(self) -> int: ...
    def data_ptr(self) -> Any: ...
    @property
    def device(self) -> Any: ...
    def element_size(self) -> Any: ...
    def nbytes(self) -> Any: ...
    def size(self) -> Any: ...
    def tolist(self) -> Any: ...
    def untyped(self) -> Any: ...
ABSENT: Any
NAMED: Any
