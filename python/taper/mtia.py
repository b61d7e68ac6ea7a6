"""There is no mtia device."""
from ._absent import AbsentDevice as _Absent

_Absent("mtia").names(globals())


def current_allocated_memory():
    return 0


driver_allocated_memory = recommended_max_memory = current_allocated_memory
