# Generated from the signatures by tools/gendocs_stubs.py; do not edit.
# mypy: disable-error-code="override,type-arg,misc"
# pyright: reportIncompatibleMethodOverride=false, reportMissingTypeArgument=false
from typing import Any, Callable, Dict, Generic, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union

from typing_extensions import Self
from .._C import Generator, Size, Tensor, UntypedStorage, device, dtype

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])

EventList = Any

class Buffer(Tensor):
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
class Parameter(Tensor):
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
class UninitializedBuffer(Tensor):
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    cls_to_become: Any
    def materialize(self, shape: Any, device: Any = ..., dtype: Any = ...) -> Any: ...
    @property
    def shape(self) -> Any: ...
class UninitializedParameter(Parameter):
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    cls_to_become: Any
    def materialize(self, shape: Any, device: Any = ..., dtype: Any = ...) -> Any: ...
    @property
    def shape(self) -> Any: ...
def is_lazy(param: Any) -> Any: ...
