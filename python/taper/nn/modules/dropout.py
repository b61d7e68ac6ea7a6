"""Dropout, under the file name that programs import them from."""
from .activation import (AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout, _DropoutNd)  # noqa: F401
