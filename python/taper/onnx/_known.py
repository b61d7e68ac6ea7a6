"""Numbers that are known without looking at a tensor: what Shape gives, constants of few elements, and what operators make
of them. Reshape and its like take them as Python's numbers, so a captured model has no graph breaks for its sizes."""

FEW = 64  # constants with more elements are tensors only


class Known:
    """data: a list of numbers; shape: () for one number, else (len(data),)."""
    __slots__ = ("data", "shape", "dtype")

    def __init__(self, data, shape, dtype):
        self.data, self.shape, self.dtype = data, shape, dtype

    def __repr__(self):
        return f"Known({self.data if self.shape else self.data[0]}, {str(self.dtype).rpartition('.')[2]})"


def one(v, dtype):
    """One known number."""
    return Known([v], (), dtype)


def row(data, dtype):
    """A row of known numbers."""
    return Known(list(data), (len(data),), dtype)


def tensor(v, like=None):
    """As a tensor, on the device of `like`."""
    import taper
    if isinstance(v, list):
        return [tensor(x, like) for x in v]
    if not isinstance(v, Known):
        return v
    device = like.device if isinstance(like, taper.Tensor) else None
    return taper.tensor(v.data if v.shape else v.data[0], dtype=v.dtype, device=device)


def numbers(v):
    """As a list of Python's numbers; None stays None."""
    if v is None:
        return None
    if isinstance(v, Known):
        return v.data
    if isinstance(v, (list, tuple)):
        return list(v)
    return v.reshape(-1).tolist()


def number(v):
    """As one of Python's numbers; None stays None."""
    return None if v is None else numbers(v)[0]


def pairs(a, b):
    """Elements of two known values side by side, one of them repeated if it is a single number; None where they differ."""
    if len(a.data) == len(b.data):
        return list(zip(a.data, b.data))
    if len(b.data) == 1:
        return [(x, b.data[0]) for x in a.data]
    if len(a.data) == 1:
        return [(a.data[0], y) for y in b.data]
    return None


def wider(a, b):
    """The shape of an elementwise result."""
    return (max(len(a.data), len(b.data)),) if a.shape or b.shape else ()
