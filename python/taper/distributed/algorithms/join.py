"""What is refused by name."""
from ..._absent import fill as _fill

_fill(globals(), "ranks take the same number of steps: give DistributedSampler drop_last=True, or make batches equal",
      classes="Join Joinable JoinHook",
      functions="")
