"""Names for sizes that may change: Dim("batch", min=2, max=64), Dim.AUTO, Dim.DYNAMIC, Dim.STATIC."""
from .._dynamo import mark_dynamic, maybe_mark_dynamic


class _Hint:
    def __init__(self, name, min=None, max=None):
        self.name, self.min, self.max = name, min, max

    def __call__(self, min=None, max=None):
        return _Hint(self.name, min, max)

    def __repr__(self):
        return f"Dim.{self.name}"


class Dim:
    """A size with a name. The same Dim in several places says that they are equal."""
    AUTO, DYNAMIC, STATIC = _Hint("AUTO"), _Hint("DYNAMIC"), _Hint("STATIC")

    def __init__(self, name, *, min=None, max=None):
        if not str(name).isidentifier():
            raise ValueError(f"Dim names must be identifiers, not {name!r}")
        if min is not None and max is not None and min > max:
            raise ValueError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        self.__name__, self.min, self.max = name, min, max

    def __repr__(self):
        return f"Dim('{self.__name__}', min={0 if self.min is None else self.min}" + (")" if self.max is None else f", max={self.max})")


def dims(*names, min=None, max=None):
    return tuple(Dim(n, min=min, max=max) for n in names)


def _each(tree, shapes, path, out):
    """(tensor, path, what is said of its sizes) for every tensor in the arguments."""
    import taper
    if isinstance(tree, taper.Tensor):
        out.append((tree, path, shapes))
    elif isinstance(tree, dict):
        for k, v in tree.items():
            _each(v, shapes.get(k) if isinstance(shapes, dict) else None, f"{path}[{k!r}]", out)
    elif isinstance(tree, (list, tuple)):
        for i, v in enumerate(tree):
            _each(v, shapes[i] if isinstance(shapes, (list, tuple)) and i < len(shapes) else None, f"{path}[{i}]", out)
    return out


def mark(arguments, shapes):
    """Marks the sizes that may change in the bound arguments {name: value}; returns {(path, dim): Dim}."""
    if shapes is not None and not isinstance(shapes, dict):  # by position
        shapes = dict(zip(arguments, shapes))
    unknown = set(shapes or ()) - set(arguments)
    if unknown:
        raise ValueError(f"dynamic_shapes names {sorted(unknown)}, but the arguments are {list(arguments)}")
    found = {}
    for name, value in arguments.items():
        for t, path, said in _each(value, (shapes or {}).get(name), name, []):
            rows = said.items() if isinstance(said, dict) else enumerate(said or ())
            for d, dim in rows:
                if dim is None or (isinstance(dim, _Hint) and dim.name == "STATIC"):
                    continue
                if not isinstance(dim, (Dim, _Hint)):
                    if dim != t.shape[d]:
                        raise ValueError(f"dynamic_shapes says {path}.shape[{d}] is {dim}, but it is {t.shape[d]}")
                    continue
                if isinstance(dim, _Hint) and dim.name == "AUTO":
                    maybe_mark_dynamic(t, d)
                else:
                    mark_dynamic(t, d, min=dim.min, max=dim.max)
                found[path, d] = dim
    return found
