"""(sanitize: skip, it measures memory) Calls and compiles leave nothing behind."""
import copy
import gc
import sys

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
