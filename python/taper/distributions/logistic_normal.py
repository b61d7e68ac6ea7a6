"""LogisticNormal, under the file name that programs import it from."""
from .more import LogisticNormal  # noqa: F401
