"""LogitRelaxedBernoulli, RelaxedBernoulli, under the file name that programs import it from."""
from .more import LogitRelaxedBernoulli, RelaxedBernoulli  # noqa: F401
