"""import taper.torch_alias: from here on `import torch` (and torch.nn, torch._dynamo, ...) means Taper.

Programs written for PyTorch then run unmodified: names print as torch.*, the TORCH_* environment variables count where ours are
unset, and torch.__version__ and importlib.metadata tell of the version of PyTorch that programs shall take this for
(TAPER_TORCH_VERSION, 2.13.0). Ours is taper.version.taper. Nothing happens where PyTorch itself has been imported already.
"""
import importlib as _importlib
import importlib.abc as _abc
import importlib.machinery as _machinery
import importlib.metadata as _metadata
import sys as _sys
import warnings as _warnings

import taper as _taper
from . import _C
from . import version as _version
from ._dynamo import exc as _exc
from .torch_version import TorchVersion as _TorchVersion


_OURS = {"torch": "taper", "torchdynamo": "taper._dynamo"}  # torchdynamo: where torch._dynamo was before PyTorch 2


class _Loader(_abc.Loader):
    """Hands out a module of Taper that exists already, and leaves its own spec in place."""

    def __init__(self, module):
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec):
        return self.module

    def exec_module(self, module):
        module.__spec__ = self.spec


class _Torch(_metadata.Distribution):
    """The distribution that importlib.metadata finds under the name torch."""

    def read_text(self, filename):
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: torch\nVersion: {_version.__version__}\nSummary: Taper, standing in for torch\n"
        return "torch\n" if filename == "top_level.txt" else None

    def locate_file(self, path):
        import pathlib
        return pathlib.Path(_taper.__file__).parent.parent / path


class _Package(type(_sys)):
    """A package whose public submodules are attributes without an import of their own, as programs expect of torch.nn.modules.batchnorm."""

    def __getattr__(self, name):
        path = f"{self.__spec__.name}.{name}"
        try:
            if not name.startswith("_"):
                return _importlib.import_module(path)
        except ModuleNotFoundError as e:
            if e.name != path:
                raise
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _PackageLoader(_machinery.SourceFileLoader):
    def exec_module(self, module):
        module.__class__ = _Package
        super().exec_module(module)


class _Finder(_abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("taper."):
            spec = _machinery.PathFinder.find_spec(name, path)
            if spec is not None and spec.submodule_search_locations is not None and type(spec.loader) is _machinery.SourceFileLoader:
                spec.loader = _PackageLoader(spec.loader.name, spec.loader.path)
            return spec
        first, _, rest = name.partition(".")
        if first not in _OURS:
            return None
        ours = ".".join([_OURS[first], rest]) if rest else _OURS[first]
        try:
            module = _importlib.import_module(ours)
        except ModuleNotFoundError as e:
            if e.name and ours.startswith(e.name):  # Taper has no such module: say so in the name that was asked for
                raise ModuleNotFoundError(f"No module named {name!r} (Taper stands in for torch here and has no "
                                          f"{ours})", name=name) from None
            raise
        return _machinery.ModuleSpec(name, _Loader(module), is_package=hasattr(module, "__path__"))

    def find_distributions(self, context=_metadata.DistributionFinder.Context()):
        if context.name is None or context.name.lower() == "torch":
            yield _Torch()


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
    for name, module in list(_sys.modules.items()):
        if name.startswith("taper.") and type(module) is type(_sys) and hasattr(module, "__path__"):
            module.__class__ = _Package
    _taper.torch = _taper
    _taper.__version__ = _TorchVersion(_version.__version__)
    _taper.__name__ = "torch"
    for cls in vars(_exc).values():  # tracebacks name them as the program does
        if isinstance(cls, type) and cls.__module__ == "taper._dynamo.exc":
            cls.__module__ = "torch._dynamo.exc"
    from . import _logging  # loggers of Python's own are there from the start, as the original's are
    _logging.install()
    return True


install()
