"""(sanitize: skip, it measures memory) Calls and compiles leave nothing behind."""
import collections
import contextlib
import copy
import ctypes
import dataclasses
import functools
import gc
import itertools
import os
import sys
import types

import taper
import taper._dynamo as dynamo


def rss():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


class Box:
    n = 0


def program(x, l, o):
    y = x + 1
    l.append(y)
    o.n = 5

    def g(z):
        return z + y
    z = g(x)
    if z.sum() > 0:
        z = z * 2
    t = copy.deepcopy(z)
    try:
        raise ValueError("a")
    except ValueError as e:
        s = str(e)
    return z, t, {"a": [z]}, s


def grows(step, warm, n):
    x, o = taper.ones(4), Box()
    for _ in range(warm):
        step(x, o)
    gc.collect()
    before = rss(), len(gc.get_objects()), sys.getrefcount(x), sys.getrefcount(o)
    for _ in range(n):
        step(x, o)
    gc.collect()
    after = rss(), len(gc.get_objects()), sys.getrefcount(x), sys.getrefcount(o)
    return [b - a for a, b in zip(before, after)]


def test_ten_thousand_calls_leak_nothing():
    dynamo.reset()
    c = taper.compile(program, backend="eager")
    mem, objs, rx, ro = grows(lambda x, o: c(x, [], o), 300, 10000)
    assert rx == 0 and ro == 0 and objs < 20, (mem, objs, rx, ro)
    assert mem < 3 << 20, mem


def test_a_thousand_recompiles_leak_nothing():
    c = taper.compile(program, backend="eager")

    def step(x, o):
        dynamo.reset()
        c(x, [], o)
    mem, objs, rx, ro = grows(step, 50, 1000)
    assert rx == 0 and ro == 0 and objs < 20, (mem, objs, rx, ro)
    assert mem < 6 << 20, mem


def test_a_failed_capture_leaks_nothing():
    def bad(x):
        y = x + 1
        raise KeyError("k")
    c = taper.compile(bad, backend="eager")

    def step(x, o):
        dynamo.reset()
        try:
            c(x)
        except KeyError:
            pass
    mem, objs, rx, ro = grows(step, 20, 200)
    assert rx == 0 and objs < 20, (mem, objs, rx, ro)


# ---- every kind of value
def each_kind(step):
    """The functions of the differential tests, with makers of their arguments; all of them in `make breaks`."""
    import test_capture_diff
    import test_capture_values
    step = 1 if os.environ.get("TAPER_BREAK_EVERYWHERE") else step
    cases = [(n, *c[:2]) for m in (test_capture_diff, test_capture_values) for n, c in m.case.items()]
    return cases[::step]


def in_use():
    """Python's memory blocks, and bytes that malloc gave out and did not get back."""
    class Info(ctypes.Structure):
        _fields_ = [(n, ctypes.c_size_t) for n in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Info
    gc.collect()
    sys.stdout.flush()  # CPython 3.11.2 keeps every empty string that was printed until then
    return sys.getallocatedblocks(), libc.mallinfo2().uordblks


def grown(step, warm, n, blocks, size):
    """Growth a step, or None: less than asked for. Longer runs tell what only fills up from what leaks."""
    for _ in range(warm):
        step()
    for _ in range(5):
        before = in_use()
        for _ in range(n):
            step()
        got = [(b - a) / n for a, b in zip(before, in_use())]
        if got[0] < blocks and got[1] < size:
            return None
        n *= 2
    return got


def quietly(fn, make):
    def step():
        try:
            fn(*make())
        except Exception:
            pass
    return step


def test_calls_of_every_kind_of_value_leak_nothing():
    bad = []
    for name, fn, make in each_kind(2):
        dynamo.reset()
        c = taper.compile(fn, backend="eager")
        got = grown(quietly(c, make), 20, 100, 0.25, 16)
        if got and not grown(quietly(fn, make), 10, 100, 0.25, 16):  # plain execution does not grow
            bad.append((name, got))
    dynamo.reset()
    assert not bad, bad


def test_recompiles_of_every_kind_of_value_leak_nothing():
    bad = []
    small = taper.compile(lambda x: x + 1, backend="eager")
    for _ in range(1100):  # the record of compiles, which holds the newest thousand, is full from here on
        dynamo.reset()
        small(taper.ones(2))
    for name, fn, make in each_kind(5):
        c = taper.compile(fn, backend="eager")

        def step():
            dynamo.reset()
            quietly(c, make)()
        got = grown(step, 5, 24, 0.5, 128)
        if got:
            bad.append((name, got))
    dynamo.reset()
    assert not bad, bad


class Key:
    def __init__(self, v):
        self.v = v

    def __hash__(self): return hash(self.v)
    def __eq__(self, o): return self.v == o.v
    def __str__(self): return f"Key {self.v}"


class Length(int):
    pass


@dataclasses.dataclass
class Config:
    a: int = 1
    l: list = dataclasses.field(default_factory=list)


@functools.lru_cache(maxsize=None)
def cubed(n): return n * n * n


def newer(x, o):
    d = {Key(1): x, Key(2): x + 1}
    s = {Key(1), Key(1)}
    c = Config()
    c.l.append(x * d[Key(1)])
    q = collections.deque([x, 1], maxlen=2)
    q.append(len(s))
    g = (x * i for i in range(3))
    k = Length(3)
    text = "{} {:>5}".format(Key(3), "a") + "%s" % Key(4) + f"{Key(5)}"
    o.n = cubed(2)
    o.f = lambda v: v + k
    with contextlib.ExitStack() as st:
        st.callback(c.l.append, 2)
        y = sum(g) + o.f(x) * cubed(3)
    try:
        {}["missing"]
    except KeyError as e:
        text += str(e)
    print(end="")
    return y, c, list(q), text, types.MethodType(lambda self, v: v, c)(x), itertools.chain([1], [x])


def test_ten_thousand_calls_with_newer_values():
    dynamo.reset()
    c = taper.compile(newer, backend="eager")
    mem, objs, rx, ro = grows(lambda x, o: c(x, o), 300, 10000)
    assert rx == 0 and ro == 0 and objs < 20, (mem, objs, rx, ro)
    assert mem < 3 << 20, mem


def test_a_thousand_recompiles_with_newer_values():
    c = taper.compile(newer, backend="eager")

    def step(x, o):
        dynamo.reset()
        c(x, o)
    mem, objs, rx, ro = grows(step, 50, 1000)
    assert rx == 0 and ro == 0 and objs < 20, (mem, objs, rx, ro)
    assert mem < 6 << 20, mem


def test_classes_made_in_functions_go():
    import weakref

    def run(backend):
        inner = taper.nn.Linear(4, 4)

        class Outer(taper.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = inner

            def forward(self, x):
                return self.inner(x)

        class Box:
            def __init__(self, k):
                self.k = k

            def go(self, x):
                return x * self.k
        gone = weakref.ref(inner), weakref.ref(Outer), weakref.ref(Box)
        f = taper.compile(lambda m, b, x: b.go(m(x)), backend=backend)
        for n in (2, 3):
            assert f(Outer(), Box(2), taper.ones(n, 4)).shape == (n, 4)
        return gone
    for backend in ("eager", "inductor"):
        dynamo.reset()
        for _ in range(3):
            gone = run(backend)
            gc.collect()
            assert all(r() is None for r in gone), (backend, [r() for r in gone])
        assert len(taper._C._capture_entries()) > 0
