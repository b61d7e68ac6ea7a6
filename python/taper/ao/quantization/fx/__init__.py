"""Quantized graphs are not supported."""
