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

def load(data: Any) -> Any: ...
def load_file(filename: Any, device: Any = ...) -> Dict[str, Tensor]: ...
def metadata(filename: Any) -> Any: ...
def save(tensors: Any, metadata: Any = ...) -> None: ...
def save_file(tensors: Any, filename: Any, metadata: Any = ...) -> None: ...
def save_sharded(tensors: Any, directory: Any, max_shard_size: Any = ..., metadata: Any = ..., name: Any = ...) -> Any: ...
