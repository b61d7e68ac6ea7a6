"""There is no xpu device."""
from .._absent import AbsentDevice as _Absent

_Absent("xpu").names(globals())


def current_allocated_memory():
    return 0


driver_allocated_memory = recommended_max_memory = current_allocated_memory
