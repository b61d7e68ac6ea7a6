"""Several processes are not started."""
