"""Plain and captured execution agree on small functions of every kind."""
import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
import taper
from capture_util import Cases

F = taper.nn.functional


def X(*s):
    return (taper.arange(1, 1 + math.prod(s), dtype=taper.float32) / 7).reshape(*s)


def one():
    return (X(3, 2),)


case = Cases((one, lambda: (X(4, 2),), lambda: (X(5, 3),)))
G_SCALE = 3.0
G_LIST = [1, 2, 3]
G_TENSOR = X(2)
G_COUNTER = 0

# ---- straight line
@case()
def add_mul(x): return x * 2 + 1
@case()
def chain(x): return taper.sin(x).cos().exp().sum()
@case()
def reuse(x):
    y = x + 1
    z = y * y
    return z - y
@case()
def many_outputs(x): return x + 1, x - 1, x * 2
@case()
def nested_outputs(x): return {"a": [x + 1, (x, 2)], "b": None}
@case()
def return_input(x): return x
@case()
def return_const(x): return 5
@case()
def unary_ops(x): return -x, +x, ~(x > 1), abs(x), not x.dim()
@case()
def comparisons(x): return x > 1, x >= 1, x < 1, x <= 1, x == 1, x != 1
@case()
def reflected(x): return 1 - x, 2 / x, 2 ** x, 3 // (x + 1), 5 % (x + 1)
@case()
def attrs(x): return x.shape, x.dtype, x.device, x.ndim, x.dim(), x.numel(), x.size(), x.size(0), x.stride(), x.is_floating_point()
@case()
def shape_math(x):
    a, b = x.shape
    return x.reshape(b, a) * (a + b), a * b, a // 2, a % 2
@case()
def shape_branch(x):
    if x.shape[0] > 3:
        return x * 2
    return x * 3
@case()
def len_loop(x):
    out = x.sum()
    for i in range(len(x)):
        out = out + x[i].sum() * i
    return out
@case()
def iterate_tensor(x):
    return [r * 2 for r in x]
@case()
def indexing(x): return x[0], x[:, 1], x[1:], x[..., 0], x[None], x[-1, -1]
@case()
def index_assign(x):
    y = x.clone()
    y[0] = 5
    y[:, 1] = y[:, 0]
    return y
@case()
def inplace(x):
    y = x.clone()
    y += 1
    y.mul_(2)
    return y
@case()
def inplace_input(x):
    x += 1
    x.mul_(3)
    return x
@case()
def inplace_view(x):
    v = x[0]
    v.add_(10)
    return x, v
@case()
def to_dtype(x): return x.to(taper.float64), x.double().float(), x.long()
@case()
def creation(x): return taper.ones(2, 2) + x.sum(), taper.zeros_like(x), taper.arange(3), taper.full((2,), 7.0)
@case()
def tensor_literal(x): return x + taper.tensor(2.0), taper.tensor([1.0, 2.0]) * 2
@case()
def cat_stack(x): return taper.cat([x, x]), taper.stack([x, x + 1], dim=1)
@case()
def split_max(x):
    v, i = x.max(dim=0)
    a, b = x.chunk(2, dim=1) if x.shape[1] == 2 else (x, x)
    return v, i, a, b
@case()
def named_result(x): return x.max(dim=1).values, x.sort(dim=0).indices
@case()
def augmented(x):
    a = 1
    a += 2; a -= 1; a *= 5; a //= 3; a **= 2; a %= 7; a <<= 2; a >>= 1; a |= 8; a &= 12; a ^= 5
    return x + a
@case()
def matmul(x): return x @ x.t(), taper.mm(x.t(), x)
@case()
def functional(x): return F.relu(x - 1), F.softmax(x, dim=-1), taper.where(x > 1, x, -x)

@case()
def random_ops(x):
    taper.manual_seed(3)
    return F.dropout(x, 0.5), taper.rand(3), F.dropout(x * 2, 0.2), taper.randn_like(x)
@case()
def nan_inf(x): return x * float("nan"), x / 0, taper.where(x > 1, float("inf"), x)

@case()
def sync_ops(x): return x + 1 if taper.equal(x, x * 2) else x - 1, taper.allclose(x, x + 1e-9), x.equal(x)
@case()
def dynamic_output(x): return (x > 1).nonzero(), x[x > 1], (x > 0.5).nonzero().shape[0], taper.masked_select(x, x > 0.3), x[x > 1].shape[0] + 1, x[x > 0.5] * 2

# ---- control flow
@case()
def const_branch(x, flag=True):
    return x + 1 if flag else x - 1
@case()
def data_branch(x):
    if x.sum() > 5:
        y = x * 2
    else:
        y = x * 3
    return y + 1
@case()
def data_branch_other(x):
    if x.sum() < 0:
        return x - 1
    elif x.mean() > 100:
        return x
    return x + 1
@case()
def while_const(x):
    i = 0
    while i < 3:
        x = x + i
        i += 1
    return x
@case()
def while_data(x):
    while x.sum() < 50:
        x = x * 2
    return x
@case()
def for_break(x):
    for i in range(10):
        if i == 2: continue
        if i == 5: break
        x = x + i
    else:
        x = x * 100
    return x
@case()
def for_else(x):
    for i in (1, 2):
        x = x * i
    else:
        x = x + 100
    return x
@case()
def nested_loops(x):
    for i in range(3):
        for j in range(i):
            x = x + i * j
    return x
@case()
def bool_ops(x):
    a = x.dim() == 2 and x.shape[1] or 7
    b = None or 3
    c = 0 and 5
    return x * a + b + c
@case()
def ternary_chain(x):
    n = x.dim()
    return x * (1 if n == 1 else 2 if n == 2 else 3)
@case()
def chained_compare(x):
    return x + (1 if 0 < x.dim() <= 2 < 5 else 2)
@case()
def walrus(x):
    if (n := x.dim()) > 1:
        x = x + n
    return x, n
@case()
def assert_ok(x):
    assert x.dim() == 2, "two dimensions"
    return x + 1
@case()
def item_use(x):
    v = x.sum().item()
    return x * v, v
@case()
def loop_item(x):
    t = 0
    for i in range(2):
        y = x * i + 1
        t = t + y.sum().item()
    return y, t
@case()
def match_stmt(x):
    r = []
    for v in (1, "a", [1, 2], {"k": 5}, (3, 4, 5), None, Point(1, 2)):
        match v:
            case 1: r.append("one")
            case str() as s: r.append(s)
            case [a, b]: r.append(a + b)
            case {"k": k}: r.append(k)
            case [first, *rest]: r.append((first, rest))
            case None: r.append("none")
            case Point(a=q, b=w): r.append((q, w))
    return x + 1, r

# ---- functions
def helper(x, y=2, *args, k=3, **kw): return x * y + k + sum(args) + kw.get("z", 0)
@case()
def call_kinds(x): return helper(x), helper(x, 3), helper(x, 3, 4, 5, k=1, z=2), helper(x, *[1, 2], **{"k": 4})
@case()
def closure_read(x):
    s = 3
    def g(y): return y * s
    return g(x) + g(x + 1)
@case()
def closure_write(x):
    n = 0
    def bump():
        nonlocal n
        n += 1
        return n
    bump(); bump()
    return x + n
@case()
def lambdas(x): return (lambda a, b=2: a * b)(x), [f(x) for f in (lambda t: t + 1, lambda t: t - 1)]
@case()
def returned_closure(x):
    k = 5
    y = x * 2
    def g(z): return z + k + y
    return g(x), g
@case()
def default_tensor(x, s=G_TENSOR.sum()): return x + s
@case()
def recursion(x): return rec(x, 4)
def rec(x, n): return x if n == 0 else rec(x + n, n - 1)
@case()
def decorated(x): return deco_fn(x)
def twice(f):
    @functools.wraps(f)
    def w(*a, **k): return f(f(*a, **k))
    return w
@twice
def deco_fn(x): return x * 2 + 1
@case()
def partials(x):
    p = functools.partial(helper, y=4)
    q = functools.partial(taper.add, alpha=2)
    return p(x), p(x, k=1), q(x, x)
@case()
def star_args(x): return star(x, 1, 2, a=3)
def star(x, *a, **k): return x + a[0] + len(a) + k["a"]
@case()
def kwonly(x): return ko(x, b=2)
def ko(x, *, a=1, b): return x * a + b
@case()
def posonly(x): return po(x, 2)
def po(x, y, /, z=1): return x + y + z
@functools.lru_cache(None)
def cached(n): return n * 2
@case()
def lru(x): return x + cached(3)
@case()
def global_read(x): return x * G_SCALE + G_LIST[1] + G_TENSOR.sum()
@case()
def inner_break(x): return breaks_inside(x + 1) * 2
def breaks_inside(x):
    if x.sum() > 0:
        return x + 1
    return x - 1
@case()
def inner_break_twice(x):
    a = breaks_inside(x)
    b = breaks_inside(a)
    return a + b

# ---- containers
@case()
def lists(x):
    l = [1, x, 3]
    l.append(x + 1); l.extend([4, 5]); l.insert(0, "a"); l.pop(); l[1] = 7; l.reverse(); del l[0]
    return l, len(l), l[1:3], 7 in l[-1:], l.index(3), l.count(3)
@case()
def list_ops(x): return [1] + [2, x], [0] * 3, [1, 2] == [1, 2], [3, 1, 2] < [4], sorted([3, 1, 2]), sorted([1, 2, 3], reverse=True, key=lambda v: -v)
@case()
def tuples(x):
    t = (1, x, 2)
    a, *b = t
    *c, d = t
    (e, f), g = (1, 2), x
    return a, b, c, d, e + f, g, t + (5,), t * 2, t.index(1)
@case()
def dicts(x):
    d = {"a": x, "b": 2}
    d["c"] = x + 1; d.update({"e": 1}); d.setdefault("f", 9); d.pop("b")
    return d, list(d), list(d.values()), list(d.items()), "a" in d, d.get("zz", 3), len(d), {**d, "q": 1}
@case()
def dict_loop(x):
    d = {"a": 1, "b": 2}
    for k, v in d.items():
        x = x + v
    for k in d:
        x = x * len(k)
    return x
@case()
def sets(x):
    s = {1, 2, 3}
    s.add(4); s.discard(1)
    return x + len(s), 2 in s, s | {9}, s & {2}, s - {2}, frozenset([1, 2])
@case()
def comprehensions(x):
    return [x * i for i in range(3) if i != 1], {i: i * i for i in range(3)}, {i % 2 for i in range(5)}, sum(i for i in range(4)), tuple(x + i for i in (1, 2))
@case()
def nested_comp(x): return [[i * j for j in range(i)] for i in range(4)], x + 1
@case()
def comp_closure(x):
    k = 3
    return [x * k + i for i in range(2)]
@case()
def generators(x):
    def gen(n):
        for i in range(n):
            yield x * i
        return 5
    def outer():
        r = yield from gen(2)
        yield r
    return list(gen(3)), list(outer()), next(gen(1)), max(i for i in (1, 5, 2))
@case()
def ordered(x):
    d = collections.OrderedDict(a=1)
    d["b"] = x
    d.move_to_end("a")
    return d
@case()
def defaults(x):
    d = collections.defaultdict(list)
    d["a"].append(x); d["b"].append(1)
    return dict(d)
@case()
def deques(x):
    d = collections.deque([1, 2], maxlen=3)
    d.append(x); d.appendleft(0)
    return list(d), len(d)
Pt = collections.namedtuple("Pt", "a b")
@case()
def named(x):
    p = Pt(x, 2)
    q = p._replace(b=3)
    return p.a + p.b, p[1], q, q._asdict()
@case()
def zips(x): return [a + b for a, b in zip([1, 2], (x, x * 2))], list(enumerate("ab", 1)), list(reversed([1, 2])), list(map(lambda v: v * 2, [1, x])), list(filter(None, [0, 1, 2]))
@case()
def itools(x): return list(itertools.chain([1], (2,))), list(itertools.product([1, 2], repeat=2)), list(itertools.islice(itertools.count(3), 2)), x + 1
@case()
def builtins_(x): return max(1, 5), min([4, 2]), sum([1, 2], 3), abs(-3), any([0, 1]), all([1, 0]), divmod(7, 2), pow(2, 3), round(2.6), int("3"), float(2), str(5), repr("a"), bool([]), isinstance(x, taper.Tensor), callable(len), type(3) is int, hasattr(x, "shape"), getattr(x, "nope", 4), x + 1
@case()
def maths(x): return x * math.sqrt(2.0) + math.pi, math.floor(2.5), operator.add(1, 2), operator.mul(x, 2), operator.itemgetter(1)([1, 2])
@case()
def strings(x):
    n = x.dim()
    s = f"{n}-{n:>3}-{'a'!r}" + "b".upper() + ",".join(["a", "b"]) + "%d" % n + "{}".format(n)
    return x + len(s), s
@case()
def slices(x):
    s = slice(0, 2)
    return x[s], [1, 2, 3][s], s
@case()
def ranges(x): return list(range(5, 0, -2)), 3 in range(5), len(range(4)), x + range(3)[1]
@case()
def unpack_tensor(x):
    a, b = x[0], x[1]
    c, *d = x
    return a + b, c, d
@case()
def del_local(x):
    y = x + 1
    z = y * 2
    del y
    return z
@case()
def del_unbound(x):
    y = x + 1
    del y
    return y

# ---- objects
class Obj:
    scale = 2
    def __init__(self, v): self.v = v; self.n = 0
    def mul(self, x): self.n += 1; return x * self.v * self.scale
    @property
    def twice(self): return self.v * 2
    @staticmethod
    def st(x): return x + 1
    @classmethod
    def cl(cls, x): return x * cls.scale
    def __call__(self, x): return x + self.v
    def __getitem__(self, i): return self.v + i
    def __len__(self): return 3
    def __contains__(self, o): return o == self.v
    def __iter__(self): return iter([self.v, 1])
    def __eq__(self, o): return isinstance(o, Obj) and o.v == self.v
    def __add__(self, o): return Obj(self.v + (o.v if isinstance(o, Obj) else o))
    def __radd__(self, o): return Obj(o + self.v)
    def __neg__(self): return Obj(-self.v)
    def __bool__(self): return self.v > 0
    def __hash__(self): return 1
class Sub(Obj):
    def __init__(self, v): super().__init__(v + 1); self.extra = 1
    def mul(self, x): return super().mul(x) + self.extra
@case(lambda: (X(3, 2), Obj(3)), lambda: (X(4, 2), Obj(3)))
def objects(x, o): return o.mul(x), o.twice, o.st(x), o.cl(x), Obj.st(x), o(x), o[1], len(o), 3 in o, list(o), o.n
@case(lambda: (X(3, 2), Obj(3)), lambda: (X(3, 2), Obj(4)))
def object_ops(x, o): return o == Obj(3), (o + 1).v, (o + o).v, (-o).v, (2 + o).v, 1 if o else 0, o != Obj(4), x + o.v
@case(lambda: (X(3, 2), Obj(3)))
def object_write(x, o):
    o.v = x + 1
    o.new = [1, 2]
    o.n += 5
    del o.n
    return o.v * 2
@case()
def construct(x):
    o = Sub(2)
    return o.mul(x), o.v, o.extra, o
@case()
def construct_tensor(x):
    o = Obj(x + 1)
    return o, o.v * 2
@dataclasses.dataclass
class Point:
    a: int
    b: object = 2
@case(lambda: (X(3, 2), Point(1, 2)))
def dataclass_use(x, p):
    q = Point(p.a + 1, x)
    p.b = 7
    return q.a + p.b, q, p == Point(1, 7)
class Color(enum.Enum):
    RED = 1
    BLUE = 2
@case(lambda: (X(3, 2), Color.RED), lambda: (X(3, 2), Color.BLUE))
def enums(x, c): return x * c.value if c is Color.RED else x + 1, c == Color.BLUE, c.name
class Lazyish:
    def __init__(self): self.d = {"a": 1}
    def __getattr__(self, n):
        if n in self.__dict__.get("d", {}): return self.d[n]
        raise AttributeError(n)
@case(lambda: (X(3, 2), Lazyish()))
def getattr_hook(x, o): return x + o.a, hasattr(o, "zz"), getattr(o, "q", 3)
class Slots:
    __slots__ = ("a", "b")
    def __init__(self): self.a = 1
    def __eq__(self, o): return (self.a, getattr(self, 'b', 0)) == (o.a, getattr(o, 'b', 0))
@case(lambda: (X(3, 2), Slots()))
def slots(x, o):
    o.b = o.a + 1
    s = Slots()
    return x + o.b, s.a
class SetHook:
    def __setattr__(self, n, v): object.__setattr__(self, n, v * 2)
@case(lambda: (X(3, 2), SetHook()))
def setattr_hook(x, o):
    o.a = 3
    o.t = x
    return x + o.a, o.t
@case(lambda: (X(3, 2), Obj(3).mul))
def bound_method(x, f): return f(x)
@case(lambda: (X(3, 2), lambda t: t * 2), lambda: (X(3, 2), lambda t: t * 3))
def function_arg(x, f): return f(x) + 1
@case(lambda: (X(3, 2), functools.partial(helper, y=5)))
def partial_arg(x, f): return f(x)
@case(lambda: (X(3, 2), float))
def class_arg(x, c): return x + c(2)

# ---- side effects on arguments
@case(lambda: (X(3, 2), [1, 2]), lambda: (X(3, 2), [1, 2, 3]))
def mutate_list(x, l):
    l.append(x + 1)
    l[0] = 5
    return len(l)
@case(lambda: (X(3, 2), {"a": 1}), lambda: (X(3, 2), {"b": 1}))
def mutate_dict(x, d):
    d["n"] = x * 2
    d["a"] = d.get("a", 0) + 1
    return d["n"] + 1
@case(lambda: (X(3, 2), {"a": 1, "b": 2}))
def mutate_dict_order(x, d):
    v = d.pop("a")
    d["a"] = v + 1
    return x + v
@case(lambda: (X(3, 2), {1, 2}))
def mutate_set(x, s):
    s.add(3)
    s.remove(1)
    return x + len(s)
@case(lambda: (X(3, 2), [[1], [2]]))
def mutate_nested(x, l):
    l[0].append(x)
    l[1] = l[0]
    return x + 1
@case(lambda: (X(3, 2), collections.deque([1])))
def mutate_deque(x, d):
    d.append(2)
    return x + len(d)
@case(lambda: (lambda l: (X(3, 2), l, l))([1]), lambda: (X(3, 2), [1], [1]))
def aliased_lists(x, a, b):
    a.append(2)
    return x + len(b)
@case(lambda: (lambda t: (t, t))(X(3)), lambda: (X(3), X(3)))
def aliased_tensors(a, b):
    a.add_(1)
    return a + b
@case(lambda: ([X(2), X(3)],), lambda: ([X(2)],))
def list_of_tensors(l): return [t * 2 for t in l], l[0].sum()
@case(lambda: ({"a": X(2), "b": {"c": X(3)}},))
def dict_of_tensors(d): return d["a"] + 1, d["b"]["c"] * 2
@case(lambda: ((X(2), (X(3), 5)),))
def tuple_args(t): return t[0] + t[1][1], t[1][0]
@case(lambda: (X(3, 2), None), lambda: (X(3, 2), X(2)))
def optional(x, m): return x if m is None else x + m
@case(lambda: (X(3, 2), 2), lambda: (X(3, 2), 3), lambda: (X(3, 2), 4), lambda: (X(3, 2), -1))
def int_arg(x, n): return x * n + (n + 1) // 2
@case(lambda: (X(3, 2), 2), lambda: (X(3, 2), 3), lambda: (X(3, 2), 4))
def int_loop(x, n):
    for i in range(n): x = x + i
    return x
@case(lambda: (X(3, 2), 2.5), lambda: (X(3, 2), 3.5), lambda: (X(3, 2), float("nan")))
def float_arg(x, c): return x + c
@case(lambda: (X(3, 2), "a"), lambda: (X(3, 2), "b"))
def str_arg(x, s): return x + 1 if s == "a" else x - 1
@case(lambda: (X(3, 2), True), lambda: (X(3, 2), False))
def bool_arg(x, b): return x + 1 if b else x
@case(lambda: (X(3, 2), taper.float64), lambda: (X(3, 2), taper.int32))
def dtype_arg(x, d): return x.to(d)

@case(lambda: (lambda t: (t, {t: 1}))(X(2)), lambda: (lambda t: (t, {t: 1}))(X(3)))
def tensor_keys(x, d):
    d[x] = d[x] + 4
    k = x + 1
    d[k] = k * 2
    return len(d), d[x], d[k], x in d

# ---- exceptions
@case()
def raise_plain(x):
    y = x + 1
    raise ValueError("bad %d" % 3)
@case()
def try_except(x):
    try:
        y = x + 1
        raise KeyError("k")
    except KeyError as e:
        y = y * 2
        s = str(e)
    return y, s
@case()
def try_finally(x):
    l = []
    try:
        y = x + 1
        l.append(1)
    finally:
        l.append(2)
    return y, l
@case()
def finally_raises(x):
    l = []
    try:
        try:
            raise ValueError("a")
        finally:
            l.append(x + 1)
    except ValueError as e:
        l.append(str(e))
    return l
@case()
def except_break(x):
    try:
        raise ValueError("q")
    except ValueError as e:
        y = x + 1
        if y.sum() > 0:
            y = y * 2
        return y, str(e)
@case()
def nested_try(x):
    out = []
    for k in (0, 1, 2):
        try:
            try:
                if k == 0: raise KeyError(1)
                if k == 1: raise ValueError(2)
                out.append("ok")
            except KeyError:
                out.append("key")
                raise RuntimeError("again")
        except (ValueError, RuntimeError) as e:
            out.append(type(e).__name__)
        else:
            out.append("else")
    return out, x + 1
@case()
def raised_inside(x):
    try:
        return raiser(x)
    except RuntimeError as e:
        return x + 2, str(e)
def raiser(x):
    y = x + 1
    raise RuntimeError("inner")
@case()
def index_error(x):
    try:
        return [1, 2][5]
    except IndexError as e:
        return x + 1, str(e)
@case()
def key_error(x): return x + {"a": 1}["b"]
@case()
def attr_error(x): return x.nothing_here
@case()
def type_error(x): return x + "a"
@case()
def shape_error(x): return x + taper.ones(7, 7)
@case()
def zero_div(x): return x + 1 // 0
@case()
def wrong_args(x): return helper()
@case()
def raise_from(x):
    try:
        raise KeyError("a")
    except KeyError as e:
        raise ValueError("b") from e
@case()
def reraise(x):
    y = x * 2
    try:
        raise KeyError("a")
    except KeyError:
        raise
@case()
def assert_fail(x):
    assert x.dim() == 3, f"dim {x.dim()}"
class MyErr(Exception):
    def __init__(self, a): super().__init__(f"my {a}"); self.a = a
@case()
def own_exception(x):
    try:
        raise MyErr(4)
    except MyErr as e:
        return x + e.a, str(e)
@case()
def unbound(x):
    if x.dim() == 5:
        q = 1
    return x + q
@case()
def name_error(x): return x + not_defined_anywhere

# ---- with
class Ctx:
    log = []
    def __init__(self, swallow=False): self.swallow = swallow; self.n = 0
    def __enter__(self): self.n += 1; return self
    def __exit__(self, t, v, tb): self.n += 10; self.t = t.__name__ if t else None; return self.swallow
@case()
def with_ctx(x):
    c = Ctx()
    with c as d:
        y = x + d.n
    return y, c.n
@case()
def with_swallow(x):
    with Ctx(True) as c:
        y = x + 1
        raise ValueError("gone")
    return y, c.n, c.t
@case()
def with_raise(x):
    c = Ctx()
    try:
        with c:
            raise ValueError("v")
    except ValueError as e:
        return x + c.n, str(e)
@case()
def with_break(x):
    c = Ctx()
    with c:
        y = x + 1
        if y.sum() > 0:
            y = y * 2
        y = y + 3
    return y, c.n
@case(lambda: (X(3, 2), Ctx()))
def with_arg(x, c):
    with c, Ctx() as e:
        y = x * c.n + e.n
    return y
@contextlib.contextmanager
def cm(v):
    yield v * 2
@case()
def with_contextmanager(x):
    with cm(3) as v:
        y = x * v
    return y
@case()
def with_no_grad(x):
    with taper.no_grad():
        y = x * 2
    return y + 1, taper.is_grad_enabled()
@case(lambda: (X(3, 2).requires_grad_(),), lambda: (X(4, 2),))
def grad_modes(x):
    a = x * 2
    with taper.no_grad():
        b = x * 2
        with taper.enable_grad():
            c = x * 3
    return a, b, c, a.requires_grad, b.requires_grad, c.requires_grad
@case(lambda: (X(3, 2).requires_grad_(),))
def no_grad_break(x):
    with taper.no_grad():
        y = x * 2
        if y.sum() > 0:
            z = y + x
    return z, z.requires_grad, taper.is_grad_enabled()
@case(lambda: (X(3, 2).requires_grad_(),))
def decorated_no_grad(x): return ng(x), x * 2
@taper.no_grad()
def ng(x): return x * 2

# ---- printing and friends
@case()
def prints(x):
    y = x + 1
    print("", end="")
    return y * 2
@case()
def prints_in_loop(x):
    for i in range(3):
        x = x + 1
        print("", end="")
    return x
@case()
def manual_break(x):
    y = x + 1
    taper._dynamo.graph_break()
    return y * 2
@case()
def tolist_use(x):
    l = (x + 1).tolist()
    return l, x * 2
@case()
def int_of_tensor(x): return int(x.sum()) + 1, float(x[0, 0]), x + 1
@case()
def global_write(x):
    global G_COUNTER
    G_COUNTER = 5
    y = x + G_COUNTER
    return y
@case()
def import_inside(x):
    import math as m
    from math import floor
    return x * m.pi + floor(2.5)
@case()
def class_inside(x):
    class A:
        v = 2
    return x * A.v
@case()
def generator_alive(x):
    g = (x * i for i in range(3))
    a = next(g)
    if a.sum() >= 0:
        a = a + 1
    return a, list(g)
@case()
def iterator_alive(x):
    it = iter([1, 2, 3])
    a = next(it)
    if x.sum() > 0:
        x = x + a
    return x, list(it)
@case()
def zip_alive(x):
    out = []
    for a, b in zip([1, 2, 3], [x, x + 1, x + 2]):
        if b.sum() > 0:
            out.append(b * a)
    return out
@case()
def enumerate_alive(x):
    for i, v in enumerate([x, x * 2]):
        if v.sum() > i:
            x = x + v
    return x
@case()
def locals_use(x):
    y = x + 1
    return sorted(locals())
@case()
def is_checks(x):
    a = [1]
    b = a
    return a is b, a is not [1], x is x, None is None
@case(lambda: (X(3, 2), [1]), lambda: (X(3, 2), [2]))
def copy_things(x, l):
    import copy
    m = copy.copy(l)
    m.append(3)
    return m, l, x + 1
@case()
def type_calls(x): return type(x) is taper.Tensor, type([]) is list, isinstance(3, (int, str)), issubclass(bool, int), x + 1
@case()
def typing_cast(x):
    from typing import cast
    return cast(taper.Tensor, x) + 1
@case()
def string_methods(x): return "a,b".split(","), "abc".replace("a", "b"), "x".join(["1", "2"]), "abc".startswith("a"), x + 1
@case()
def bytes_and_complex(x): return b"ab" + b"c", (1 + 2j) * 2, x + 1
@case()
def reduce_(x): return functools.reduce(lambda a, b: a + b, [x, x * 2, x * 3]), functools.reduce(operator.add, [1, 2, 3])
@case()
def sort_key(x):
    l = [(2, "b"), (1, "a")]
    l.sort(key=lambda p: p[0])
    return l, min([3, 1, 2], key=lambda v: -v), max({"a": 1, "b": 5}.items(), key=lambda kv: kv[1]), x + 1
@case()
def dict_views(x):
    d = {"a": 1}
    k = d.keys()
    d["b"] = 2
    return list(k), x + len(d.items())


case.tests(globals())
