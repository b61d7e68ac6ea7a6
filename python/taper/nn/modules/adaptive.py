"""Softmax over many classes, under the file name that programs import them from."""
from .linear import (AdaptiveLogSoftmaxWithLoss)  # noqa: F401
