"""HalfNormal, under the file name that programs import it from."""
from .continuous import HalfNormal  # noqa: F401
