"""NegativeBinomial, under the file name that programs import it from."""
from .more import NegativeBinomial  # noqa: F401
