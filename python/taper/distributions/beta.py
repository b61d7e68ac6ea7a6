"""Beta, under the file name that programs import it from."""
from .continuous import Beta  # noqa: F401
