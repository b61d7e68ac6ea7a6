"""ContinuousBernoulli, under the file name that programs import it from."""
from .more import ContinuousBernoulli  # noqa: F401
