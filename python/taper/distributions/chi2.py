"""Chi2, under the file name that programs import it from."""
from .continuous import Chi2  # noqa: F401
