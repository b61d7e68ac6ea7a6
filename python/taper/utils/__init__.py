"""Utilities around the tensor library."""


def __getattr__(name):
    """Submodules are loaded when they are asked for."""
    if name in ("data", "checkpoint", "_pytree", "_python_dispatch", "flop_counter", "hooks", "model_zoo", "dlpack", "cpp_extension", "tensorboard",
                "_device", "_config_module", "_import_utils", "weak", "backend_registration", "_contextlib", "mobile_optimizer", "benchmark", "_triton",
                "_stats", "_typing_utils", "collect_env", "module_tracker", "throughput_benchmark", "_mode_utils", "deterministic", "_ordered_set", "viz",
                "_foreach_utils", "_sympy", "_cxx_pytree", "_traceback", "_functools", "_exposed_in"):
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    if name == "swap_tensors":
        from ._swap import swap_tensors
        return swap_tensors
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
