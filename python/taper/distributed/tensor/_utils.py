"""Names of several processes: functions that say so."""
from ..._absent import fill as _fill

_fill(globals(), "it spreads work over several processes, and Taper runs distributed programs in one",
      functions="compute_local_shape_and_global_offset compute_global_tensor_info")
