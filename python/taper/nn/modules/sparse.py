"""Tables of vectors, under the file name that programs import them from."""
from .linear import (Embedding, EmbeddingBag)  # noqa: F401
