"""Whether uninitialised memory is filled in deterministic mode."""
fill_uninitialized_memory = True
