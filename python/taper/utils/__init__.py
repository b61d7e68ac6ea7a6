"""Utilities around the tensor library."""
