"""Normal, under the file name that programs import it from."""
from .continuous import Normal  # noqa: F401
