"""Builtin operations spelled out in Python, for capture to follow where the builtin would call a user's methods."""


def sequence_iter(o):
    i = 0
    while True:
        try:
            v = o[i]
        except IndexError:
            return
        yield v
        i += 1


def index(l, v):
    for i, e in enumerate(l):
        if e is v or e == v:
            return i
    raise ValueError(f"{v!r} is not in list")


def count(l, v):
    n = 0
    for e in l:
        if e is v or e == v:
            n += 1
    return n


def remove(l, v):
    for i, e in enumerate(l):
        if e is v or e == v:
            del l[i]
            return
    raise ValueError("list.remove(x): x not in list")


def count_elements(mapping, iterable):
    get = mapping.get
    for e in iterable:
        mapping[e] = get(e, 0) + 1


def copy_object(o):
    cls = type(o)
    r = cls.__new__(cls)
    for k, v in o.__dict__.items():
        setattr(r, k, v)
    return r
