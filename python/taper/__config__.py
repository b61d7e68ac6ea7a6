"""How this was built."""
from . import _C


def show():
    return f"Taper {__import__('taper.version').version.taper}: a tensor compiler in C\n  - CPU capability usage: {_C._isa_name() if hasattr(_C, '_isa_name') else 'auto'}\n"


def parallel_info():
    return f"ATen/Parallel:\n\tat::get_num_threads() : {_C.get_num_threads()}\n"
