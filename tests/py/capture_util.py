"""Runs a function plainly and captured, in every way that must not matter, and compares all that can be seen."""
import copy
import dis

import taper
import taper._dynamo as dynamo


def same(a, b, seen=None):
    if isinstance(a, taper.Tensor) or isinstance(b, taper.Tensor):
        return (isinstance(a, taper.Tensor) and isinstance(b, taper.Tensor) and a.shape == b.shape and a.dtype == b.dtype
                and repr(a.tolist()) == repr(b.tolist()) and a.requires_grad == b.requires_grad)
    if type(a) is not type(b):
        if not (type(a).__name__ == type(b).__name__):
            return False
    if isinstance(a, (list, tuple)) or type(a).__name__ == "deque":
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, dict):
        return list(map(str, a)) == list(map(str, b)) and all(same(x, y) for x, y in zip(a.values(), b.values()))
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, (set, frozenset)):
        return a == b
    if isinstance(a, BaseException):
        return str(a) == str(b)
    if hasattr(a, "__dict__") and not callable(a) and not isinstance(a, type):
        return same(vars(a), vars(b))
    if callable(a):
        return True
    return a == b


def outcome(fn, args, reset=None):
    """What a call shows: result or exception, arguments afterwards."""
    if reset:
        reset()
    try:
        got = ("returned", fn(*args))
    except Exception as e:
        got = ("raised", type(e).__name__, str(e))
    state = reset.state() if reset and hasattr(reset, "state") else None
    return got + (args, state)


def check(fn, make, others=(), backend="eager", breaks=True, reset=None):
    """make() -> arguments; others: further makers (other shapes)."""
    want = outcome(fn, make(), reset)
    dynamo.reset()
    for label, dyn in (("captured", None), ("dynamic", True)):
        dynamo.reset()
        c = taper.compile(fn, backend=backend, dynamic=dyn)
        for k in range(3):
            got = outcome(c, make(), reset)
            assert same(got, want), f"{fn.__name__} {label} call {k}: {got!r} is not {want!r}"
        for i, m in enumerate(others):
            w, g = outcome(fn, m(), reset), outcome(c, m(), reset)
            assert same(g, w), f"{fn.__name__} {label} other {i}: {g!r} is not {w!r}"
    if breaks:
        n = sum(1 for i in dis.get_instructions(fn))
        for k in range(min(n + 3, 70)):
            dynamo.reset()
            with dynamo.config.patch(debug_break_at=k):
                c = taper.compile(fn, backend=backend)
                for j in range(2):
                    got = outcome(c, make(), reset)
                    assert same(got, want), f"{fn.__name__} break at {k} call {j}: {got!r} is not {want!r}"
    dynamo.reset()


def run_all(namespace, cases):
    bad = []
    for name, entry in cases.items():
        try:
            check(*entry)
        except AssertionError as e:
            bad.append(str(e)[:600])
        except Exception as e:
            bad.append(f"{name}: {type(e).__name__}: {e}"[:600])
    assert not bad, f"{len(bad)} of {len(cases)} differ:\n" + "\n".join(bad)
