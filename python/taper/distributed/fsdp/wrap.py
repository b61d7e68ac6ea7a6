"""What is refused by name."""
from ..._absent import fill as _fill

_fill(globals(), "fully_shard takes each module by a call: loop over model.modules() and call it",
      classes="ModuleWrapPolicy CustomPolicy",
      functions="transformer_auto_wrap_policy size_based_auto_wrap_policy always_wrap_policy enable_wrap wrap lambda_auto_wrap_policy _or_policy")
