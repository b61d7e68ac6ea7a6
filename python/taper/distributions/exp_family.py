"""ExponentialFamily, under the file name that programs import it from."""
from .more import ExponentialFamily  # noqa: F401
