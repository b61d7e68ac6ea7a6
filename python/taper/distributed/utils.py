"""Names of several processes: classes that no object is of, functions that say so."""
from .._absent import fill as _fill

_fill(globals(), "it spreads work over several processes, and Taper runs distributed programs in one",
      classes="",
      functions="_sync_module_states _sync_params_and_buffers _verify_param_shape_across_processes")
