"""Independent, under the file name that programs import it from."""
from .distribution import Independent  # noqa: F401
