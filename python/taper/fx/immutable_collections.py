"""Lists and dictionaries that refuse to be changed: what arguments of nodes are handed out as elsewhere."""


def _refuse(self, *args, **kwargs):
    raise TypeError(f"{type(self).__name__!r} object does not support mutation; make a list or dict of it, change that, and assign it to the node")


def _frozen(base, *names):
    d = {n: _refuse for n in names}
    d["__hash__"] = lambda self: hash(tuple(self.items()) if base is dict else tuple(self))
    d["__reduce__"] = lambda self: (type(self), (base(self),))
    d["__slots__"] = ()
    return type(f"immutable_{base.__name__}", (base,), d)


immutable_list = _frozen(list, "append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "__setitem__", "__delitem__",
                         "__iadd__", "__imul__")
immutable_dict = _frozen(dict, "clear", "pop", "popitem", "setdefault", "update", "__setitem__", "__delitem__", "__ior__")
