"""FisherSnedecor, under the file name that programs import it from."""
from .more import FisherSnedecor  # noqa: F401
