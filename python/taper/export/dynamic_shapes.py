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


    def __add__(self, n):
        return _Derived(self, 1, _whole(n))

    def __sub__(self, n):
        return _Derived(self, 1, -_whole(n))

    def __mul__(self, n):
        return _Derived(self, _whole(n), 0)

    __radd__, __rmul__ = __add__, __mul__


def _whole(n):
    if type(n) is not int:
        raise NotImplementedError(f"a Dim takes integers in arithmetic, not {n!r}")
    return n


class _Derived(Dim):
    """times * root + plus: a size that follows from another one."""

    def __init__(self, root, times, plus):
        if times <= 0:
            raise ValueError(f"a Dim can be multiplied with positive integers only, not {times}")
        self.root, self.times, self.plus = root, times, plus
        text = root.__name__ if times == 1 else f"{times}*{root.__name__}"
        self.__name__ = text + (f" + {plus}" if plus > 0 else f" - {-plus}" if plus else "")
        self.min, self.max = (None if m is None else times * m + plus for m in (root.min, root.max))

    def __repr__(self):
        return self.__name__

    def __add__(self, n):
        return _Derived(self.root, self.times, self.plus + _whole(n))

    def __sub__(self, n):
        return self + -_whole(n)

    def __mul__(self, n):
        return _Derived(self.root, self.times * _whole(n), self.plus * n)

    __radd__, __rmul__ = __add__, __mul__


class ValueRanges(tuple):
    """The limits of a size, both included."""
    lower, upper = property(lambda self: self[0]), property(lambda self: self[1])

    def __new__(cls, lower, upper):
        return tuple.__new__(cls, (lower, upper))

    def __repr__(self):
        return f"VR[{self.lower}, {'int_oo' if self.upper == float('inf') else self.upper}]"


def limits_of(dim):
    low, high = getattr(dim, "min", None), getattr(dim, "max", None)
    return 0 if low is None else low, float("inf") if high is None else high


def relations(found):
    """(how it is written, times, the place of a size, plus, the place of the size that follows from it)"""
    out = []
    roots = {}
    for (path, d), dim in found.items():
        if isinstance(dim, Dim) and not isinstance(dim, _Derived):
            first = roots.setdefault(dim.__name__, f"{path}.shape[{d}]")
            if first != f"{path}.shape[{d}]":
                out.append((dim.__name__, 1, first, 0, f"{path}.shape[{d}]"))
    for (path, d), dim in found.items():
        if isinstance(dim, _Derived):
            out.append((dim.__name__, dim.times, roots.get(dim.root.__name__, ""), dim.plus, f"{path}.shape[{d}]"))
    return out


def dims(*names, min=None, max=None):
    return tuple(Dim(n, min=min, max=max) for n in names)


class ShapesCollection:
    """What is said of the sizes of tensors, by the tensors: shapes[x] = {0: Dim.DYNAMIC}; dynamic_shapes(model, args) is the form that export() takes."""

    def __init__(self):
        self._said = {}

    def __setitem__(self, tensor, shape):
        known = self._said.get(id(tensor))
        if known is not None and known[1] != shape:
            raise ValueError(f"Shapes assigned to input are inconsistent: {known[1]} and {shape}")
        self._said[id(tensor)] = (tensor, shape)

    def __getitem__(self, tensor):
        if id(tensor) not in self._said:
            self._said[id(tensor)] = (tensor, {})
        return self._said[id(tensor)][1]

    def __len__(self):
        return len(self._said)

    def dynamic_shapes(self, module, args, kwargs=None):
        """For every argument what was said of its tensors."""
        return _said_of(module, args, kwargs, lambda t: self._said[id(t)][1] if id(t) in self._said else None)


class AdditionalInputs:
    """More examples of arguments: sizes that differ between them may change."""

    def __init__(self):
        self._examples = []

    def add(self, args, kwargs=None):
        if type(args) is not tuple:
            raise TypeError(f"Representative args {args} must be a tuple")
        self._examples.append((args, kwargs or {}))

    def dynamic_shapes(self, module, args, kwargs=None):
        import taper
        from ..utils import _pytree as pytree
        first = pytree.tree_flatten((args, kwargs or {}))[0]
        others = [pytree.tree_flatten(e)[0] for e in self._examples]
        places = {id(t): i for i, t in enumerate(first) if isinstance(t, taper.Tensor)}

        def said(t):
            more = [o[places[id(t)]] for o in others]
            return tuple(Dim.DYNAMIC if any(m.shape[d] != t.shape[d] for m in more) else None for d in range(t.dim()))
        return _said_of(module, args, kwargs, said)

    def verify(self, program):
        run = program.module()
        for args, kwargs in self._examples:
            run(*args, **kwargs)


def _said_of(module, args, kwargs, said):
    import inspect
    import taper
    from ..utils import _pytree as pytree
    named = inspect.signature(module.forward if hasattr(module, "forward") else module).bind(*args, **(kwargs or {}))
    return {n: pytree.tree_map(lambda x: said(x) if isinstance(x, taper.Tensor) else None, v) for n, v in named.arguments.items()}


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
    from .._dynamo.exc import ConstraintViolationError, UserError, UserErrorType
    if isinstance(shapes, ShapesCollection):
        raise TypeError("dynamic_shapes: pass what shapes_collection.dynamic_shapes(model, args, kwargs) returns")
    if shapes is not None and not isinstance(shapes, dict):  # by position
        if len(shapes) != len(arguments):
            raise UserError(UserErrorType.INVALID_INPUT, "Detected mismatch between the structure of `inputs` and `dynamic_shapes`: `inputs` has "
                            f"{len(arguments)} elements, but `dynamic_shapes` has {len(shapes)} elements. Give None for arguments whose sizes stay.")
        shapes = dict(zip(arguments, shapes))
    unknown = set(shapes or ()) - set(arguments)
    if unknown:
        raise UserError(UserErrorType.INVALID_INPUT, "When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names "
                        f"{list(arguments)} of `inputs`, but here they are {list(shapes)}; there is no argument {', '.join(sorted(map(str, unknown)))}.")
    found = {}
    for name, value in arguments.items():
        for t, path, said in _each(value, (shapes or {}).get(name), name, []):
            rows = said.items() if isinstance(said, dict) else enumerate(said or ())
            for d, dim in rows:
                if not -t.dim() <= d < t.dim():
                    raise IndexError(f"dynamic_shapes names dimension {d} of {path}, which has {t.dim()}")
                if dim is None or (isinstance(dim, _Hint) and dim.name == "STATIC"):
                    continue
                if not isinstance(dim, (Dim, _Hint)):
                    if dim != t.shape[d]:
                        raise ValueError(f"dynamic_shapes says {path}.shape[{d}] is {dim}, but it is {t.shape[d]}")
                    continue
                low, high = limits_of(dim)
                if not low <= t.shape[d] <= high:
                    raise ConstraintViolationError(f"{t.shape[d]} not in range [{low}, {'int_oo' if high == float('inf') else high}]: {path}.shape[{d}] of the "
                                                   f"example is outside of {dim!r}")
                if isinstance(dim, _Hint) and dim.name == "AUTO":
                    maybe_mark_dynamic(t, d)
                else:
                    mark_dynamic(t, d, min=dim.min, max=dim.max)
                found[path, d] = dim
    return found
