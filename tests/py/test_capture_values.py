"""Plain and captured execution agree on every kind of Python value: subclasses of builtins, iterators, generators,
classes, context managers, exceptions. Cases marked whole must be captured as one graph."""
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import math
import operator
import os
import sys
import types
import typing

sys.path.insert(0, os.path.dirname(__file__))
import taper
from capture_util import Cases

F = taper.nn.functional


def X(*s):
    return (taper.arange(1, 1 + math.prod(s), dtype=taper.float32) / 7).reshape(*s)


def one():
    return (X(3, 2),)


case = Cases((one, lambda: (X(4, 2),), lambda: (X(5, 3),)))
whole = case.whole


# ---- subclasses of builtin containers
class MyList(list):
    def total(self):
        return sum(self)


class MyDict(dict):
    def doubled(self):
        return {k: v * 2 for k, v in self.items()}


class Loud(dict):
    def __setitem__(self, k, v):
        super().__setitem__(k, v + 1)


class Stack(list):
    def __init__(self, *items):
        super().__init__(items)
        self.pushed = 0

    def push(self, v):
        self.append(v)
        self.pushed += 1


class Missing(dict):
    def __missing__(self, k):
        return len(k)


class Str(str):
    pass


class Int(int):
    def twice(self):
        return self * 2


class Pair(tuple):
    def swap(self):
        return Pair((self[1], self[0]))


@whole()
def list_subclass(x):
    l = MyList([x, x * 2])
    l.append(x * 3)
    return l.total(), len(l), l[1]
@whole(lambda: (X(3), MyList([X(3), X(3) * 2])))
def list_subclass_arg(x, l): return x + l.total()
@case(lambda: (X(3), MyList([1, 2])))
def list_subclass_mutated(x, l):
    l.append(x * 2)
    l.extra = x + 1
    return len(l)
@whole()
def stack_subclass(x):
    s = Stack(x, x + 1)
    s.push(x * 2)
    return s[2], s.pushed, len(s), list(s)
@whole()
def dict_subclass(x):
    d = MyDict(a=x)
    d["b"] = x + 1
    return d.doubled(), "a" in d, len(d)
@whole(lambda: (X(3), MyDict(a=X(3), b=1)))
def dict_subclass_arg(x, d): return d["a"] + x * d["b"], d.get("c", 4), list(d)
@whole()
def dict_overriding_setitem(x):
    d = Loud()
    d["a"] = x
    d["b"] = 2
    return d["a"], d["b"]
@case(lambda: (X(3), Loud()))
def dict_overriding_setitem_arg(x, d):
    d["a"] = x
    return dict(d)
@whole()
def dict_missing(x):
    d = Missing(a=1)
    return x + d["a"] + d["abc"], "abc" in d
@whole(lambda: (X(3), Missing(a=2)))
def dict_missing_arg(x, d): return x * d["a"] + d["xyz"]
@case()
def str_and_int_subclass(x): return x * Int(3).twice(), Str("ab") + "c", Int(4) + 1
@whole(lambda: (X(3), Int(3), Str("k")))
def str_and_int_subclass_args(x, i, s): return x * i, s.upper(), i.twice()
@case()
def tuple_subclass(x):
    p = Pair((x, x + 1))
    return p.swap()[0], len(p)
@whole()
def ordered_dict(x):
    d = collections.OrderedDict(a=x, b=x + 1)
    d.move_to_end("a")
    d["c"] = x * 2
    k, v = d.popitem(last=False)
    return list(d), k, v, d
@whole(lambda: (X(3), collections.OrderedDict(a=1, b=2, c=3)))
def ordered_dict_arg(x, d):
    d.move_to_end("a")
    d["z"] = x + 1
    return list(d.items())
@whole(lambda: (X(3), collections.OrderedDict(a=1, b=2, c=3)))
def ordered_dict_arg_front(x, d):
    d.move_to_end("c", last=False)
    del d["b"]
    d["a"] = x
    return x + len(d)
@whole(lambda: (X(3), collections.OrderedDict(a=1, b=2)))
def ordered_dict_reversed(x, d): return list(reversed(d)), x + 1, d == {"a": 1, "b": 2}
@whole()
def default_dict(x):
    d = collections.defaultdict(list)
    for i, k in enumerate("abca"):
        d[k].append(x * i)
    return dict(d), len(d), d.get("zz")
@whole(lambda: (X(3), collections.defaultdict(int, a=1)))
def default_dict_arg(x, d):
    d["b"] += 5
    d["a"] += 1
    return x + d["b"]
@whole()
def default_dict_lambda(x):
    d = collections.defaultdict(lambda: x + 1)
    d["q"] = d["p"] * 2
    return d["p"], d["q"], sorted(d)
@whole()
def counter(x):
    c = collections.Counter("abca")
    c.update("aa")
    return x * c["a"] + c["zz"], c.most_common(1)
@whole()
def deque_ops(x):
    d = collections.deque([1, 2, 3], maxlen=4)
    d.appendleft(x)
    d.append(5)
    d.rotate(1)
    return list(d), d[0], len(d), d.maxlen, d.popleft(), d.count(2)
@whole(lambda: (X(3), collections.deque([1, 2])))
def deque_arg(x, d):
    d.extendleft([7, 8])
    d.append(x + 1)
    return [v for v in d][0] + x
@whole(lambda: (X(3), collections.ChainMap({"a": 1}, {"b": 2})))
def chain_map(x, m): return x * m["a"] + m["b"]
Point = collections.namedtuple("Point", "x y")
class P3(typing.NamedTuple):
    a: int
    b: float = 2.0
    def total(self): return self.a + self.b
@whole(lambda: (X(3), Point(1, 2)), lambda: (X(3), Point(3, 2)))
def named_tuple(x, p):
    q = p._replace(y=x)
    return q.y + p.x, q._asdict()["y"], Point._fields, P3(3).total(), P3._make((1, 2.0))
@whole(lambda: (X(3), P3(1)))
def typed_named_tuple(x, p):
    a, b = p
    return x + a + b + p.total(), p == P3(1), p[0]


# ---- dataclasses, enums
@dataclasses.dataclass
class Cfg:
    scale: float = 2.0
    items: list = dataclasses.field(default_factory=list)
    name: str = "c"

    def apply(self, x): return x * self.scale


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: int = 3


@dataclasses.dataclass
class Child(Cfg):
    bias: float = 1.0

    def __post_init__(self):
        self.total = self.scale + self.bias


@dataclasses.dataclass(slots=True, order=True)
class Slim:
    a: int
    b: int = 2


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def weight(self): return self.value * 10

    @classmethod
    def default(cls): return cls.BLUE


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Flags(enum.Flag):
    A = 1
    B = 2


@whole()
def dataclass_made(x):
    c = Cfg(3.0)
    c.items.append(x)
    d = Child(bias=x)
    return c.apply(x), c.items, d.total, d
@whole(lambda: (X(3), Cfg(2.0, [1])), lambda: (X(3), Cfg(5.0, [1, 2])))
def dataclass_arg(x, c):
    c.scale = 7.0
    c.items.append(x + 1)
    return c.apply(x)
@whole()
def dataclass_eq(x): return Cfg(1.0) == Cfg(1.0), Cfg(1.0) != Cfg(2.0), Frozen(1) == Frozen(1, 3), x + 1
@whole(lambda: (X(3), Frozen(2)))
def dataclass_frozen(x, f):
    try:
        f.a = 5
    except dataclasses.FrozenInstanceError as e:
        return x * f.a, str(e)
@whole()
def dataclass_replace(x):
    c = dataclasses.replace(Frozen(1), b=5)
    return x + c.b, [f.name for f in dataclasses.fields(Cfg)]
@whole()
def dataclass_order(x): return Slim(1) < Slim(2), Slim(1, 5) > Slim(1, 2), x + Slim(4).b
@whole()
def dataclass_asdict(x): return dataclasses.asdict(Frozen(1)), x + 1
@whole(lambda: (X(3), Color.RED), lambda: (X(3), Color.BLUE))
def enum_arg(x, c):
    if c is Color.RED:
        return x * c.value
    return x + c.weight
@whole()
def enum_use(x): return x * Color["BLUE"].value + Color(1).value, Color.default().name, [c.name for c in Color], len(Color), Color.RED in Color
@whole()
def int_enum(x): return x * Level.HIGH, Level.LOW < Level.HIGH, Level(3) == 3, [int(v) for v in Level]
@whole()
def flag_enum(x): return x + 1, (Flags.A | Flags.B).value, bool(Flags.A & Flags.B)
@whole()
def enum_dict(x): return {Color.RED: x, Color.BLUE: x + 1}[Color.BLUE]


# ---- generators
def count_to(n):
    for i in range(n):
        yield i


def echo():
    got = []
    while True:
        v = yield len(got)
        if v is None:
            return got
        got.append(v)


def guarded(log):
    try:
        yield 1
        yield 2
    finally:
        log.append("closed")


def catching():
    while True:
        try:
            yield "ready"
        except ValueError as e:
            yield f"caught {e}"


def delegating(x):
    r = yield from inner_gen(x)
    yield r


def inner_gen(x):
    yield x
    yield x + 1
    return x + 2


@whole()
def gen_next(x):
    g = count_to(3)
    return next(g) + x, next(g), next(g), next(g, "end")
@whole()
def gen_send(x):
    g = echo()
    a = next(g)
    b = g.send(x)
    c = g.send(x + 1)
    try:
        g.send(None)
    except StopIteration as e:
        return a, b, c, e.value
@whole()
def gen_close(x):
    log = []
    g = guarded(log)
    v = next(g)
    g.close()
    return v, log, x + 1, next(g, None)
@whole()
def gen_throw(x):
    g = catching()
    a = next(g)
    b = g.throw(ValueError("boo"))
    return a, b, next(g), x * 2
@whole()
def gen_throw_out(x):
    g = count_to(3)
    next(g)
    try:
        g.throw(KeyError("k"))
    except KeyError as e:
        return x + 1, repr(e), next(g, "gone")
@whole()
def gen_return(x): return list(delegating(x))
@whole()
def gen_expression_sum(x): return sum(x * i for i in range(4)), max(i * i for i in (3, -4, 2))
@whole()
def gen_shared(x):
    g = (i for i in range(6))
    return [(a, b) for a, b in zip(g, g)], x + 1
@whole()
def gen_partly(x):
    g = count_to(6)
    first = list(itertools.islice(g, 2))
    return first, list(g), x * 2
@whole()
def gen_enumerate(x):
    g = count_to(5)
    for i, v in enumerate(g):
        if i == 2:
            break
    return list(g), x + v
@whole()
def gen_in_any(x):
    g = count_to(5)
    return any(v == 2 for v in g), list(g), all(v < 3 for v in count_to(5)), x + 1
@whole()
def gen_contains(x):
    g = count_to(5)
    return 2 in g, list(g), x + 1
@whole()
def gen_unpack(x):
    a, *b = count_to(4)
    return a, b, x + 1, [*count_to(2), *count_to(3)]
@whole()
def gen_order(x):
    log = []
    def f(v):
        log.append(("f", v))
        return v * 2
    for v in map(f, [1, 2, 3]):
        log.append(("body", v))
    return log, x + 1
@whole()
def filter_order(x):
    log = []
    def keep(v):
        log.append(("keep", v))
        return v % 2
    for v in filter(keep, [1, 2, 3]):
        log.append(("body", v))
    return log, x + 1
@whole()
def map_two(x): return [a + b for a, b in zip(map(lambda v: x * v, [1, 2]), map(lambda v: v + 1, [1, 2]))], list(map(pow, [2, 3], [2, 2]))
@whole()
def map_lazy(x):
    seen = []
    m = map(lambda v: seen.append(v) or v, [1, 2, 3])
    return next(m), seen, x + 1
@whole()
def filter_none(x): return list(filter(None, [0, 1, "", "a", None])), x + 1
@whole()
def gen_stop_inside(x):
    def g():
        yield 1
        raise StopIteration("no")
    try:
        return list(g())
    except RuntimeError as e:
        return x + 1, str(e), type(e.__cause__).__name__
@whole()
def gen_closure(x):
    def g():
        nonlocal x
        for i in range(3):
            x = x + i
            yield x
    return list(g()), x
@case()
def gen_broken(x):
    def g():
        for i in range(3):
            print(end="")
            yield x * i
    return sum(g())
@whole()
def gen_with(x):
    log = []
    def g():
        with contextlib.suppress(KeyError):
            yield x
            log.append("after")
        yield x * 2
    return list(g()), log
@whole()
def gen_recursive(x):
    def walk(t):
        if isinstance(t, tuple):
            for v in t:
                yield from walk(v)
        else:
            yield t
    return [v for v in walk(((1, 2), (x, (3,))))]
@case()
def gen_returned(x):
    def g():
        yield x
        yield x + 1
    it = g()
    next(it)
    return list(it)
@case(lambda: (X(3), iter([1, 2, 3])))
def iterator_arg(x, it): return x + next(it), list(it)
@case(lambda: (X(3), itertools.chain([1, 2], [3])))
def chain_arg(x, it):
    y = x + next(it)
    return y, sum(it) + y
@case(lambda: (X(3), count_to(4)))
def generator_arg(x, g): return x + next(g), list(g)
@case(lambda: (X(3), zip([1, 2], "ab")))
def zip_arg(x, z):
    for n, s in z:
        x = x * n
    return x


# ---- itertools, functools, operator
@whole()
def it_chain(x): return list(itertools.chain([1, x], (2,), "ab")), list(itertools.chain.from_iterable([[x], [x + 1]]))
@whole()
def it_accumulate(x): return list(itertools.accumulate([1, 2, 3])), list(itertools.accumulate([x, x, x])), list(itertools.accumulate([1, 2], lambda a, b: a * b + x.shape[0], initial=3))
@whole()
def it_take_drop(x): return list(itertools.takewhile(lambda v: v < 3, [1, 2, 3, 1])), list(itertools.dropwhile(lambda v: v < 3, [1, 2, 3, 1])), x + 1
@whole()
def it_starmap(x): return list(itertools.starmap(lambda a, b: x * a + b, [(1, 2), (3, 4)])), list(itertools.starmap(pow, [(2, 3)]))
@whole()
def it_groupby(x): return [(k, len(list(g))) for k, g in itertools.groupby([1, 1, 2, 3, 3], key=lambda v: v > 1)], [k for k, g in itertools.groupby("aabb")], x + 1
@whole()
def it_product(x): return list(itertools.product([1, 2], "ab")), list(itertools.permutations([1, 2, 3], 2)), list(itertools.combinations([1, 2, 3], 2)), x + 1
@whole()
def it_misc(x): return list(itertools.zip_longest([1], [1, x], fillvalue=0)), list(itertools.compress("abc", [1, 0, 1])), list(itertools.filterfalse(lambda v: v % 2, range(5))), list(itertools.repeat(x, 2)), list(itertools.pairwise([1, 2, 3]))
@whole()
def it_count_cycle(x):
    out = []
    for i, c in zip(itertools.count(5, 2), itertools.cycle("ab")):
        if i > 10:
            break
        out.append((i, c))
    return out, x + 1
@whole()
def it_tee(x):
    a, b = itertools.tee([1, 2, 3])
    return list(a), list(b), x + 1
@whole()
def it_islice(x): return list(itertools.islice(range(10), 2, 8, 3)), [v for v in itertools.islice([x, x + 1, x + 2], 1, None)]
@whole()
def fn_partial(x):
    p = functools.partial(taper.add, x, alpha=2)
    q = functools.partial(p, x + 1)
    return p(x), q(), p.args[0], q.keywords
def wrapping(fn):
    @functools.wraps(fn)
    def inner(*a, **k):
        return fn(*a, **k) + 1
    return inner
@wrapping
def wrapped(x, scale=2):
    "doc"
    return x * scale
@whole()
def fn_wraps(x): return wrapped(x), wrapped(x, scale=3), wrapped.__name__, wrapped.__doc__
@whole()
def fn_wraps_made(x):
    @wrapping
    def g(v): return v * 5
    return g(x), g.__name__
@functools.lru_cache(maxsize=None)
def fact(n): return 1 if n < 2 else n * fact(n - 1)
@functools.cache
def square(n): return n * n
@whole()
def fn_lru(x): return x * fact(5) + square(3)
@whole()
def fn_reduce(x): return functools.reduce(operator.mul, [1, 2, 3], x), functools.reduce(lambda a, b: a + [b], [1, 2], [])
@functools.total_ordering
class Ver:
    def __init__(self, n): self.n = n
    def __eq__(self, o): return self.n == o.n
    def __lt__(self, o): return self.n < o.n
    def __hash__(self): return hash(self.n)
    def __repr__(self): return f"Ver({self.n})"
@whole()
def fn_total_ordering(x): return Ver(1) < Ver(2), Ver(3) >= Ver(2), Ver(1) == Ver(1), x * max(Ver(2), Ver(5)).n, sorted([Ver(3), Ver(1)])[0].n
@functools.singledispatch
def kind(v): return "other"
@kind.register
def _(v: int): return "int"
@case()
def fn_singledispatch(x): return kind(3), kind("a"), x + 1
class Lazyp:
    def __init__(self, n): self.n = n
    @functools.cached_property
    def big(self): return self.n * 100
    @functools.lru_cache(maxsize=4)
    def m(self, k): return self.n + k
@whole(lambda: (X(3), Lazyp(2)), lambda: (X(3), Lazyp(3)))
def fn_cached_property(x, o): return x * o.big + o.big
@case(lambda: (X(3), Lazyp(2)))
def fn_cached_method(x, o): return x * o.m(3) + o.m(3)
@whole()
def fn_cmp_to_key(x): return sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a)), x + 1
@whole()
def op_getters(x):
    d = {"a": x, "b": 2}
    return operator.itemgetter("a", "b")(d), operator.attrgetter("shape")(x), operator.methodcaller("sum")(x), operator.itemgetter(0)([x])
@whole()
def op_functions(x): return operator.add(x, 1), operator.getitem([x, 2], 1), operator.contains([1], 1), operator.neg(x), operator.truth([1]), operator.index(3), operator.concat([1], [2]), operator.iadd([1], [2]), operator.not_(0), operator.is_(x, x), operator.matmul(x, x.t())
class Adder:
    def __init__(self, v): self.v = v
    def __add__(self, o): return Adder(self.v + (o.v if isinstance(o, Adder) else o))
    def __radd__(self, o): return Adder(o + self.v)
    def __iadd__(self, o):
        self.v = self.v + o
        return self
    def __getitem__(self, i): return self.v * i
    def __contains__(self, i): return i == 3
    def __len__(self): return 4
    def __neg__(self): return Adder(-self.v)
    def __bool__(self): return False
    def __eq__(self, o): return isinstance(o, Adder)
    def __hash__(self): return 7
    def __abs__(self): return 11
    def __int__(self): return 12
    def __float__(self): return 13.0
    def __index__(self): return 2
    def __invert__(self): return 14
    def __pos__(self): return 15
    def __round__(self, n=0): return 16
    def __divmod__(self, o): return 17, o
    def __pow__(self, o): return 18
    def __matmul__(self, o): return 19
    def __lt__(self, o): return True
    def __call__(self, *a, k=1): return self.v + k + len(a)
    def __str__(self): return "adder"
    def __format__(self, spec): return f"<{spec}>"
    def __enter__(self): return self.v
    def __exit__(self, *a): return True
    def __reversed__(self): return iter([3, 2])
    def __setitem__(self, k, v): self.v = self.v + k * v
    def __delitem__(self, k): self.v = self.v - k
    def __floordiv__(self, o): return 20
    def __rsub__(self, o): return 21
    def __and__(self, o): return 22
    def __lshift__(self, o): return 23
    def __trunc__(self): return 24
    def __ceil__(self): return 25
    def __floor__(self): return 26
@whole(lambda: (X(3), Adder(X(3))))
def user_operators(x, o): return (o + 1).v, (2 + o).v, (o + o).v, o[3], 3 in o, len(o), (-o).v, bool(o), o == Adder(1), not o, o != 3
@whole(lambda: (X(3), Adder(2)))
def user_conversions(x, o): return abs(o), int(o), float(o), ~o, +o, x + [1, 2, 3][o], list(reversed(o)), str(o), o(1, k=2)
@whole(lambda: (X(3), Adder(2)))
def user_more_operators(x, o): return round(o), divmod(o, 3), o ** 2, o @ 1, o < 3, 5 - o, o & 1, o << 2, o // 1, x + 1
@whole(lambda: (X(3), Adder(2)))
def user_formats(x, o): return f"{o:abc}", f"{o!s}", x + 1
@whole(lambda: (X(3), Adder(2)))
def user_str_format(x, o): return "{:q}".format(o), x + 1
@whole(lambda: (X(3), Adder(2)))
def user_items(x, o):
    o[2] = x
    del o[1]
    o += 5
    return o.v
@whole(lambda: (X(3), Adder(2)))
def user_math(x, o): return math.floor(o), math.ceil(o), math.trunc(o), x + operator.index(o), operator.add(o, 3).v
@whole()
def user_set_and_dict(x): return len({Ver(1), Ver(1), Ver(2)}), {Ver(1): x}[Ver(1)], Ver(2) in [Ver(1), Ver(2)], [Ver(1), Ver(2)].index(Ver(2)), [Ver(1)].count(Ver(1))
@whole()
def user_sorted(x): return [v.n for v in sorted([Ver(2), Ver(1)], reverse=True)], min([Ver(4), Ver(3)]).n, x + 1


# ---- classes
class Base:
    count = 0
    scale = 2

    def __init__(self, v): self.v = v
    def f(self, x): return x * self.scale
    @property
    def prop(self): return self.v + 1
    @prop.setter
    def prop(self, w): self.v = w * 10
    @prop.deleter
    def prop(self): self.v = None
    @classmethod
    def make(cls, v): return cls(v * 2)
    @staticmethod
    def stat(v): return v + 5
    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return len(name)
        raise AttributeError(name)


class Derived(Base):
    scale = 3

    def __init__(self, v):
        super().__init__(v)
        self.w = v + 1
    def f(self, x): return super().f(x) + self.w
    @property
    def prop(self): return super().prop * 2
    @classmethod
    def make(cls, v): return super().make(v + 1)
    @staticmethod
    def stat(v): return Base.stat(v) * 2


class Mixin:
    def f(self, x): return super().f(x) - 1


class Mixed(Mixin, Derived):
    pass


class Slots:
    __slots__ = ("a", "b")
    def __init__(self, a): self.a = a


class Descr:
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, o, t): return self if o is None else getattr(o, self.name, 5)
    def __set__(self, o, v): setattr(o, self.name, v * 2)


class HasDescr:
    d = Descr()


class Meta(type):
    def __call__(cls, *a):
        o = super().__call__(*a)
        o.tag = cls.__name__
        return o
    @property
    def kinds(cls): return 7


class WithMeta(metaclass=Meta):
    def __init__(self, v=1): self.v = v


class New:
    def __new__(cls, v):
        o = super().__new__(cls)
        o.made = v
        return o
    def __init__(self, v): self.init = v


class Singleton:
    it = None
    def __new__(cls):
        if cls.it is None:
            cls.it = super().__new__(cls)
        return cls.it


class Node:
    def __init__(self, v, nxt=None):
        self.v, self.nxt = v, nxt
    def __iter__(self):
        n = self
        while n is not None:
            yield n.v
            n = n.nxt


class Countdown:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Seq:
    def __len__(self): return 3
    def __getitem__(self, i):
        if i >= 3:
            raise IndexError(i)
        return i * 2


@whole(lambda: (X(3), Base(1)), lambda: (X(3), Derived(2)), lambda: (X(3), Mixed(2)))
def class_methods(x, o): return o.f(x), o.prop, type(o).make(3).v, o.stat(1), o.dyn_ab, o.make(1).v
@whole(lambda: (X(3), Derived(2)))
def class_made(x, o):
    a = Mixed(x)
    return a.f(x), a.w, isinstance(a, Base), issubclass(Mixed, Base), type(a).__mro__[1].__name__, a.__class__ is Mixed
@whole(lambda: (X(3), Base(2)))
def property_set_delete(x, o):
    o.prop = 3
    a = o.v
    del o.prop
    return a, o.v, x + 1
@whole(lambda: (X(3), Base(2)))
def attributes_by_name(x, o):
    setattr(o, "q", x)
    r = getattr(o, "q") + getattr(o, "nope", 3), hasattr(o, "nope"), hasattr(o, "dyn_q"), hasattr(o, "q")
    delattr(o, "q")
    return r, hasattr(o, "q"), vars(o)
@whole(lambda: (X(3), Base(2)))
def class_attribute_hidden(x, o):
    o.scale = 10
    a = o.f(x)
    del o.scale
    return a, o.f(x)
@case(lambda: (X(3),))
def class_attribute_written(x):
    Base.count = 3
    r = Base.count + Base(1).count
    Base.count = 0
    return x + r
@whole(lambda: (X(3), Slots(1)))
def slots_object(x, o):
    o.b = x + o.a
    try:
        o.c = 1
    except AttributeError as e:
        return o.b, str(e)
@whole(lambda: (X(3), HasDescr()))
def descriptors(x, o):
    a = o.d
    o.d = 4
    return x + o.d, a, HasDescr.d.name
@whole()
def metaclass(x):
    o = WithMeta(3)
    return x * o.v, o.tag, WithMeta.kinds
@whole()
def own_new(x):
    o = New(x)
    return o.made + o.init
@case()
def singleton(x):
    a = Singleton()
    r = a is Singleton()
    Singleton.it = None
    return r, x + 1
@whole()
def linked_list(x): return [v for v in Node(x, Node(x + 1))], sum(Node(1, Node(2))), list(Node(3)), tuple(Node(1)), [*Node(1)]
@whole()
def own_iterator(x): return list(Countdown(3)), x + sum(Countdown(4)), [a + b for a, b in zip(Countdown(3), Countdown(5))]
@whole(lambda: (X(3), Countdown(3)))
def own_iterator_arg(x, c): return next(c), list(c), x + 1
@whole()
def sequence_protocol(x): return [v for v in Seq()], x + len(Seq()), 4 in Seq(), list(reversed(Seq())), list(Seq())
@whole(lambda: (X(3), Base(1)))
def method_values(x, o):
    f = o.f
    g = Base.f
    return f(x), g(o, x), f.__self__ is o, f.__func__ is g, f.__name__, Base.make(2).v
@whole()
def callable_checks(x): return callable(len), callable(3), callable(Base), callable(Base(1).f), x + 1
@whole()
def class_identity(x): return type(Base(1)) is Base, Base.__name__, Base.__qualname__, Base.__module__ == __name__, Derived.__bases__ == (Base,), x + 1
class Ab:
    def __getattribute__(self, n):
        if n == "z":
            return 9
        return object.__getattribute__(self, n)
@whole()
def getattribute(x):
    o = Ab()
    o.k = 2
    return x * o.z + o.k
class Frz:
    def __init__(self): object.__setattr__(self, "a", 1)
    def __setattr__(self, n, v): raise AttributeError("frozen " + n)
    def __delattr__(self, n): raise AttributeError("kept " + n)
@whole()
def setattr_override(x):
    o = Frz()
    r = []
    try:
        o.a = 2
    except AttributeError as e:
        r.append(str(e))
    try:
        del o.a
    except AttributeError as e:
        r.append(str(e))
    return x * o.a, r
@case()
def class_defined_inside(x):
    class In(Base):
        def f(self, x): return super().f(x) + 100
    return In(1).f(x), In.__name__
class Abstract:
    def run(self, x): raise NotImplementedError(type(self).__name__)
@case()
def not_implemented(x):
    try:
        Abstract().run(x)
    except NotImplementedError as e:
        return x, str(e)
class Weird:
    def __eq__(self, o): return NotImplemented
    def __add__(self, o): return NotImplemented
@case()
def operator_refused(x):
    r = [Weird() == Weird(), Weird() != 3]
    try:
        Weird() + 1
    except TypeError as e:
        r.append(str(e))
    return r, x + 1
class Rev:
    def __radd__(self, o): return "radd"
    def __rmul__(self, o): return "rmul"
    def __rmatmul__(self, o): return "rmm"
    def __gt__(self, o): return "gt"
@case()
def reflected_with_tensor(x):
    return [1] + [2], 3 + Rev(), 2 * Rev(), 3 < Rev()
@whole(lambda: (X(3), {"a": [Base(1)]}))
def deep_attribute(x, d):
    d["a"][0].v = x
    d["a"][0].v.sum()
    return d["a"][0].prop
@whole(lambda: (lambda b: (X(3), b, b))(Base(2)), lambda: (X(3), Base(2), Base(3)))
def same_object_twice(x, a, b):
    a.v = 10
    return x * b.v, a is b


# ---- match
def kind_of(v):
    match v:
        case None: return "none"
        case True | False: return "bool"
        case int(n) if n > 10: return f"big {n}"
        case int(): return "int"
        case str() as s: return s + "!"
        case []: return "empty"
        case [a]: return ("one", a)
        case [a, b]: return ("two", a, b)
        case [a, *rest]: return ("many", a, rest)
        case {"k": v, **rest}: return ("map", v, rest)
        case Point(x=0, y=yy): return ("zero", yy)
        case Point(a, b): return ("point", a, b)
        case Base(v=val): return ("base", val)
        case Color.RED: return "red"
        case float(f): return -f
        case _: return "other"
@whole()
def match_kinds(x): return [kind_of(v) for v in (None, True, 3, 30, "s", [], [1], [1, x], [1, 2, 3], {"k": 1, "z": x}, 2.5, Color.RED, Color.BLUE, Base(4))], x + 1
@whole(lambda: (X(3), Point(0, 2)), lambda: (X(3), Point(1, 2)), lambda: (X(3), [1, 2, 3]), lambda: (X(3), "q"))
def match_arg(x, v):
    match v:
        case Point(x=0): return x
        case (a, b, *_): return x * a + b
        case "q" | "r": return x - 1
    return x + 100
@whole()
def match_tensor_in_list(x):
    match [x, {"a": (x + 1, 2)}]:
        case [t, {"a": (u, int(n))}]:
            return t + u * n
@whole()
def match_guard(x):
    match x.shape:
        case (a, b) if a > b: return x * 2
        case (a, b): return x * 3
    return x
@whole()
def match_nested_or(x):
    out = []
    for v in ((1, (2, 3)), (1, (4, 5)), 7):
        match v:
            case (1, ((2 | 3) as p, q)): out.append((p, q))
            case (1, _): out.append("one")
            case w: out.append(w)
    return out, x + 1


# ---- context managers
class Mgr:
    def __init__(self, log, swallow=()): self.log, self.swallow = log, swallow
    def __enter__(self):
        self.log.append("in")
        return self
    def __exit__(self, t, v, tb):
        self.log.append(t.__name__ if t else "out")
        return bool(t and issubclass(t, self.swallow)) if self.swallow else False


@contextlib.contextmanager
def scaled(log, v):
    log.append("enter")
    try:
        yield v * 2
    except ValueError as e:
        log.append(str(e))
    finally:
        log.append("exit")


@whole()
def with_own(x):
    log = []
    with Mgr(log) as m, Mgr(log):
        y = x + len(m.log)
    return y, log
@whole()
def with_swallowing(x):
    log = []
    with Mgr(log, (KeyError,)):
        x = x + 1
        raise KeyError("k")
    return x, log
@case()
def with_escaping(x):
    log = []
    try:
        with Mgr(log, (KeyError,)):
            raise ValueError("v")
    except ValueError as e:
        log.append(str(e))
    return x + 1, log
@case(lambda: (X(3), []))
def with_leaving(x, log):
    with Mgr(log):
        x = x * 2
        raise ValueError("out")
@whole()
def with_generator_manager(x):
    log = []
    with scaled(log, x) as y:
        log.append("body")
        z = y + 1
    return z, log
@case()
def with_generator_manager_error(x):
    log = []
    with scaled(log, x) as y:
        raise ValueError("inner")
    return x + 1, log
@whole()
def with_return(x):
    log = []
    def f():
        with Mgr(log):
            return x * 2
    return f(), log
@whole()
def with_in_loop(x):
    log = []
    for i in range(3):
        with Mgr(log):
            if i == 1:
                continue
            x = x + i
            if i == 2:
                break
    return x, log
@whole()
def with_suppress(x):
    with contextlib.suppress(KeyError, ValueError):
        {}["a"]
    return x + 1
@whole()
def with_nullcontext(x):
    with contextlib.nullcontext(3) as v:
        return x * v
@case()
def with_exit_stack(x):
    log = []
    with contextlib.ExitStack() as s:
        s.enter_context(Mgr(log))
        s.callback(log.append, "cb")
        x = x + 1
    return x, log
@whole()
def with_decorator(x):
    log = []
    @scaled(log, 1)
    def f(v): return v + 1
    return f(x), log
@case()
def with_break_inside(x):
    log = []
    with Mgr(log):
        y = x + 1
        print(end="")
        y = y * 2
        with scaled(log, y) as z:
            print(end="")
            y = z + 1
    return y, log
@case()
def with_data_branch(x):
    log = []
    with Mgr(log, (ValueError,)):
        if x.sum() > 0:
            raise ValueError("pos")
        x = x * 2
    return x, log
@whole()
def with_grad_modes(x):
    with taper.no_grad():
        a = x * 2
        with taper.enable_grad():
            b = x * 3
    with taper.set_grad_enabled(False):
        c = x + 1
    return a, b, c, taper.is_grad_enabled()


# ---- exceptions
class MyErr(Exception):
    def __init__(self, code, msg="m"):
        super().__init__(msg)
        self.code = code
class SubErr(MyErr): pass


@whole()
def exc_own(x):
    try:
        raise SubErr(3, "q")
    except MyErr as e:
        return x * e.code, str(e), e.args, isinstance(e, SubErr)
@whole()
def exc_else_finally(x):
    log = []
    try:
        y = x + 1
    except ValueError:
        log.append("never")
    else:
        log.append("else")
    finally:
        log.append("finally")
    return y, log
@whole()
def exc_in_callee(x):
    def f(v):
        if v > 2:
            raise IndexError(v)
        return v
    out = []
    for i in range(4):
        try:
            out.append(f(i))
        except IndexError as e:
            out.append(e.args[0] * 10)
    return out, x + 1
@case()
def exc_from(x):
    try:
        try:
            raise KeyError("a")
        except KeyError as e:
            raise ValueError("b") from e
    except ValueError as e:
        return x + 1, repr(e.__cause__), e.__suppress_context__, repr(e.__context__)
@case()
def exc_from_none(x):
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise ValueError("b") from None
    except ValueError as e:
        return x + 1, e.__cause__, e.__suppress_context__
@case()
def exc_context(x):
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise ValueError("b")
    except ValueError as e:
        return x + 1, repr(e.__context__), e.__cause__
@case()
def exc_leaving_chain(x):
    y = x * 2
    try:
        raise KeyError("a")
    except KeyError as e:
        raise ValueError("b") from e
@case()
def exc_leaving_callee(x):
    def f(v):
        v = v + 1
        raise MyErr(4, "deep")
    y = x + 1
    return f(y)
@case()
def exc_leaving_finally(x):
    try:
        y = x + 1
        raise KeyError("first")
    finally:
        x = x * 2
@case()
def exc_finally_return(x):
    def f():
        try:
            raise KeyError("lost")
        finally:
            return x * 2
    return f()
@case()
def exc_finally_overrides(x):
    try:
        raise KeyError("first")
    finally:
        raise ValueError("second")
@whole()
def exc_nested(x):
    out = []
    for k in (KeyError, ValueError, TypeError):
        try:
            try:
                raise k("z")
            except KeyError:
                out.append("k")
            finally:
                out.append("f")
        except (ValueError, TypeError) as e:
            out.append(type(e).__name__)
    return out, x + 1
@whole()
def exc_bare_raise(x):
    try:
        try:
            raise KeyError("q")
        except KeyError:
            raise
    except KeyError as e:
        return x + 1, str(e)
@case()
def exc_unbound_name(x):
    try:
        raise KeyError("q")
    except KeyError as e:
        pass
    return e
@whole()
def exc_builtin_errors(x):
    out = []
    for f in (lambda: [1][3], lambda: {}["a"], lambda: 1 // 0, lambda: int("z"), lambda: "a" + 1, lambda: (1).nope, lambda: next(iter([])), lambda: undefined_name):
        try:
            f()
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out, x + 1
@case()
def exc_tensor_error(x):
    try:
        return x.reshape(7, 11)
    except RuntimeError as e:
        return x + 1, "shape" in str(e)
@case()
def exc_data_error(x):
    log = []
    log.append("before")
    try:
        y = F.embedding(taper.tensor([99]), x)
        log.append("not here")
    except (IndexError, RuntimeError) as e:
        log.append("caught")
        y = x
    return y + 1, log
@case(lambda: (X(3, 2), []))
def exc_data_error_leaving(x, log):
    log.append(x + 1)
    y = F.embedding(taper.tensor([99]), x)
    log.append("not here")
    return y
@case()
def exc_group(x):
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError("k")])
    except* ValueError as e:
        n = len(e.exceptions)
    except* KeyError:
        n = n + 10
    return x + n
@case()
def exc_assert(x):
    try:
        assert x.dim() == 9, f"dim {x.dim()}"
    except AssertionError as e:
        return x + 1, str(e)
@case()
def exc_system_exit(x):
    try:
        raise SystemExit(3)
    except BaseException as e:
        return x + 1, e.code
@case()
def exc_notes(x):
    try:
        e = ValueError("n")
        e.add_note("hint")
        raise e
    except ValueError as err:
        return x + 1, err.__notes__
@case()
def exc_traceback(x):
    import traceback
    try:
        raise ValueError("tb")
    except ValueError as e:
        return x + 1, [f.name for f in traceback.extract_tb(e.__traceback__)]
@whole()
def exc_stop_iteration(x):
    it = iter([1])
    next(it)
    try:
        next(it)
    except StopIteration:
        return x + 1
@case()
def exc_warning(x):
    import warnings
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        warnings.warn("careful")
    return x + 1, len(w)


# ---- names, closures, calls
@whole()
def nonlocal_counter(x):
    n = 0
    def bump(k=1):
        nonlocal n
        n += k
        return n
    bump(); bump(2)
    return x * n, bump()
@whole()
def closures_in_loop(x):
    fs = [lambda v: v * i for i in range(3)]
    gs = [lambda v, i=i: v * i for i in range(3)]
    return [f(x) for f in fs], [g(2) for g in gs]
@whole()
def closure_shared(x):
    box = [0]
    def put(v): box[0] = v
    def get(): return box[0]
    put(x + 1)
    return get() + box[0]
@whole()
def closure_deep(x):
    def a():
        def b():
            def c():
                nonlocal x
                x = x * 2
                return x
            return c() + 1
        return b() + x
    return a(), x
@whole()
def star_unpacking(x):
    a, *b, c = [1, x, 2, 3]
    (d, (e, *f)), g = (1, (2, 3, 4)), 5
    *h, = (1, 2)
    return a, b, c, d, e, f, g, h, [*b, *h], {*h, 9}, {**{"k": x}, "j": 1}, (*b,)
def many(a, b=2, *c, d, e=5, **f): return a, b, c, d, e, f
@whole()
def star_calls(x):
    t, k = (x, 1), {"d": x + 1, "z": 3}
    return many(*t, **k), many(1, *(2, 3), d=4, **{"q": x}), many(*[1], d=2, *[3])
@case()
def star_call_errors(x):
    out = []
    for f in (lambda: many(), lambda: many(1, d=2, **{"d": 3}), lambda: many(1, 2, a=3, d=1), lambda: many(*3, d=1), lambda: many(**4), lambda: (lambda: 1)(2), lambda: (lambda a, /: 1)(a=3)):
        try:
            f()
        except TypeError as e:
            out.append(str(e))
    return out, x + 1
@whole()
def walrus_uses(x):
    if (n := x.shape[0]) > 2 and (m := n * 2):
        x = x * m
    return x, n, [y := 3, y ** 2], [last := i for i in range(3)], last
@whole()
def chained_comparisons(x):
    a = 3
    return 1 < a < 5, 1 < a > 5, 1 == 1 != 2, a in [3] in [[3]], 0 <= x.shape[0] <= 10, x + (1 < a <= 3)
@whole()
def deletions(x):
    a, b = [1, 2, 3, 4], {"k": x, "j": 1}
    del a[1:3], b["j"]
    c = x
    del c
    return a, b, "c" in ()
@whole()
def conditional_chain(x): return (x if x.dim() == 1 else x * 2 if x.dim() == 2 else None), [] or "e", 0 or None or 5, 1 and 2, None and 1
@whole()
def lambdas_default(x): return (lambda a, b=x, *c, **d: a + b)(1), (lambda *a: len(a))(1, 2), (lambda: (yield))().__class__.__name__
@whole()
def keyword_only_defaults(x):
    def f(a, *, k=x, j=2): return a * k + j
    return f(2), f(2, k=3), f.__kwdefaults__["j"], f.__defaults__
@whole()
def mutable_default(x):
    def f(v, acc=[]):
        acc.append(v)
        return len(acc)
    return f(1), f(2), x + 1
ACC = []
def acc(v, l=ACC):
    l.append(v)
    return len(l)
@whole()
def mutable_default_outside(x):
    n = acc(1) + acc(2)
    r = x * n, list(ACC)
    ACC.clear()
    return r
@whole()
def function_attributes(x):
    def f(v): return v + f.k
    f.k = 3
    return f(x), f.__name__, f.__qualname__
@whole()
def returned_functions(x):
    def outer(n):
        def inner(v): return v * n
        return inner
    return outer(3)(x), [g(x) for g in map(outer, (1, 2))]
@whole()
def recursion_inner(x):
    def f(v, n): return v if n == 0 else f(v + n, n - 1)
    return f(x, 5)
@whole()
def mutual_recursion(x):
    def even(n): return True if n == 0 else odd(n - 1)
    def odd(n): return False if n == 0 else even(n - 1)
    return even(6), odd(6), x + 1
@case()
def name_errors(x):
    out = []
    def f():
        return later
    try:
        f()
    except NameError as e:
        out.append(str(e))
    later = 1
    del later
    try:
        later
    except NameError as e:
        out.append(str(e))
    return out, x + f.__code__.co_argcount
GL = {"n": 0}
def reset_gl(): GL.clear(); GL["n"] = 0
@whole()
def global_dict(x):
    GL["n"] += 1
    GL["t"] = x
    r = GL["n"], GL["t"]
    reset_gl()
    return r


# ---- text
@whole()
def f_strings(x): return f"{3.14159:.2f}", f"{42:>6d}|{42:<6}|{42:^6}|{42:06}", f"{'s'!r:>5}", f"{1_000_000:,}", f"{0.5:%}", f"{255:#x} {255:b}", f"{'a':*^5}", f"{3:{'>'}{5}}", f"{x.shape[0]=}", f"{x.dtype}", x + 1
@whole()
def percent_format(x): return "%d %s %.2f %5r" % (1, "a", 2.0, "b"), "%(k)s" % {"k": 3}, "%s" % 3, "%%" % (), x + 1
@whole()
def str_methods(x): return "a-b".partition("-"), "  a ".strip(), "ab".center(6, "*"), "a b c".split(), "A".lower(), "x".upper(), "abc"[::-1], "abc".find("c"), "a".isdigit(), "1".isdigit(), "ab".title(), "a,b".rsplit(",", 1), "abc".endswith(("c", "d")), "aXb".swapcase(), "abc".encode(), "%".join("abc"), "a".zfill(3), "abab".count("ab"), "{} {k}".format(1, k=2), "abc".translate({97: "z"}), "a\nb".splitlines(), ord("a"), chr(98), x + 1
@whole()
def str_compare(x): return "a" < "b", "a" in "abc", "a" * 3, "a" + "b", len("abc"), sorted("bca"), list("ab"), str(3) + repr("q"), x + 1
@whole()
def str_of_containers(x): return str([1, "a"]), repr({"k": (1, 2)}), str(None), repr(1.5), f"{[1, 2]}", x + 1
@whole()
def bytes_ops(x): return b"abc"[0], bytes([1, 2]), b"a" in b"ab", b"ab".hex(), bytearray(b"x")[0], x + 1
@whole()
def formatted_names(x): return f"{type(x).__name__} {x.ndim} {tuple(x.shape)}", x + 1


# ---- sets, dicts, lists, numbers
@whole()
def set_ops(x):
    a, b = {1, 2, 3}, {3, 4}
    c = set(a)
    c.add(9); c.discard(1); c.remove(2); c |= {7}; c &= {7, 9, 3}; c -= {3}; c ^= {100}
    return a | b, a & b, a - b, a ^ b, a <= {1, 2, 3, 4}, a.isdisjoint({8}), c, a.union([5]), a.issubset(a), {i % 2 for i in range(5)}, frozenset(a) == a, x + len(a)
@whole(lambda: (X(3), {1, 2}))
def set_arg(x, s):
    s.add(5)
    s.discard(1)
    s.update([8, 9])
    return x * len(s), 2 in s, s.pop() in (2, 5, 8, 9)
@whole(lambda: (X(3), frozenset([1, 2])))
def frozenset_arg(x, s): return x * len(s), 1 in s, s | {3}
@whole()
def dict_ops(x):
    d = {"a": 1, "b": x}
    d.update(c=3); d |= {"z": 5}; d.setdefault("q", []).append(x)
    e = d | {"a": 9}
    return d.pop("c"), d.pop("nope", None), list(d.items())[0], e["a"], {v: k for k, v in {"a": 1}.items()}, dict(zip("ab", [1, 2])), dict([("k", x)]), dict.fromkeys("ab", 0), d.keys() & {"a"}, "a" in d.keys(), 1 in {"a": 1}.values(), list(reversed({"p": 1, "q": 2})), d.get("b") is x
@whole(lambda: (X(3), {"a": 1, "b": {"c": [1]}}))
def dict_arg(x, d):
    d["b"]["c"].append(x)
    d["new"] = d.pop("a")
    d.setdefault("b", 3)
    return x * d["new"]
@whole(lambda: (X(3), {"a": 1, "b": 2}))
def dict_arg_cleared(x, d):
    d.clear()
    d["z"] = x
    return len(d)
@whole(lambda: (X(3), {1: "i", (2, 3): "t", None: "n", "s": X(2)}))
def dict_odd_keys(x, d): return d[1], d[2, 3], d[None], d["s"] + 1, x + len(d)
@case(lambda: (X(3), {"a": 1, "b": 2}))
def dict_changed_in_loop(x, d):
    try:
        for k in d:
            d[k + "z"] = x
    except RuntimeError as e:
        return str(e), x + 1
@whole()
def list_methods(x):
    l = [3, 1, 2]
    l.sort(); l.reverse(); l.insert(3, x); l.extend([5, 6]); l += (7,); l *= 1
    m = l[:]
    m.remove(3)
    return l, m, l.index(1), [1, 5].count(5), l.pop(), l.pop(0), l[1:3], l[::-1], [0] * 3, [1] + [2], [3].copy() == [3], m.clear(), m
@whole()
def list_slices(x):
    l = list(range(6))
    l[1:3] = [x]
    l[::2] = [0] * len(l[::2])
    del l[-1]
    return l, l[-2:], l[5:], l[slice(0, 2)]
@whole(lambda: (X(3), [3, 1, 2]))
def list_arg_sorted(x, l):
    l.sort(key=lambda v: -v)
    l[0] = x
    return sorted(l[1:])
@whole(lambda: (X(3), [[1], [2]]))
def list_nested_arg(x, l):
    l[0].append(x)
    l.append(l[0])
    return len(l)
@whole()
def list_self_reference(x):
    l = [x]
    l.append(l)
    return l[1][1][0] + 1
@whole()
def tuple_ops(x): return (1, 2) + (x,), (1,) * 2, (1, 2) < (1, 3), (3, 4).index(4), len((1, 2)), (1, x)[1], tuple([1]) == (1,), hash((1, 2)) == hash((1, 2))
@whole()
def numbers(x): return 7 // 2, -7 // 2, 7 % -3, 2 ** 10, 2 ** -1, 7 / 2, divmod(7, 2), round(2.567, 2), abs(-3), 1 << 4, 5 & 3, 5 | 3, 5 ^ 3, ~5, int(3.9), float("1.5"), int("ff", 16), 10 ** 20, 0.1 + 0.2, 1e308 * 10, (3).bit_length(), (2.5).is_integer(), complex(1, 2).real, pow(2, 5, 7), min(3, 1), max([1, 5]), sum([1, 2], 3), bool([]), x + 1
@whole()
def math_functions(x): return math.sqrt(4), math.pi, math.floor(2.5), math.gcd(12, 8), math.prod([2, 3]), math.isclose(1, 1 + 1e-12), math.inf > 1, math.log2(8), math.hypot(3, 4), math.comb(5, 2), math.isnan(math.nan), math.copysign(1, -2), math.fsum([0.1] * 3), x + 1
@whole()
def range_ops(x): return list(range(5))[::2], 3 in range(5), len(range(0, 10, 3)), range(5)[2], range(3) == range(0, 3), list(reversed(range(3))), range(10)[2:5], x + sum(range(4))
@whole()
def sorted_things(x): return sorted([3, 1, 2], reverse=True), sorted({"b": 1, "a": 2}), sorted(["bb", "a"], key=len), sorted([(1, "b"), (1, "a")]), [v for _, v in sorted(enumerate("cab"), key=lambda p: p[1])], min("abc"), max([(1, 2), (1, 3)]), sorted([x, x * 2], key=lambda t: t.shape[0])[0]
@whole()
def any_all(x): return any([0, 1]), all([1, 0]), any([]), all([]), any(v > 1 for v in (1, 2)), x + 1
@whole()
def zip_enumerate(x): return list(zip([1, 2], "ab", (x, x))), list(enumerate("ab", 5)), dict(enumerate([x])), list(zip(*[(1, 2), (3, 4)])), list(zip([1], [2], strict=True)), next(zip([x], [1]))[0]
@case()
def zip_strict(x):
    try:
        list(zip([1], [1, 2], strict=True))
    except ValueError as e:
        return str(e), x + 1
@whole()
def isinstance_kinds(x): return isinstance(x, taper.Tensor), isinstance([], (list, tuple)), isinstance(3, int | str), isinstance({}, collections.abc.Mapping), isinstance(x, object), isinstance(Base, type), issubclass(Derived, (int, Base)), isinstance(count_to(1), collections.abc.Iterator), isinstance(True, int)
@whole()
def iter_next(x):
    it = iter([x, 2])
    a = next(it)
    return a, next(it), next(it, None), list(iter({"k": 1})), list(iter("ab"))
@whole()
def iter_sentinel(x):
    l = [1, 2, 0, 3]
    return list(iter(lambda: l.pop(0), 0)), x + 1
@whole()
def unpack_kinds(x):
    (a, b), c = "xy", {1: 2}
    d, e = {"k": 1, "j": 2}
    f, g = range(2)
    return a, b, c, d, e, f, g, x + 1
@case()
def unpack_errors(x):
    out = []
    for f in (lambda: exec_unpack([1]), lambda: exec_unpack([1, 2, 3]), lambda: exec_unpack(5), lambda: exec_unpack({1: 2})):
        try:
            f()
        except (TypeError, ValueError) as e:
            out.append(str(e))
    return out, x + 1
def exec_unpack(v):
    a, b = v
    return a
@whole()
def comprehension_kinds(x): return [i * j for i in range(3) if i for j in range(2) if j < i], {i: x * i for i in range(2)}, {i // 2 for i in range(4)}, list(i for i in range(3)), [[j for j in range(i)] for i in range(3)], [(lambda k: k + i)(1) for i in range(2)]
@whole()
def slice_objects(x):
    s = slice(0, 2)
    return x[s], [1, 2, 3][s], s.stop, s.indices(5), x[slice(None), slice(0, 1)]
@whole()
def copy_kinds(x): return copy.copy([x])[0] is x, copy.copy({"a": 1}), copy.copy((1, 2)), copy.copy({1, 2}), copy.copy(Base(3)).v, x + 1
@case()
def deepcopy_kinds(x): return copy.deepcopy([1, [2]]), copy.deepcopy({"a": (1,)}), x + 1
@whole()
def type_hints(x):
    a: int = 3
    b: "list[int]" = [a]
    return x + typing.cast(int, b[0])
@whole()
def tensor_in_containers(x):
    d = {"l": [x, (x + 1,)], "t": (x, {"z": x * 2})}
    return d["l"][1][0] + d["t"][1]["z"]
@whole()
def appended_in_loop(x):
    out = []
    for i in range(4):
        out.append(x * i)
    return taper.stack(out), len(out)
@whole(lambda: (X(3), [1]), lambda: (X(3), [1, 2]), lambda: (X(3), [1, 2, 3]))
def appended_to_arg(x, l):
    for i in range(3):
        l.append(x * i)
    return l[-1]
@case()
def appended_with_break(x):
    out = []
    for i in range(5):
        out.append(x * i)
        print(end="")
    return out


# ---- tensors meet Python
@whole()
def tensor_methods(x): return x.sum(0), x.mean(-1, keepdim=True), x.max(), x.t(), x.reshape(-1), x.unsqueeze(0).squeeze(0), x.clone().fill_(2), x.expand(2, *x.shape), x.permute(1, 0), x.view(-1)[0:1], x.contiguous().is_contiguous()
@whole()
def tensor_builtin(x): return abs(x), pow(x, 2), len(x), sum([x, x]), x in [x], x is not None, isinstance(x.shape, tuple), divmod(7, x.shape[0])
@whole()
def tensor_iter(x):
    a = [r.sum() for r in x]
    for i, r in enumerate(x):
        a[0] = a[0] + r.sum() * i
    first, *rest = x
    return a, first, len(rest)
@whole()
def tensor_index_kinds(x):
    i = taper.tensor([0, 1])
    m = x > 0.3
    return x[i], x[[0, 1]], x[i, 0], x[..., None], x[:, -1:], x.index_select(0, i), taper.where(m, x, 0 * x), x[0, 0] + 1, x[True].shape
@whole()
def tensor_setitem_kinds(x):
    y = x.clone()
    y[0] = 1
    y[:, 0] += 2
    y[1, 1] = y[0, 0]
    y[taper.tensor([0])] = 7
    y[y > 5] = 0
    return y
@whole(lambda: (X(3, 2), 2, 0.5, True, None, "mean"), lambda: (X(3, 2), 3, 1.5, False, None, "sum"))
def argument_kinds(x, n, f, b, none, s):
    y = x * n + f
    if b:
        y = y - 1
    return getattr(y, s)(), y if none is None else none
@whole(lambda: (X(3), {"p": X(3), "q": [X(3), {"r": X(3)}]}), lambda: (X(4), {"p": X(4), "q": [X(4), {"r": X(4)}]}))
def nested_arguments(x, d):
    return {"s": x + d["p"], "t": [d["q"][0] * d["q"][1]["r"]], "d": d}
@whole(lambda: (lambda t: (t, t))(X(3)), lambda: (X(3), X(3)))
def same_tensor_twice(a, b):
    a.add_(1)
    return a + b, a is b
@whole(lambda: (lambda t: (t, t[1:]))(X(4)), lambda: (X(4), X(3)))
def view_of_argument(a, b):
    b.mul_(10)
    return a.sum(), b
@whole()
def augmented_attr(x):
    class_ = Cfg(1.0)
    class_.scale += 2
    class_.items += [x]
    return x * class_.scale, class_.items
@whole()
def bool_of_containers(x): return x + 1 if [0] else x, x * 2 if {} else x * 3, not "", bool(()), bool({1})
@whole()
def shape_arith(x):
    a, b = x.shape
    return x.view(b * a), taper.zeros(a + b).shape, a * 2 // b, max(a, b), float(a), str(a), [i for i in range(b)], a == x.size(0), x.numel() == a * b, divmod(a, 2), -a, a / 2, a ** 2, hash(a) is not None
@whole()
def shape_objects(x): return x.shape == (x.shape[0], x.shape[1]), x.shape[:1] + (7,), x.shape.numel(), list(x.shape), x.size()[-1], taper.Size([1, 2]), len(x.shape), tuple(x.shape)
@whole()
def module_made_outside(x): return LIN(taper.cat([x, x], 1)[:, :2])
LIN = taper.nn.Sequential(taper.nn.Linear(2, 3), taper.nn.ReLU())
@whole(lambda: (X(3, 2), LIN))
def module_walk(x, m): return m(x), len(m), [n for n, _ in m.named_parameters()], sum(p.numel() for p in m.parameters()), [type(c).__name__ for c in m.children()], m[0].weight.shape, m.training, isinstance(m[1], taper.nn.ReLU)
@case(lambda: (X(3, 2), taper.nn.BatchNorm1d(2)))
def module_buffers(x, m):
    y = m(x)
    return y.detach(), m.running_mean, [n for n, _ in m.named_buffers()], m.num_batches_tracked


# ---- what the user's classes decide: keys, texts, mappings
class Named:
    def __init__(self, v):
        self.v = v
        self.d = {"k": [1, v]}

    def __hash__(self): return hash(self.v)
    def __eq__(self, o): return isinstance(o, Named) and self.v == o.v
    def __str__(self): return f"P{self.v}"
    def __repr__(self): return f"<P {self.v!r}>"


class Quantity(float):
    def twice(self): return self * 2


class Pairs:
    def keys(self): return ["p", "q"]
    def __getitem__(self, k): return k * 2


class Keyed(dict):
    def keys(self): return ["never asked"]


class Window(collections.deque):
    def total(self): return sum(self)


def keywords(**kw): return kw


@functools.lru_cache(maxsize=None)
def cubed(n): return n * n * n


@whole(lambda: (X(3), Quantity(1.5)), lambda: (X(3), Quantity(2.5)))
def float_subclass_arg(x, q): return x * q + q.twice(), q, type(q).__name__, q > 2
@whole(lambda: (X(3), {Named(1): 2}, Named(1)), lambda: (X(3), {Named(1): 2}, Named(3)))
def own_keys(x, d, p):
    d[p] = d.get(p, 0) + 1
    return x * d[p], len(d), Named(1) in d, Named(9) in d, len({Named(1), Named(2), p}), {(Named(1), 2): "a"}[Named(1), 2]
@whole(lambda: (X(3), Named(1)), lambda: (X(3), Named("q")))
def own_texts(x, p): return "{} {!r} {!s:>5} {k:{w}}".format(p, p, p, k="z", w=4), "{0.v} {0.d[k][1]}".format(p), "%s %r %5s|%-5s|%.2s %d%%" % (p, p, p, p, p, 3), "%(a)s %(b)03d" % {"a": p, "b": 7}, x + 1
@whole(lambda: (X(3), Pairs(), Keyed(a=1)))
def own_mappings(x, m, d): return keywords(**m), {**m, "x": 1}, keywords(**d), dict(m), dict(d), x + 1
@whole()
def deque_subclass_made(x):
    w = Window([1, 2], 3)
    w.append(3)
    w.append(4)
    return list(w), w.total(), w.maxlen, x + 1
@case()
def deque_subclass_alive(x):
    w = Window([1, 2])
    w.append(x)
    if x.sum() > 0:
        w.append(3)
    return list(w), type(w).__name__
@whole()
def cached_function(x): return x * cubed(3) + cubed(2)
@whole(lambda: (taper.nn.ModuleList([taper.nn.ReLU(), taper.nn.Tanh()]), X(3)), lambda: (taper.nn.ModuleList([taper.nn.Tanh()]), X(4)))
def zip_module_list(l, x):
    for i, (a, b) in enumerate(zip(l, reversed(l))):
        x = a(b(x)) + i
    return x, [type(m).__name__ for _, m in enumerate(l)]
@whole()
def throw_three(x):
    g = catching()
    next(g)
    return g.throw(ValueError, ValueError("m"), None), x + 1
@whole()
def method_type(x):
    m = types.MethodType(lambda self, v: v + self.v, Named(2))
    return m(x), m.__self__.v
@whole()
def exit_stack(x):
    log = []
    with contextlib.ExitStack() as s:
        s.callback(log.append, "back")
        x = x * 2
    return x, log
@whole(lambda: (X(3),), lambda: (X(4),), lambda: (X(5),))
def size_as_number(x):
    n = x.shape[0]
    return n.bit_length(), n.real, n.__class__ is int, taper.tensor(n), taper.tensor(n, dtype=taper.float32) * x


case.tests(globals())
