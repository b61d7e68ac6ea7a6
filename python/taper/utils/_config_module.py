"""Modules that hold settings: read and written as attributes, changed for a while by patch(), put back by del."""
import functools as _functools
import types as _types

from .._settings import _did_you_mean


class Patch:
    """with config.patch(...): or @config.patch(...) on a function or a class of tests: other values for a while."""

    def __init__(self, config, changes):
        for k in changes:
            config._find(k)
        self.config, self.changes, self.prior = config, changes, []

    def __enter__(self):
        self.prior.append({k: getattr(self.config, k) for k in self.changes})
        for k, v in self.changes.items():
            setattr(self.config, k, v)
        return self

    def __exit__(self, *exc):
        for k, v in self.prior.pop().items():
            setattr(self.config, k, v)
        return False

    def __call__(self, fn):
        if isinstance(fn, type):  # its tests run with these values
            for name, f in list(vars(fn).items()):
                if callable(f) and (name.startswith("test") or name in ("setUp", "tearDown")):
                    setattr(fn, name, self(f))
            return fn

        @_functools.wraps(fn)
        def inner(*args, **kwargs):
            with Patch(self.config, self.changes):
                return fn(*args, **kwargs)
        return inner


def changes_of(args, kwargs):
    """What patch(name, value), patch({name: value}) and patch(name=value) ask for."""
    if not args:
        return kwargs
    if len(args) == 1 and isinstance(args[0], dict):
        return {**args[0], **kwargs}
    if len(args) == 2:
        return {args[0]: args[1], **kwargs}
    raise TypeError("patch() takes a dict, a name and a value, or keywords")


class ConfigModule(_types.ModuleType):
    """_defaults: {name: value} in the module; names with a dot live in a Section."""

    def _find(self, name):
        if name not in self._defaults:
            raise AttributeError(f"{self.__name__}.{name} does not exist{_did_you_mean(name, self._defaults)}")

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self._find(name)
        return self._settings[name]

    def __setattr__(self, name, value):
        if name.startswith("_") or isinstance(value, (_types.ModuleType, Section)):
            return super().__setattr__(name, value)
        if "." in name:
            section, _, rest = name.partition(".")
            return setattr(getattr(self, section), rest, value)
        self._find(name)
        self._settings[name] = value

    def __delattr__(self, name):
        if name in self.__dict__:
            return super().__delattr__(name)
        self._find(name)
        self._settings[name] = self._defaults[name]

    def __dir__(self):
        return sorted(set(self._defaults) | {"patch", "save_config", "load_config", "shallow_copy_dict", "get_config_copy"})

    def patch(self, *args, **kwargs):
        """patch(name, value), patch({name: value}) or patch(name=value): a context manager and decorator."""
        return Patch(self, changes_of(args, kwargs))

    def shallow_copy_dict(self):
        return dict(self._settings)

    def get_config_copy(self):
        import copy
        return copy.deepcopy(dict(self._settings))

    def save_config(self):
        import pickle
        return pickle.dumps(self._settings)

    def load_config(self, data):
        import pickle
        self._settings.update(pickle.loads(data) if isinstance(data, bytes) else data)


class Section:
    """Settings of one part: config.cpp.threads."""

    def __init__(self, name, **defaults):
        self.__dict__.update(_name=name, _defaults=defaults, _settings=dict(defaults))

    def __getattr__(self, name):
        try:
            return self._settings[name]
        except KeyError:
            raise AttributeError(f"{self._name}.{name} does not exist") from None

    def __setattr__(self, name, value):
        if isinstance(getattr(type(self), name, None), property) or hasattr(type(self), name):
            return super().__setattr__(name, value)
        if name not in self._settings:
            raise AttributeError(f"{self._name}.{name} does not exist")
        self._settings[name] = value

    def __delattr__(self, name):
        setattr(self, name, self._defaults[name])


def install_config_module(module):
    """Makes a module with _defaults one that holds settings."""
    module._settings = dict(module._defaults)
    module.__class__ = ConfigModule
