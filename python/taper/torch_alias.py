"""import taper.torch_alias: from here on `import torch` (and torch.nn, torch._dynamo, ...) means Taper.

Programs written for PyTorch then run unmodified: names print as torch.*, and the TORCH_* environment variables
count where ours are unset. Nothing happens where PyTorch itself has been imported already.
"""
import importlib as _importlib
import importlib.abc as _abc
import importlib.machinery as _machinery
import sys as _sys
import warnings as _warnings

import taper as _taper
from . import _C
from ._dynamo import exc as _exc


class _Loader(_abc.Loader):
    """Hands out a module of Taper that exists already, and leaves its own spec in place."""

    def __init__(self, module):
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec):
        return self.module

    def exec_module(self, module):
        module.__spec__ = self.spec


class _Finder(_abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "torch" and not name.startswith("torch."):
            return None
        ours = "taper" + name[5:]
        try:
            module = _importlib.import_module(ours)
        except ModuleNotFoundError as e:
            if e.name and ours.startswith(e.name):  # Taper has no such module: say so in the name that was asked for
                raise ModuleNotFoundError(f"No module named {name!r} (Taper stands in for torch here and has no "
                                          f"{ours})", name=name) from None
            raise
        return _machinery.ModuleSpec(name, _Loader(module), is_package=hasattr(module, "__path__"))


def install():
    """Makes torch mean Taper; False when PyTorch is already there."""
    if _sys.modules.get("torch") is _taper:
        return True
    if "torch" in _sys.modules:
        _warnings.warn("PyTorch is imported already: `torch` keeps meaning PyTorch in this process. "
                       "Import taper.torch_alias first.", RuntimeWarning, stacklevel=3)
        return False
    _sys.meta_path.insert(0, _Finder())
    _C._set_prefix("torch")
    _sys.modules["torch"] = _taper
    for cls in vars(_exc).values():  # tracebacks name them as the program does
        if isinstance(cls, type) and cls.__module__ == "taper._dynamo.exc":
            cls.__module__ = "torch._dynamo.exc"
    return True


install()
