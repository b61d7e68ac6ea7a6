"""Names of several processes: classes that no object is of, functions that say so."""
from .._absent import fill as _fill

_fill(globals(), "it spreads work over several processes, and Taper runs distributed programs in one",
      classes="AsyncCollectiveTensor",
      functions="all_gather_tensor all_reduce all_to_all_single reduce_scatter_tensor wait_tensor permute_tensor")
