"""What is refused by name."""
from ...._absent import fill as _fill

_fill(globals(), "use a hook of default_hooks, or one of your own",
      classes="PowerSGDState",
      functions="powerSGD_hook batched_powerSGD_hook")
