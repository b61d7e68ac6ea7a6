"""GeneralizedPareto, under the file name that programs import it from."""
from .more import GeneralizedPareto  # noqa: F401
