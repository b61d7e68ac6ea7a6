"""Bernoulli, under the file name that programs import it from."""
from .discrete import Bernoulli  # noqa: F401
