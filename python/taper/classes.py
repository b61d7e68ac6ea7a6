"""Classes of C++ extensions: there are none."""
import sys as _sys
import types as _types


class _Classes(_types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"torch.classes.{name}: classes of C++ extensions are not supported")

    def load_library(self, path):
        raise OSError(f"torch.classes.load_library({path!r}): C++ extensions of PyTorch cannot be loaded")


_sys.modules[__name__].__class__ = _Classes
