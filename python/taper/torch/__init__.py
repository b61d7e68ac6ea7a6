"""Taper beside real PyTorch: `torch.compile(model, backend="taper")`, and a debugger for every backend of PyTorch's.

PyTorch captures, guards and differentiates; its ATen graphs become Taper's, are compiled in milliseconds and run on PyTorch's
own memory. An operator that Taper lacks is called back in PyTorch, inside the same program; `taper.torch.ledger()` lists those.

    import torch
    model = torch.compile(model, backend="taper")

`debug(backend="inductor")` is a backend that checks each graph of another one and saves what fails; `survey(fn)(*args)` lists
graph breaks and recompilations.

The names here need PyTorch (2.6 or later) and exclude `taper.torch_alias`, where `import torch` means Taper.
"""
from ._backend import backend, compile_fx, ledger, reset
from ._debug import AccuracyError, debug, saved
from ._survey import survey

__all__ = ["AccuracyError", "backend", "compile_fx", "debug", "ledger", "reset", "saved", "survey"]
