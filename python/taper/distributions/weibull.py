"""Weibull, under the file name that programs import it from."""
from .more import Weibull  # noqa: F401
