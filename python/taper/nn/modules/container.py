"""Containers: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""
import operator
from collections import OrderedDict
from collections.abc import Mapping

import taper
from ..parameter import Parameter
from .module import Module, _indent


def _index(n, i):
    i = operator.index(i)
    if not -n <= i < n:
        raise IndexError(f"index {i} is out of range")
    return i % n


class _Listed(Module):
    """What lists of modules share: they are numbered as they stand."""

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def _renumber(self, mods):
        self._modules.clear()
        for i, m in enumerate(mods):
            self.add_module(str(i), m)

    def __delitem__(self, i):
        mods = list(self._modules.values())
        del mods[i if isinstance(i, slice) else _index(len(self), i)]
        self._renumber(mods)

    def append(self, m):
        self.add_module(str(len(self)), m)
        return self

    def insert(self, i, m):
        mods = list(self._modules.values())
        mods.insert(i, m)
        self._renumber(mods)

    def extend(self, mods):
        for m in mods:
            self.append(m)
        return self

    def pop(self, i):
        m = self[i]
        del self[i]
        return m


class Sequential(_Listed):
    """Calls its modules one after another.

    >>> nn.Sequential(nn.Linear(2, 3), nn.ReLU())(taper.ones(1, 2)).shape
    taper.Size([1, 3])
    """

    def __init__(self, *args):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, m in args[0].items():
                self.add_module(name, m)
        else:
            for i, m in enumerate(args):
                self.add_module(str(i), m)

    def forward(self, input):
        for m in self._modules.values():
            input = m(input)
        return input

    def __getitem__(self, i):
        if isinstance(i, slice):
            return type(self)(OrderedDict(list(self._modules.items())[i]))
        return list(self._modules.values())[_index(len(self), i)]

    def __setitem__(self, i, m):
        setattr(self, list(self._modules)[_index(len(self), i)], m)

    def __add__(self, other):
        return Sequential(*self, *other)

    def insert(self, i, m):
        super().insert(i, m)
        return self


class ModuleList(_Listed):
    """A list of modules that are registered.

    >>> len(nn.ModuleList([nn.ReLU(), nn.Tanh()]))
    2
    """

    def __repr__(self):
        """Neighbours that read the same are shown once."""
        if not len(self):
            return self._get_name() + "()"
        runs = []
        for i, m in enumerate(self):
            text = repr(m)
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        lines = [_indent(f"({a}): {text}" if a == b else f"({a}-{b}): {b - a + 1} x {text}", 2) for a, b, text in runs]
        return self._get_name() + "(\n  " + "\n  ".join(lines) + "\n)"

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return type(self)(list(self._modules.values())[i])
        return self._modules[str(_index(len(self), i))]

    def __setitem__(self, i, m):
        setattr(self, str(_index(len(self), i)), m)

    def __iadd__(self, mods):
        return self.extend(mods)

    def __add__(self, other):
        return ModuleList([*self, *other])

    def __contains__(self, m):
        return any(x is m for x in self)


class ModuleDict(Module):
    """A dictionary of modules that are registered.

    >>> list(nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()}))
    ['a', 'b']
    """

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key):
        return self._modules[key]

    def __setitem__(self, key, m):
        self.add_module(key, m)

    def __delitem__(self, key):
        del self._modules[key]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def clear(self):
        self._modules.clear()

    def pop(self, key):
        return self._modules.pop(key)

    def keys(self):
        return self._modules.keys()

    def items(self):
        return self._modules.items()

    def values(self):
        return self._modules.values()

    def update(self, modules):
        for k, m in (modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules):
            self[k] = m


class ParameterList(Module):
    """A list of parameters that are registered.

    >>> len(nn.ParameterList([nn.Parameter(taper.ones(2))]))
    1
    """

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _put(self, i, v):
        if isinstance(v, taper.Tensor) and not isinstance(v, Parameter):
            v = Parameter(v)
        setattr(self, str(i), v)

    def __len__(self):
        return self._size

    def __iter__(self):
        return iter(getattr(self, str(i)) for i in range(self._size))

    def __getitem__(self, i):
        if isinstance(i, slice):
            return type(self)([self[k] for k in range(*i.indices(self._size))])
        return getattr(self, str(_index(self._size, i)))

    def __setitem__(self, i, v):
        self._put(_index(self._size, i), v)

    def append(self, v):
        self._put(self._size, v)
        self._size += 1
        return self

    def extend(self, values):
        for v in values:
            self.append(v)
        return self

    def __iadd__(self, values):
        return self.extend(values)

    def extra_repr(self):
        return "\n".join(f"({i}): Parameter containing: [{p.dtype} of size {'x'.join(str(s) for s in p.shape)}]" for i, p in enumerate(self))


class ParameterDict(Module):
    """A dictionary of parameters that are registered.

    >>> list(nn.ParameterDict({"w": nn.Parameter(taper.ones(2))}))
    ['w']
    """

    def __init__(self, values=None):
        super().__init__()
        self._names = {}
        if values is not None:
            self.update(values)

    def __getitem__(self, key):
        return getattr(self, self._names[key])

    def __setitem__(self, key, v):
        if isinstance(v, taper.Tensor) and not isinstance(v, Parameter):
            v = Parameter(v)
        self._names[key] = str(key)
        setattr(self, str(key), v)

    def __delitem__(self, key):
        delattr(self, self._names.pop(key))

    def __len__(self):
        return len(self._names)

    def __iter__(self):
        return iter(self._names)

    def __contains__(self, key):
        return key in self._names

    def keys(self):
        return self._names.keys()

    def items(self):
        return [(k, self[k]) for k in self._names]

    def values(self):
        return [self[k] for k in self._names]

    def get(self, key, default=None):
        return self[key] if key in self else default

    def pop(self, key):
        v = self[key]
        del self[key]
        return v

    def update(self, values):
        for k, v in (values.items() if hasattr(values, "items") else values):
            self[k] = v
