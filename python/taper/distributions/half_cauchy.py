"""HalfCauchy, under the file name that programs import it from."""
from .more import HalfCauchy  # noqa: F401
