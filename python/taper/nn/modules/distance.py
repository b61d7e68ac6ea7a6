"""Distances, under the file name that programs import them from."""
from .linear import (CosineSimilarity, PairwiseDistance)  # noqa: F401
