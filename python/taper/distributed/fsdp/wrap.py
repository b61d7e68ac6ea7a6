"""Names of several processes: classes that no object is of, functions that say so."""
from ..._absent import fill as _fill

_fill(globals(), "it spreads work over several processes, and Taper runs distributed programs in one",
      classes="ModuleWrapPolicy CustomPolicy",
      functions="transformer_auto_wrap_policy size_based_auto_wrap_policy always_wrap_policy enable_wrap wrap lambda_auto_wrap_policy _or_policy")
