"""VonMises, under the file name that programs import it from."""
from .more import VonMises  # noqa: F401
