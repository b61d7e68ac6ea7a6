"""What is refused by name."""
from ..._absent import fill as _fill

_fill(globals(), "taper.distributed.checkpoint.save and load plan by themselves",
      classes="DefaultLoadPlanner DefaultSavePlanner",
      functions="")
