"""ExpRelaxedCategorical, RelaxedOneHotCategorical, under the file name that programs import it from."""
from .more import ExpRelaxedCategorical, RelaxedOneHotCategorical  # noqa: F401
