"""Categorical, under the file name that programs import it from."""
from .discrete import Categorical  # noqa: F401
