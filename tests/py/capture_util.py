"""Runs a function plainly and captured, in every way that must not matter, and compares all that can be seen."""
import copy
import dis
import os

import taper
import taper._dynamo as dynamo


KEPT = (list, dict, set, taper.Tensor)


def same(a, b, seen=None):
    """Equal in type, value and sharing: one object seen twice on one side is one object on the other."""
    seen = {} if seen is None else seen
    if isinstance(a, KEPT) or type(a).__module__ not in ("builtins", "taper._C") and not isinstance(a, type):
        if id(a) in seen or ("b", id(b)) in seen:
            return seen.get(id(a)) is b and seen.get(("b", id(b))) is a
        seen[id(a)] = b
        seen["b", id(b)] = a
    if isinstance(a, taper.Tensor) or isinstance(b, taper.Tensor):
        return (type(a) is type(b) and a.shape == b.shape and a.dtype == b.dtype
                and repr(a.tolist()) == repr(b.tolist()) and a.requires_grad == b.requires_grad)
    if type(a) is not type(b):
        if not (type(a).__name__ == type(b).__name__):
            return False
    if isinstance(a, (list, tuple)) or type(a).__name__ == "deque":
        if not (len(a) == len(b) and all(same(x, y, seen) for x, y in zip(a, b))):
            return False
        return not hasattr(a, "__dict__") or same(vars(a), vars(b), seen)
    if isinstance(a, dict):
        return (list(map(str, a)) == list(map(str, b)) and all(same(x, y, seen) for x, y in zip(a.values(), b.values()))
                and (not hasattr(a, "__dict__") or same(vars(a), vars(b), seen)))
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, (set, frozenset)):
        return a == b
    if isinstance(a, BaseException):
        return str(a) == str(b)
    if hasattr(a, "__dict__") and not callable(a) and not isinstance(a, type):
        return same(vars(a), vars(b), seen)
    if callable(a):
        return True
    if hasattr(type(a), "__next__"):
        return same(list(a), list(b), seen)
    if type(a).__eq__ is object.__eq__:
        slots = [n for c in type(a).__mro__ for n in getattr(c, "__slots__", ())]
        return same([getattr(a, n, None) for n in slots], [getattr(b, n, None) for n in slots], seen)
    return a == b


def lines(tb, file):
    """Functions and lines of the user's file that a traceback shows."""
    out = []
    while tb:
        if tb.tb_frame.f_code.co_filename == file:
            out.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))
        tb = tb.tb_next
    return out


def told(e, file):
    """What an exception tells: itself, where, and the ones it came from."""
    out = []
    while e is not None and len(out) < 5:
        out.append((type(e).__name__, str(e), lines(e.__traceback__, file), e.__suppress_context__))
        e = e.__cause__ or e.__context__
    return out


def outcome(fn, args, reset=None, file=None):
    """What a call shows: result or exception, arguments afterwards."""
    if reset:
        reset()
    try:
        got = ("returned", fn(*args))
    except Exception as e:
        got = ("raised", type(e).__name__, str(e), told(e, file) if file else None)
    state = reset.state() if reset and hasattr(reset, "state") else None
    return got + (args, state)


def check(fn, make, others=(), backend="eager", breaks=True, reset=None, whole=False):
    """make() -> arguments; others: further makers (other shapes); whole: nothing may break the graph."""
    file = fn.__code__.co_filename
    want = outcome(fn, make(), reset, file)
    dynamo.reset()
    for label, dyn in (("captured", None), ("dynamic", True)):
        dynamo.reset()
        c = taper.compile(fn, backend=backend, dynamic=dyn, fullgraph=whole)
        for k in range(3):
            got = outcome(c, make(), reset, file)
            assert same(got, want), f"{fn.__name__} {label} call {k}: {got!r} is not {want!r}"
        for i, m in enumerate(others):
            w, g = outcome(fn, m(), reset, file), outcome(c, m(), reset, file)
            assert same(g, w), f"{fn.__name__} {label} other {i}: {g!r} is not {w!r}"
    if breaks:
        n = sum(1 for i in dis.get_instructions(fn)) + 3
        for k in places(fn.__name__, n):
            dynamo.reset()
            with dynamo.config.patch(debug_break_at=k):
                c = taper.compile(fn, backend=backend)
                for j in range(2):
                    got = outcome(c, make(), reset, file)
                    assert same(got, want), f"{fn.__name__} break at {k} call {j}: {got!r} is not {want!r}"
    dynamo.reset()


def places(name, n, most=24):
    """Where breaks are forced: at every instruction when TAPER_BREAK_EVERYWHERE is set (make breaks), else at some,
    spread over the function, others for each function."""
    if n <= most or os.environ.get("TAPER_BREAK_EVERYWHERE"):
        return range(n)
    first = sum(map(ord, name)) % (n // most)
    return range(first, n, n // most)


class Cases(dict):
    """Functions by name, each with the makers of its arguments; whole: captured without a break."""
    def __init__(self, default):
        self.default = default

    def __call__(self, *makers, whole=False):
        def deco(fn):
            assert fn.__name__ not in self, fn.__name__
            m = makers or self.default
            self[fn.__name__] = (fn, m[0], m[1:], whole)
            return fn
        return deco

    def whole(self, *makers):
        return self(*makers, whole=True)

    def tests(self, namespace, size=20):
        names = list(self)
        for i in range(0, len(names), size):
            def t(part=names[i:i + size]):
                self.run(part)
            namespace[f"test_{i:03d}_{names[i]}"] = t

    def run(self, names):
        bad = []
        for n in names:
            fn, make, others, whole = self[n]
            try:
                check(fn, make, others, whole=whole)
            except Exception as e:
                bad.append(f"{n}: {type(e).__name__}: {e}"[:900])
        assert not bad, f"{len(bad)} of {len(names)} differ:\n" + "\n".join(bad)
