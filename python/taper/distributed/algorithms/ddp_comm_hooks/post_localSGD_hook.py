"""What is refused by name."""
from ...._absent import fill as _fill

_fill(globals(), "use a hook of default_hooks, or one of your own",
      classes="PostLocalSGDState",
      functions="post_localSGD_hook")
