"""Windows, under the file name that programs import them from."""
from .linear import (Fold, Unfold)  # noqa: F401
