"""What is refused by name."""
from .._absent import fill as _fill

_fill(globals(), "ranks do not read the memory of one another's devices; use collectives",
      classes="",
      functions="enable_symm_mem_for_group")
