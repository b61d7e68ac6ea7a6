"""StudentT, under the file name that programs import it from."""
from .continuous import StudentT  # noqa: F401
