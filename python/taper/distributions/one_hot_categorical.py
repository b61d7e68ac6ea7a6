"""OneHotCategorical, under the file name that programs import it from."""
from .discrete import OneHotCategorical  # noqa: F401
from .more import OneHotCategoricalStraightThrough  # noqa: F401
