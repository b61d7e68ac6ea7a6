"""Multinomial, under the file name that programs import it from."""
from .discrete import Multinomial  # noqa: F401
