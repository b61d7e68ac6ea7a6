"""Utilities around the tensor library."""


def __getattr__(name):
    """Submodules are loaded when they are asked for."""
    if name in ("data", "checkpoint", "_pytree", "_python_dispatch", "flop_counter"):
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
