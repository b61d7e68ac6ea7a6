"""LogNormal, under the file name that programs import it from."""
from .continuous import LogNormal  # noqa: F401
