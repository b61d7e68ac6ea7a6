"""Binomial, under the file name that programs import it from."""
from .discrete import Binomial  # noqa: F401
