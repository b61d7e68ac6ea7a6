"""Quantization and pruning of the original: refused by name."""
