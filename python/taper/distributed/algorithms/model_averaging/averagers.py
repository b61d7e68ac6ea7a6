"""What is refused by name."""
from ...._absent import fill as _fill

_fill(globals(), "average the parameters by all_reduce with ReduceOp.AVG every few steps",
      classes="ModelAverager PeriodicModelAverager",
      functions="")
