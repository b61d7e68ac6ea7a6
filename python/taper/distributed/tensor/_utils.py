"""Names of several processes: functions that say so."""
from ..._absent import fill as _fill

_fill(globals(), "tensors over several ranks are not there",
      functions="compute_local_shape_and_global_offset compute_global_tensor_info")
