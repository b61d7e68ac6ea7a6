"""Names of several processes: classes that no object is of, functions that say so."""
from ..._absent import fill as _fill

_fill(globals(), "it spreads work over several processes, and Taper runs distributed programs in one",
      classes="StateDictOptions",
      functions="get_model_state_dict get_optimizer_state_dict get_state_dict set_model_state_dict set_optimizer_state_dict set_state_dict")
