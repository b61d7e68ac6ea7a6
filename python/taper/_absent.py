"""What is not here, refused by name: classes that can be asked about but not made, functions that say why they cannot run."""
import sys as _sys


def _shown(name):
    return name.replace("taper.", "torch.", 1) if _sys.modules.get("torch") is _sys.modules.get("taper") else name


class _Refusing(type):
    def __call__(cls, *args, **kwargs):
        if cls.__dict__.get("_refused"):
            raise NotImplementedError(f"{_shown(cls.__module__ + '.' + cls.__qualname__)} is not supported: {cls._refused}")
        return super().__call__(*args, **kwargs)


def _doc(module, name, why, call=""):
    """With an example of what a use of it says."""
    if not module.startswith("taper"):
        return f"Not supported: {why}"
    return f"Not supported: {why}\n\n>>> {module}.{name}()\nTraceback (most recent call last):\n    ...\nNotImplementedError: {_shown(module + '.' + name)}{call} is not supported: {why}\n"


def absent_class(module, name, why, bases=(), **attrs):
    """A class of which no object exists: isinstance() is False, making one says why."""
    return _Refusing(name, bases, {"__module__": module, "_refused": why, "__doc__": _doc(module, name, why), **attrs})


def absent_function(module, name, why):
    def f(*args, **kwargs):
        raise NotImplementedError(f"{_shown(module + '.' + name)}() is not supported: {why}")
    f.__module__, f.__name__, f.__qualname__, f.__doc__ = module, name, name, _doc(module, name, why, "()")
    f._refused = why
    return f


def fill(scope, why, classes="", functions=""):
    """Puts absent classes and functions, given as names with spaces between, into a module's namespace."""
    for n in classes.split():
        scope[n] = absent_class(scope["__name__"], n, why)
    for n in functions.split():
        scope[n] = absent_function(scope["__name__"], n, why)


class AbsentDevice:
    """The functions that a module for a kind of device has, where there is no such device."""

    def __init__(self, kind, why=None):
        self.kind, self.why = kind, why or f"there is no {kind} device; Taper computes on the CPU"

    def names(self, scope):
        def none(name):
            def f(*args, **kwargs):
                raise AssertionError(f"{_shown(scope['__name__'])}.{name}: {self.why}. Ask {_shown(scope['__name__'])}.is_available() first.")
            f.__name__ = f.__qualname__ = name
            f.__module__ = scope["__name__"]
            return f

        def zero(*args, **kwargs):
            return 0

        def nothing(*args, **kwargs):
            return None

        def no(*args, **kwargs):
            return False

        values = {"is_available": no, "is_initialized": no, "is_bf16_supported": no, "device_count": zero, "empty_cache": nothing, "manual_seed": nothing,
                  "manual_seed_all": nothing, "seed": nothing, "seed_all": nothing, "memory_allocated": zero, "max_memory_allocated": zero,
                  "memory_reserved": zero, "max_memory_reserved": zero, "memory_cached": zero, "max_memory_cached": zero,
                  "reset_peak_memory_stats": nothing, "reset_max_memory_allocated": nothing, "reset_max_memory_cached": nothing,
                  "reset_accumulated_memory_stats": nothing, "memory_stats": lambda *a, **k: {}, "memory_summary": lambda *a, **k: "",
                  "get_rng_state_all": lambda: [], "set_rng_state_all": nothing, "is_current_stream_capturing": no, "ipc_collect": nothing,
                  "get_arch_list": lambda: [], "can_device_access_peer": no}
        for k, v in values.items():
            scope.setdefault(k, v)
        for k in ("current_device", "set_device", "synchronize", "get_device_name", "get_device_properties", "get_device_capability", "current_stream",
                  "default_stream", "set_stream", "mem_get_info", "init", "get_rng_state", "set_rng_state", "initial_seed", "utilization", "current_blas_handle",
                  "set_per_process_memory_fraction", "memory_snapshot", "temperature", "power_draw", "clock_rate", "cudart", "list_gpu_processes"):
            scope.setdefault(k, none(k))
