"""Parts that programs know under this name."""


def __getattr__(name):
    """Submodules are loaded when they are asked for."""
    if name in ("proxy_tensor", "symbolic_shapes"):
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
