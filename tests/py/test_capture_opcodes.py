"""Every instruction of the running CPython goes through capture in at least one function, with the result of plain
execution. The functions are disassembled to prove it; what no function can contain is listed with its reason."""
import asyncio
import contextlib
import dis
import io
import math
import os
import re
import sys

sys.path.insert(0, os.path.dirname(__file__))
import taper
from capture_util import check

CASES = []
GLOBAL = 1
HERE = os.path.dirname(os.path.abspath(__file__))


def case(fn):
    CASES.append(fn)
    return fn


def X(*s):
    return (taper.arange(1, 1 + math.prod(s), dtype=taper.float32) / 7).reshape(*s)


# ---- values, names, operators
@case
def stack_and_slots(x):
    a, b = 1, 2
    a, b = b, a
    c = d = x + a
    del d
    return c, b, "ab"[0], +a, -a, ~a, not a, a is b, a in (1, 2), a < b, None if x is None else x
@case
def globals_written(x):
    global GLOBAL, GONE
    GLOBAL = 5
    GONE = 1
    del GONE
    r = x + GLOBAL
    GLOBAL = 1
    return r
@case
def cells(x):
    n = 1
    m = 2
    def inner():
        nonlocal n
        n += 1
        return x * n + GLOBAL
    del m
    def late():
        return m
    try:
        late()
    except NameError:
        pass
    return inner()
class Box:
    pass
@case
def attributes(x):
    o = Box()
    o.a = x
    o.b = o.a + 1
    del o.a
    return o.b.sum(), o
@case
def operators(x):
    a = 7
    a += 1; a -= 1; a *= 2; a //= 3; a **= 2; a %= 9; a <<= 1; a >>= 1; a |= 8; a &= 15; a ^= 1; a /= 2
    return x @ x.t(), x + 1, x - 1, x * 2, x / 2, x // 2, x % 2, x ** 2, a
@case
def items(x):
    l, d = [1, 2, 3, 4], {"k": x}
    l[0] = 5
    l[1:2] = [7]
    d["j"] = l[1:]
    del l[0], d["k"]
    n = len(l)
    l[n - 1:n] = [n]
    return l, d, x[0:1], x[::2], l[-1], l[n - 2:n], l[::n - 1], x[:n - 1]
@case
def builders(x):
    return (1, x), [x, 2], {1, x.dim()}, {"a": x, **{"b": 1}}, {"p": 1, "q": x}, [*(1, x)], {*"ab"}, (*[1], x), slice(1, 2, 3), f"{x.dim()}-{3!r:>4}"
@case
def comprehensions(x):
    return [x * i for i in range(2)], {i for i in (1, 1)}, {i: x for i in (1, 2)}, list(i for i in (1, 2))
@case
def unpacking(x):
    a, (b, c) = 1, [x, 2]
    d, *e, f = range(5)
    return a, b, c, d, e, f
@case
def name_put_aside(x):
    i = x
    l = [i for i in range(3)]
    return i, l
@case
def maybe_unbound(x):
    for i in ():
        y = 1
    try:
        return y
    except UnboundLocalError as e:
        return str(e), x + 1


# ---- jumps
@case
def jumps(x):
    a, n = None, 0
    while True:
        n += 1
        if n > 3 and n:
            break
    while n > 0:
        n -= 1
    b = a or (n and 3)
    if a is None:
        b = 4
    if b is not None:
        x = x * 2
    c = 0 < n < 3
    while a is None:
        a = b if n else 0
    while a is not None:
        a = None
    while not c:
        c = True
    for i in range(2):
        if i:
            continue
    return x, b, c, n == 0 == a
@case
def backward_jumps(x):
    n, a, out = 3, None, []
    while n:
        n -= 1
    while a is None and len(out) < 2:
        out.append(1)
    for v in (None, 1, None, 2):
        if v is None:
            continue
        if v is not None and v > 1:
            out.append(v)
    while len(out) < 9 and not a:
        out.append(0)
    return x + len(out), [v for v in (0, 1, None) if v is not None], [v for v in (0, 1, None) if v is None], [v for v in (0, 1) if v], [v for v in (0, 1) if not v]
@case
def not_none_loop(x):
    node = (1, (2, None))
    n = 0
    while node is not None:
        n += node[0]
        node = node[1]
    while node is None:
        node = n
    return x * n
@case
def long_jump(x):
    n = 0
    for i in range(2):
        n = n + 1 + 2 + 3 + i * 4; n = n + 1 + 2 + 3 + i * 4; n = n + 1 + 2 + 3 + i * 4; n = n + 1 + 2 + 3 + i * 4
        n = n + 1 + 2 + 3 + i * 4; n = n + 1 + 2 + 3 + i * 4; n = n + 1 + 2 + 3 + i * 4; n = n + 1 + 2 + 3 + i * 4
        n = n + 1 + 2 + 3 + i * 4; n = n + 1 + 2 + 3 + i * 4; n = n + 1 + 2 + 3 + i * 4; n = n + 1 + 2 + 3 + i * 4
        n = n + 1 + 2 + 3 + i * 4; n = n + 1 + 2 + 3 + i * 4; n = n + 1 + 2 + 3 + i * 4; n = n + 1 + 2 + 3 + i * 4
    return x + n


# ---- calls, functions, classes
def taker(*a, k=0, **kw):
    return sum(a) + k + len(kw)
@case
def calls(x):
    t, d = (1, 2), {"z": 1}
    return taker(1, 2), taker(1, k=2), taker(*t), taker(*t, **d), taker(**d, k=1), x.sum(), x.sum(dim=0), taker(*[1], **{"k": 2}, **d)
@case
def functions(x):
    def f(a, b=x, *, c: int = 3) -> int:
        return a + b * c
    return f(1), (lambda v: v + 1)(x)
class Parent:
    def get(self, v): return v + 1
    tag = 5
class Kid(Parent):
    def get(self, v):
        return super().get(v) + super().tag + super(Kid, self).get(v)
@case
def super_calls(x):
    return Kid().get(x)
super_calls.also = [Kid.get]
@case
def class_body(x):
    scale = 3
    class In:
        "doc"
        size: int = 2
        k = scale
        del k
        j = [size]
        def m(self): return scale, __class__
    return In().m()[0] + x, In.size, In.__annotations__
@case
def class_body_free(x):
    n = 2
    class Out:
        n = n if False else 7
        class Deep:
            v = n
    return Out.n, Out.Deep.v, x + 1
@case
def imports(x):
    import math as m
    from math import floor
    import os.path
    return x + floor(m.pi), os.path.basename("a/b")
@case
def assertion(x):
    assert x.dim() == 2, "two"
    try:
        assert x.dim() == 9, "nine"
    except AssertionError as e:
        return str(e), x + 1


# ---- generators
@case
def generators(x):
    def g(n):
        got = yield n
        r = yield from (i for i in range(2))
        return got
    it = g(x)
    a = next(it)
    b = it.send(5)
    return a, b, list(it)
@case
def generator_delegates(x):
    def sub():
        try:
            yield 1
        except ValueError:
            yield 2
        return 3
    def g():
        v = yield from sub()
        yield v
    it = g()
    a = next(it)
    b = it.throw(ValueError())
    return a, b, list(it), x + 1


# ---- match
@case
def matches(x):
    out = []
    for v in ((1, 2), [1, 2, 3], {"k": x, "r": 1}, {"q": 1}, 5, "s", Box()):
        match v:
            case (a, b): out.append(a + b)
            case [a, *rest]: out.append(rest)
            case {"k": t, **rest}: out.append((t, rest))
            case {"q": 1}: out.append("q")
            case int(n): out.append(n)
            case Box(): out.append("box")
            case _: out.append(None)
    return out


# ---- exceptions and with
@contextlib.contextmanager
def managed(log):
    log.append("in")
    try:
        yield 1
    finally:
        log.append("out")
class Swallow:
    def __enter__(self): return self
    def __exit__(self, *a): return True
@case
def with_blocks(x):
    log = []
    with managed(log) as v, Swallow():
        x = x + v
        raise KeyError("q")
    return x, log
@case
def exceptions(x):
    out = []
    for e in (KeyError("k"), ValueError("v")):
        try:
            try:
                raise e
            except KeyError as k:
                out.append(str(k))
            except ValueError:
                raise
            finally:
                out.append("f")
        except Exception as o:
            out.append(type(o).__name__)
    try:
        raise KeyError from out[0] and ValueError("c")
    except KeyError as e:
        out.append(repr(e.__cause__))
    return out, x + 1
@case
def groups(x):
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError("k")])
    except* ValueError as e:
        n = len(e.exceptions)
    except* KeyError:
        n = n + 10
    return x + n


# ---- async
class Gate:
    async def __aenter__(self): return 1
    async def __aexit__(self, *a): return True
class Steps:
    def __init__(self): self.n = 0
    def __aiter__(self): return self
    async def __anext__(self):
        if self.n == 2:
            raise StopAsyncIteration
        self.n += 1
        return self.n
async def numbers(n):
    for i in range(n):
        yield i
async def waited(x):
    async with Gate() as g:
        x = x + g
        raise KeyError("swallowed")
    async for v in Steps():
        x = x * v
    r = [v async for v in numbers(3)]
    try:
        await asyncio.sleep(0)
        async with Gate():
            pass
    finally:
        x = x + len(r)
    return x
def run(coroutine):
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()
@case
def async_code(x):
    return run(waited(x))
async_code.also = [waited, numbers, Gate.__aenter__]


# ---- code that is no function: executed as it stands
def executed(source, names, mode="exec"):
    code = compile(source, "<text>", mode)
    executed.codes.append(code)
    exec(code, names)
    return names
executed.codes = []
@case
def module_code(x):
    executed("from __future__ import annotations\nn: int = 3\n", {})
    d = executed("from math import *\nn: int = 3\ndel n\nm = floor(pi)\nclass C:\n    k = m\n", {})
    return x + d["m"]
@case
def interactive_code(x):
    old, sys.stdout = sys.stdout, io.StringIO()
    try:
        executed("1 + 1", {}, "single")
    finally:
        sys.stdout = old
    return x + 1
module_code.also = interactive_code.also = executed.codes
if sys.version_info >= (3, 12):
    exec('''
@case
def type_statements(x):
    def first[T: (int, str)](v: T) -> T: return v
    class Pair[A, *B, **C]:
        n = 2
        def get[D: int](self, v: D): return v
    type Alias[Z] = list[Z]
    return x + first(Pair.n), Pair[int, str, [int]].__origin__ is Pair, Alias.__name__
''')
if sys.version_info >= (3, 14):
    exec('''
@case
def template_strings(x):
    n, y = 3, x * 2
    t = t"{n} of {y.dim()!r:>4}, {n + 1!s}"
    return y + 1, t.strings, [(i.value, i.expression, i.conversion, i.format_spec) for i in t.interpolations]
''')


IMPOSSIBLE = {
    "CACHE": "room behind other instructions, never executed",
    "INTERPRETER_EXIT": "ends the outermost frame of the interpreter, in no code object",
    "RESERVED": "not an instruction yet",
    "ENTER_EXECUTOR": "put in place of others while running",
    "EXIT_INIT_CHECK": "of a frame the interpreter makes to call __init__, in no code object",
}


def codes(c):
    """A code object and all inside it."""
    yield c
    for k in c.co_consts:
        if hasattr(k, "co_code"):
            yield from codes(k)


def names_in(fn):
    out = set()
    for f in [fn, *getattr(fn, "also", [])]:
        for c in codes(getattr(f, "__code__", f)):
            out |= {i.opname for i in dis.get_instructions(c, adaptive=False)}
    return out


def wanted():
    """The instructions a compiler may emit: without those that are put in place of others while running."""
    pseudo = getattr(dis, "_pseudo_ops", None) or {n for n, v in dis.opmap.items() if v > 255}
    return {n for n in dis.opmap if n not in pseudo and not n.startswith("INSTRUMENTED_")
            and not n.startswith("<")} - set(getattr(dis, "_specialized_instructions", ()))


def one():
    return (X(3, 2),)


def test_every_function_does_what_it_does_plainly():
    bad = []
    for fn in CASES:
        try:
            check(fn, one, [lambda: (X(4, 2),)])
        except Exception as e:
            bad.append(f"{fn.__name__}: {type(e).__name__}: {e}"[:600])
    assert not bad, "\n".join(bad)


def test_every_instruction_is_in_one_of_them():
    module_code(X(2, 2)), interactive_code(X(2, 2))
    seen = set().union(*map(names_in, CASES))
    missing = wanted() - seen - set(IMPOSSIBLE)
    assert not missing, sorted(missing)
    assert not set(IMPOSSIBLE) & seen, set(IMPOSSIBLE) & seen


def test_the_table_of_handlers_is_exercised_where_code_is_traced():
    """Every row of opcode.def for this version stands in a function that capture follows instruction by instruction."""
    path = os.path.join(HERE, "..", "..", "src", "capture", "opcode.def")
    rows, taken = set(), [True]
    known = {f"TP_PY3{n}": sys.version_info[1] >= n for n in (12, 13, 14)}
    for line in open(path):
        if line.startswith("#if "):
            taken.append(bool(eval(line[4:].replace("!", " not ").replace("&&", " and "), known)))
        elif line.startswith("#else"):
            taken[-1] = not taken[-1]
        elif line.startswith("#endif"):
            taken.pop()
        elif all(taken):
            rows |= set(re.findall(r"PYOP\((\w+)\)", line))
    assert rows <= set(dis.opmap), rows - set(dis.opmap)
    native = {"async_code", "class_body", "class_body_free", "module_code", "interactive_code", "groups", "type_statements"}
    seen = set().union(*(names_in(f) for f in CASES if f.__name__ not in native))
    missing = rows - seen - set(IMPOSSIBLE) - {"LOAD_BUILD_CLASS"}
    assert not missing, sorted(missing)


def test_generators_that_are_left_at_a_yield_from():
    """Dropped, closed or thrown into while they yield from another; and those that a trace cannot follow."""
    def dropped(x):
        def g():
            for i in range(3):
                yield from (x, x + i)
            return 7
        return [*zip(g(), g())][-1][0] * 1

    def closed(x):
        seen = []

        def inner():
            try:
                yield x
                yield x + 1
            finally:
                seen.append(1)

        def g():
            yield from inner()
        it = g()
        y = next(it) * 2
        it.close()
        return y, seen

    def thrown(x):
        def inner():
            try:
                yield x
            except ValueError:
                yield x * 5
            return x * 7

        def g():
            r = yield from inner()
            yield r + 1
        it = g()
        a = next(it)
        b = it.throw(ValueError("planted"))
        return a, b, next(it)

    def ends(x):
        def g():
            r = yield from (x, x + 1)
            yield r
        it = g()
        next(it)
        try:
            it.throw(KeyError("planted"))
        except KeyError:
            return x * 3

    def looks(x):
        def g():
            y = x + 1
            yield locals()["y"]
        return next(g()) * 2

    def grouped(x):
        def g():
            try:
                yield x + 1
                raise ExceptionGroup("planted", [ValueError(1)])
            except* ValueError:
                pass
            yield x * 3
        return [*g()][1] + 1
    for f in (dropped, closed, thrown, ends, looks, grouped):
        want = f(taper.arange(3.0))
        for backend in ("eager", "inductor"):
            taper._dynamo.reset()
            got = taper.compile(f, backend=backend)(taper.arange(3.0))
            assert str(got) == str(want), (f.__name__, backend, got, want)
