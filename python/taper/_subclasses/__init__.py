"""Fake tensors: shapes without data."""
from .fake_tensor import DynamicOutputShapeException, FakeTensor, FakeTensorMode, UnsupportedFakeTensorException, is_fake  # noqa: F401
