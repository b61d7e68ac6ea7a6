"""Recomputing modules."""
