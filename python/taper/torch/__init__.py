"""Taper beside real PyTorch: `torch.compile(model, backend="taper")`.

PyTorch captures, guards and differentiates; its ATen graphs become Taper's, are compiled in milliseconds and run on PyTorch's
own memory. An operator that Taper lacks is called back in PyTorch, inside the same program; `taper.torch.ledger()` lists those.

    import torch
    model = torch.compile(model, backend="taper")

The names here need PyTorch (2.6 or later) and exclude `taper.torch_alias`, where `import torch` means Taper.
"""
from ._backend import backend, compile_fx, ledger, reset

__all__ = ["backend", "compile_fx", "ledger", "reset"]
