"""Dictionaries whose keys are held by identity and weakly."""
import weakref as _weakref


class WeakIdRef(_weakref.ref):
    def __init__(self, key, callback=None):
        super().__init__(key, callback)
        self._id = id(key)

    def __hash__(self):
        return self._id

    def __eq__(self, other):
        a, b = self(), other()
        return a is b if a is not None and b is not None else self is other


class WeakIdKeyDictionary:
    def __init__(self, dict=None, ref_type=WeakIdRef):
        self.data = {}
        for k, v in (dict or {}).items():
            self[k] = v

    def _ref(self, key):
        return WeakIdRef(key, lambda r: self.data.pop(r, None))

    def __setitem__(self, key, value):
        self.data[self._ref(key)] = value

    def __getitem__(self, key):
        return self.data[WeakIdRef(key)]

    def __delitem__(self, key):
        del self.data[WeakIdRef(key)]

    def __contains__(self, key):
        return WeakIdRef(key) in self.data

    def get(self, key, default=None):
        return self.data.get(WeakIdRef(key), default)

    def pop(self, key, *args):
        return self.data.pop(WeakIdRef(key), *args)

    def __len__(self):
        return len(self.data)

    def keys(self):
        return [k for r in list(self.data) if (k := r()) is not None]

    __iter__ = lambda self: iter(self.keys())  # noqa: E731

    def items(self):
        return [(k, v) for r, v in list(self.data.items()) if (k := r()) is not None]

    def values(self):
        return [v for _, v in self.items()]


WeakTensorKeyDictionary, WeakTensorRef = WeakIdKeyDictionary, WeakIdRef
