"""State in modules, control flow, patterns and the standard library."""
import bisect
import collections
import dataclasses
import decimal
import enum
import fractions
import heapq
import inspect
import itertools
import json
import math
import os
import re
import taper
import threading
import weakref
from taper import nn


def X(*s):
    return (taper.arange(1, 1 + math.prod(s), dtype=taper.float32) / 7).reshape(*s)


def p_deque_window(C):

    class W(nn.Module):

        def __init__(s):
            super().__init__()
            s.buf = collections.deque(maxlen=3)
            s.n = 0

        def forward(s, x):
            s.buf.append(x)
            s.n += 1
            return sum(s.buf) / len(s.buf)
    m = W()
    c = C(m)
    return ([c(X(2) * k) for k in range(6)], m.n, len(m.buf))


def p_ema(C):

    class E(nn.Module):

        def __init__(s):
            super().__init__()
            s.register_buffer('avg', taper.zeros(2))
            s.steps = 0
            s.hist = {}

        def forward(s, x):
            s.steps += 1
            s.avg.mul_(0.9).add_(x, alpha=0.1)
            s.hist[s.steps] = s.avg.clone()
            return x - s.avg
    m = E()
    c = C(m)
    return ([c(X(2) * k) for k in range(4)], m.avg, m.hist, m.steps)


def p_buffer_reassign(C):

    class E(nn.Module):

        def __init__(s):
            super().__init__()
            s.register_buffer('avg', taper.zeros(2))
            s.h = None

        def forward(s, x):
            s.avg = s.avg * 0.9 + x * 0.1
            s.h = x if s.h is None else s.h + x
            return s.avg + s.h
    m = E()
    c = C(m)
    return ([c(X(2) * k) for k in range(4)], m.avg, dict(m.named_buffers()), list(m.state_dict()))


def p_rnn_state(C):

    class R(nn.Module):

        def __init__(s):
            super().__init__()
            s.cell = nn.GRUCell(3, 4)
            s.h = None

        def reset(s):
            s.h = None

        def forward(s, x, reset=False):
            if reset:
                s.reset()
            s.h = s.cell(x, s.h)
            return s.h
    taper.manual_seed(1)
    m = R()
    c = C(m)
    with taper.no_grad():
        return [c(X(2, 3) * k, reset=k == 2) for k in range(5)]


def p_while_loop(C):

    def f(x, n):
        i = 0
        while True:
            i += 1
            if i > n:
                break
            if i % 2:
                continue
            x = x * 2
        else:
            x = x * 100
        return (x, i)
    c = C(f)
    return [c(X(2), n) for n in (3, 4, 5, 6, 3)]


def p_while_else_data(C):

    def f(x):
        n = 0
        while x.sum() < 50:
            x = x * 2
            n += 1
            if n > 20:
                break
        else:
            n = -n
        return (x, n)
    c = C(f)
    return (c(X(2)), c(X(3)), c(X(2) * 100))


def p_early_return_data(C):

    def f(x):
        for i in range(5):
            x = x + 1
            if x.mean() > 3:
                return (x, i)
        return (x, -1)
    c = C(f)
    return (c(X(2)), c(X(2) * -10), c(X(2) * 9))


def p_match(C):

    @dataclasses.dataclass
    class Pt:
        x: int
        y: int

    def f(t, v):
        match v:
            case Pt(x=0, y=yy):
                return t + yy
            case Pt(x=a, y=b) if a == b:
                return t * a
            case [a, *rest, b]:
                return (t * a + b, rest)
            case {'k': k, **o}:
                return (t * k, o)
            case str() as s:
                return (t, s.upper())
            case int() | float():
                return t * v
            case None:
                return t - 1
            case _:
                return 'other'
    c = C(f)
    return [c(X(2), v) for v in (Pt(0, 3), Pt(2, 2), Pt(1, 2), [1, 2, 3], (4, 5), {'k': 2, 'z': 1}, 'ab', 3, 2.5, None, {1}, True)]


def p_walrus_chain(C):

    def f(x, l):
        if (n := len(l)) > 2 and 0 < n < 10 and (not n == 5):
            return x * n
        y = [z for v in l if (z := (v * 2)) > 2]
        return (x + sum(y), y, 1 < n < 3 < 4)
    c = C(f)
    return (c(X(2), [1, 2, 3]), c(X(2), [1, 2]), c(X(2), []))


def p_comprehension_scope(C):

    def f(x):
        k = 2
        d = {i: {j: x * i * j for j in range(2)} for i in range(2)}
        s = {(i, j) for i in range(2) for j in range(2) if i != j}
        g = sum((v * k for v in range(3)))
        return (d, s, g, [[a for a in range(b)] for b in range(3)])
    c = C(f)
    return (c(X(2)), c(X(3)))


def p_del(C):

    def f(x, d):
        y = x + 1
        z = y * 2
        del y
        try:
            y
        except UnboundLocalError as e:
            s = type(e).__name__
        l = [1, 2, 3]
        del l[0]
        del d['a']
        return (z, s, l, d)
    c = C(f)
    return (c(X(2), {'a': 1, 'b': 2}), c(X(2), {'a': 1, 'c': 2}))


def p_heap_bisect(C):

    def f(x, l):
        h = list(l)
        heapq.heapify(h)
        a = heapq.heappop(h)
        heapq.heappush(h, 10)
        return (x * a, h, bisect.bisect_left(sorted(l), 2), heapq.nlargest(2, l))
    c = C(f)
    return (c(X(2), [3, 1, 2]), c(X(2), [5, 4]), c(X(2), [3, 1, 2]))


def p_re_json(C):

    def f(x, s):
        m = re.match('(\\w+)\\.(\\d+)', s)
        return (x * int(m.group(2)) if m else x, json.dumps({'a': 1}), re.sub('a', 'b', s))
    c = C(f)
    return (c(X(2), 'lay.3'), c(X(2), 'none'), c(X(2), 'lay.4'))


def p_fraction_decimal(C):

    def f(x, q):
        return (x * float(q), q + 1, q * 2, q == 1, str(q))
    c = C(f)
    return (c(X(2), fractions.Fraction(1, 3)), c(X(2), decimal.Decimal('2.5')), c(X(2), fractions.Fraction(2, 3)), c(X(2), 3), c(X(2), 2 + 0j) if False else 0)


def p_int_subclass_arg(C):

    class I(int):

        def tw(s):
            return s * 2

    class S(str):
        pass

    class Fl(float):
        pass

    def f(x, i, s, fl):
        return (x * i.tw() + fl, s + 'q', type(i).__name__, i + 1, type(i + 1).__name__, isinstance(s, str), {s: 1}['a' if s == 'a' else s], fl * 2)
    c = C(f)
    return (c(X(2), I(3), S('a'), Fl(1.5)), c(X(2), I(4), S('b'), Fl(2.5)), c(X(2), I(3), S('a'), Fl(1.5)))


def p_user_hash(C):

    class K:

        def __init__(s, v):
            s.v = v

        def __hash__(s):
            return hash(s.v)

        def __eq__(s, o):
            return isinstance(o, K) and s.v == o.v

    def f(x, d, k):
        d[k] = d.get(k, 0) + 1
        s = {k, K(1)}
        return (x * d[k], len(d), len(s), K(1) in s, k in d)
    c = C(f)
    d = {K(1): 5}
    return ([c(X(2), d, K(v)) for v in (1, 2, 1, 3)], sorted(((k.v, v) for k, v in d.items())))


def p_bool_index_types(C):

    def f(x, m, i):
        return (x[m], x[i], x[..., 0], x[None], x[:, 1:], x[-1], x[[0, 1]], x[taper.tensor([1, 0])], x[i, 0])
    c = C(f)
    x = X(3, 2)
    return (c(x, taper.tensor([True, False, True]), 1), c(x, taper.tensor([True, True, True]), 0), c(x, taper.tensor([False, False, True]), -1))


def p_setitem_views(C):

    def f(x):
        y = x.clone()
        y[0] = 5
        y[:, 1] += 1
        z = y.view(-1)
        z[0] = 9
        y[y > 3] = 0
        y.t()[0].fill_(7)
        return (y, z)
    c = C(f)
    return (c(X(3, 2)), c(X(4, 2)))


def p_inplace_arg(C):

    def f(x, l):
        x += 1
        x.mul_(2)
        l[0] *= 3
        l[1] = l[0] + x
        return x
    c = C(f)
    x = X(2)
    l = [X(2), None]
    r = [c(x, l), c(x, l)]
    return (r, x, l, r[0] is x)


def p_out_identity(C):

    def f(x, y, l):
        return (x, [x, x], (y, l), l, x.view(-1), x.detach() is x)
    c = C(f)
    x = X(2)
    y = X(2)
    l = [1]
    a = c(x, y, l)
    b = c(x, y, l)
    return (a[0] is x, a[1][0] is x, a[1][0] is a[1][1], a[3] is l, a[2][1] is l, b[0] is x, a[4].data_ptr() == x.data_ptr(), a[5])


def p_grad_ctx(C):

    def f(x):
        a = taper.is_grad_enabled()
        with taper.no_grad():
            b = x * 2
            c1 = taper.is_grad_enabled()
        with taper.enable_grad():
            d = x * 3
        return (a, b, c1, d, b.requires_grad, d.requires_grad)
    c = C(f)
    x = X(2).requires_grad_()
    r = [c(x)]
    with taper.no_grad():
        r.append(c(x))
    r.append(c(X(2)))
    with taper.inference_mode():
        r.append(c(X(2)))
    return [[v.detach() if isinstance(v, taper.Tensor) else v for v in t] for t in r]


def p_grad_decorator(C):

    class M(nn.Module):

        def __init__(s):
            super().__init__()
            s.w = nn.Parameter(taper.ones(2))

        @taper.no_grad()
        def upd(s):
            s.w.mul_(1.5)

        def forward(s, x):
            s.upd()
            return (s.w * x).sum()
    m = M()
    c = C(m)
    r = []
    for _ in range(3):
        l = c(X(2))
        l.backward()
        r.append((l.item(), m.w.grad.clone()))
    return r


def p_dtype_change(C):

    def f(x):
        return (x.sum(), x.dtype, x * 2, x / 2)
    c = C(f)
    return [c(X(3).to(d)) for d in (taper.float32, taper.float64, taper.int64, taper.float32, taper.int32, taper.bool, taper.uint8)]


def p_scalar_types(C):

    def f(x, a):
        return (x * a, x + a, a * 2, type(a).__name__, x ** a)
    c = C(f)
    return [c(X(3), a) for a in (2, 2.0, True, 0, -1.5, 2, 1, float('inf'), False, 1.0, 0.0)]


def p_neg_zero_nan(C):

    def f(x, a):
        return (x * a, str(a), a == a, math.copysign(1, a))
    c = C(f)
    return [str(c(X(1), a)) for a in (0.0, -0.0, float('nan'), 0.0, -0.0)]


def p_big_int(C):

    def f(x, n):
        return (x + n % 7, n * n, n >> 3, n.bit_length(), hex(n), -n // 3)
    c = C(f)
    return [c(X(2), n) for n in (5, 2 ** 62, 2 ** 70, -2 ** 63, 2 ** 31, 5, 6, 7)]


def p_none_optional(C):

    def f(x, y=None, z=None):
        y = y or 3
        if z is not None and z > 1:
            x = x * z
        return x * y
    c = C(f)
    return (c(X(2)), c(X(2), 0), c(X(2), 2), c(X(2), None, 3), c(X(2), z=1), c(X(2), z=2.5))


def p_dynamic_sizes(C):

    def f(x):
        n = x.shape[0]
        m = n * 2 + 1
        if n > 5:
            return (x.repeat(2)[:m], m, 'big')
        if n % 2 == 0:
            return (x.view(2, -1), m)
        return (x[:n // 2], float(n), n ** 2, n / 2, f'{n}', max(n, 3), [0] * n, divmod(n, 3), list(range(n)), n == 3, -n, abs(-n), round(n / 2), n & 1)
    c = C(f)
    return [c(X(n)) for n in (3, 4, 5, 6, 7, 8, 9, 2, 1, 0, 3, 4, 13)]


def p_size_in_dict(C):
    cache = {}

    def f(x):
        n = x.shape[0]
        if n not in cache:
            cache[n] = taper.full((n,), float(len(cache)))
        return x + cache[n]
    c = C(f)
    r = [c(X(n)) for n in (3, 4, 5, 3, 4, 6, 5, 3)]
    return (r, sorted(cache))


def p_thread_state(C):
    loc = threading.local()
    loc.v = 3

    def f(x):
        return x * loc.v
    c = C(f)
    r = [c(X(2))]
    loc.v = 5
    r.append(c(X(2)))
    return r


def p_weakref(C):

    class A:
        k = 2
    a = A()
    w = weakref.ref(a)

    def f(x):
        o = w()
        return x * o.k if o is not None else x
    c = C(f)
    r = [c(X(2))]
    del a
    r.append(c(X(2)))
    return r


def p_itertools_alive(C):
    it = itertools.count(5)

    def f(x):
        return x * next(it)
    c = C(f)
    return ([c(X(2)) for _ in range(4)], next(it))


def p_gen_obj(C):

    def g():
        for i in range(10):
            yield i
    gen = g()

    def f(x):
        return x * next(gen)
    c = C(f)
    return ([c(X(2)) for _ in range(4)], next(gen))


def p_env_time(C):

    def f(x):
        return x * len(os.environ.get('TAPER_NOPE', 'ab'))
    c = C(f)
    r = [c(X(2))]
    os.environ['TAPER_NOPE'] = 'abcd'
    r.append(c(X(2)))
    del os.environ['TAPER_NOPE']
    return r


def p_inspect(C):

    def g(a, b=2, *, c=3):
        return a

    def f(x):
        return (x + len(inspect.signature(g).parameters), g.__name__, g.__code__.co_argcount, g.__defaults__)
    c = C(f)
    return (c(X(2)), c(X(2)))


def p_enum_flags(C):

    class M(enum.Enum):
        A = 'a'
        B = 'b'

    class I(enum.IntEnum):
        X = 1
        Y = 2

    class Fg(enum.Flag):
        P = 1
        Q = 2
    tab = {M.A: lambda x: x + 1, M.B: lambda x: x * 2}

    def f(x, m, i, fl):
        return (tab[m](x) * i, m.value, m.name, m is M.A, i == 1, fl | Fg.P, Fg.P in fl, f'{m}', f'{i}', str(i), repr(m), [e for e in M], M('a') is m, M['B'])
    c = C(f)
    return ([c(X(2), m, i, q) for m, i, q in ((M.A, I.X, Fg.P), (M.B, I.Y, Fg.Q), (M.A, I.Y, Fg.P | Fg.Q))][0][0], [str(c(X(2), m, i, q)) for m, i, q in ((M.A, I.X, Fg.P), (M.B, I.Y, Fg.Q), (M.A, I.Y, Fg.P | Fg.Q))])
