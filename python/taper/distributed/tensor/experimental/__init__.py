"""What is refused by name."""
from ...._absent import fill as _fill

_fill(globals(), "tensors over several ranks are not there",
      classes="",
      functions="context_parallel implicit_replication local_map register_sharding")
