"""Names of several processes."""
