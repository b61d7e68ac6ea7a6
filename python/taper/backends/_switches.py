"""A library that is not there: switches on it can be set and read, and change nothing."""
import contextlib as _contextlib
import sys as _sys
import types as _types


class Switches(_types.ModuleType):
    def is_available(self):
        return False

    def is_built(self):
        return False

    def version(self):
        return None

    @_contextlib.contextmanager
    def flags(self, **kwargs):
        """Other values for a while."""
        was = {k: getattr(self, k) for k in kwargs}
        self.__dict__.update(kwargs)
        try:
            yield
        finally:
            self.__dict__.update(was)

    def set_flags(self, *args, **kwargs):
        was = tuple(getattr(self, k) for k in kwargs)
        self.__dict__.update(kwargs)
        return was

    @staticmethod
    def into(name, **switches):
        m = _sys.modules[name]
        m.__class__ = Switches
        m.__dict__.update(switches)
