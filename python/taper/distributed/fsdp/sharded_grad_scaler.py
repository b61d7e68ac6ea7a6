"""What is refused by name."""
from ..._absent import fill as _fill

_fill(globals(), "use taper.amp.GradScaler; fully_shard adds gradients in the type its MixedPrecisionPolicy says",
      classes="ShardedGradScaler",
      functions="")
