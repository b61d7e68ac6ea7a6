"""InverseGamma, under the file name that programs import it from."""
from .more import InverseGamma  # noqa: F401
