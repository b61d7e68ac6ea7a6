"""Types for annotations of sizes: a number, or one for each dimension."""
from typing import Optional, TypeVar, Union

from .. import _C

T = TypeVar("T")
_scalar_or_tuple_any_t = Union[T, tuple[T, ...]]
_scalar_or_tuple_1_t, _scalar_or_tuple_2_t, _scalar_or_tuple_3_t = Union[T, tuple[T]], Union[T, tuple[T, T]], Union[T, tuple[T, T, T]]
_scalar_or_tuple_4_t, _scalar_or_tuple_5_t = Union[T, tuple[T, T, T, T]], Union[T, tuple[T, T, T, T, T]]
_scalar_or_tuple_6_t = Union[T, tuple[T, T, T, T, T, T]]
_size_any_t, _size_1_t, _size_2_t, _size_3_t = _scalar_or_tuple_any_t[int], _scalar_or_tuple_1_t[int], _scalar_or_tuple_2_t[int], _scalar_or_tuple_3_t[int]
_size_4_t, _size_5_t, _size_6_t = _scalar_or_tuple_4_t[int], _scalar_or_tuple_5_t[int], _scalar_or_tuple_6_t[int]
_size_any_opt_t, _size_2_opt_t, _size_3_opt_t = tuple[Optional[int], ...], tuple[Optional[int], Optional[int]], tuple[Optional[int], Optional[int], Optional[int]]
_ratio_2_t, _ratio_3_t, _ratio_any_t = _scalar_or_tuple_2_t[float], _scalar_or_tuple_3_t[float], _scalar_or_tuple_any_t[float]
_tensor_list_t = _scalar_or_tuple_any_t[_C.Tensor]
_maybe_indices_t = _scalar_or_tuple_2_t[_C.Tensor]
