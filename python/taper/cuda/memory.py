"""Memory of a GPU."""
from . import (empty_cache, max_memory_allocated, max_memory_reserved, mem_get_info, memory_allocated, memory_reserved,  # noqa: F401
               memory_stats, memory_summary, reset_max_memory_allocated, reset_peak_memory_stats)
