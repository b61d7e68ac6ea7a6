"""How long operators and marked ranges take. Operators are watched one by one, so a profiled program runs slower."""
from .profiler import (ExecutionTraceObserver, ProfilerAction, ProfilerActivity, kineto_available, profile, record_function, schedule,  # noqa: F401
                       supported_activities, tensorboard_trace_handler)
from . import itt, profiler  # noqa: F401

_KinetoProfile = profile


class DeviceType:
    CPU, CUDA = 0, 1
