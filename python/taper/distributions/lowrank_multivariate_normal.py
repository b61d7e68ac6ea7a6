"""LowRankMultivariateNormal, under the file name that programs import it from."""
from .more import LowRankMultivariateNormal  # noqa: F401
