"""Quantized operators are not supported."""
