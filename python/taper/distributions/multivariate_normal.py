"""MultivariateNormal, under the file name that programs import it from."""
from .continuous import MultivariateNormal  # noqa: F401
