"""Caches, keys, texts and containers of the user's own classes."""
import collections
import contextlib
import dataclasses
import functools
import math
import taper
import types
from taper import nn


def X(*s):
    return (taper.arange(1, 1 + math.prod(s), dtype=taper.float32) / 7).reshape(*s)


def p_lru_side(C):
    calls = []

    @functools.lru_cache(maxsize=None)
    def sq(n):
        calls.append(n)
        return n * n

    def f(x, n):
        return x * sq(n) + sq(2)
    c = C(f)
    r = [c(X(2), n) for n in (2, 3, 2, 3, 4)]
    return (r, calls, sq.cache_info())


def p_lru_pure_info(C):

    @functools.lru_cache(maxsize=2)
    def sq(n):
        return n * n

    def f(x, n):
        return x * sq(n) + sq(2)
    c = C(f)
    r = [c(X(2), n) for n in (2, 3, 2, 3, 4)]
    return (r, sq.cache_info())


def p_lru_list(C):

    @functools.lru_cache
    def tab(n):
        return [n]

    def f(x, n):
        tab(n).append(x.shape[0])
        return x * len(tab(n))
    c = C(f)
    return ([c(X(2), n) for n in (1, 1, 2, 1)], tab(1), tab(2))


def p_lru_tensor(C):
    calls = []

    @functools.lru_cache
    def mask(n):
        calls.append(n)
        return taper.ones(n, n).tril()

    def f(x):
        return (x @ mask(x.shape[1]), mask(x.shape[1]) is mask(x.shape[1]))
    c = C(f)
    return ([c(X(2, 3)), c(X(2, 3)), c(X(2, 4)), c(X(3, 3))], calls)


def p_lru_method(C):

    class A:

        def __init__(s, k):
            s.k = k

        @functools.lru_cache
        def m(s, n):
            return s.k * n

    def f(x, a):
        return x * a.m(3) + a.m(3)
    c = C(f)
    a = A(2)
    b = A(5)
    return (c(X(2), a), c(X(2), b), c(X(2), a), A.m.cache_info().hits)


def p_lru_unhashable(C):

    @functools.lru_cache
    def g(l):
        return 1

    def f(x):
        try:
            return x * g([1])
        except TypeError as e:
            return str(e)
    c = C(f)
    return (c(X(2)), c(X(2)))


def p_lru_raises(C):
    n = []

    @functools.lru_cache
    def g(k):
        n.append(k)
        if k > 1:
            raise ValueError(k)
        return k

    def f(x, k):
        try:
            return x * g(k)
        except ValueError as e:
            return (x - 1, e.args)
    c = C(f)
    return ([c(X(2), k) for k in (1, 2, 2, 1)], n)


def p_lru_stale(C):
    K = 3

    @functools.lru_cache
    def g(n):
        return n * K

    def f(x):
        return x * g(2)
    c = C(f)
    r = [c(X(2))]
    K = 10
    r.append(c(X(2)))
    g.cache_clear()
    r.append(c(X(2)))
    r.append(c(X(2)))
    return r


def p_cached_property(C):
    n = []

    class A:

        def __init__(s, k):
            s.k = k

        @functools.cached_property
        def big(s):
            n.append(s.k)
            return s.k * 10

    def f(x, a):
        return x * a.big + a.big
    c = C(f)
    a = A(2)
    b = A(3)
    r = [c(X(2), o) for o in (a, b, a)]
    del a.big
    a.k = 7
    r.append(c(X(2), a))
    return (r, n, vars(a))


def p_zip_modulelist(C):

    class M(nn.Module):

        def __init__(s):
            super().__init__()
            s.a = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
            s.b = nn.ModuleDict({'x': nn.ReLU(), 'y': nn.Tanh()})
            s.p = nn.ParameterList([nn.Parameter(taper.ones(2) * i) for i in range(3)])

        def forward(s, x):
            for i, (l, p) in enumerate(zip(s.a, s.p)):
                x = l(x) * p + i
            for (k, m), j in zip(s.b.items(), range(2)):
                x = m(x) + j
            for l in reversed(s.a):
                x = l(x)
            for a, b in zip(s.a, s.a[1:]):
                x = a(b(x))
            return (x, len(s.a), len(s.p), list(s.b), [type(l).__name__ for l in s.a.children()], sum((p.sum() for p in s.parameters())), dict(s.named_parameters()).keys().__len__(), [n for n, _ in s.named_modules()])
    taper.manual_seed(0)
    m = M()
    c = C(m)
    return (c(X(3, 2)), c(X(4, 2)), c(X(3, 2)))


def p_str_format_user(C):

    class P:

        def __init__(s, v):
            s.v = v
            s.d = {'k': [1, v]}

        def __str__(s):
            return f'P{s.v}'

        def __repr__(s):
            return f'<P {s.v!r}>'

        def __format__(s, spec):
            return f'[{spec}:{s.v}]'

        def __getitem__(s, i):
            return f'item{i}'

    def f(x, p):
        return (x + 1, '{} {!r} {!s:>5} {:xx} {k:{w}} {{}}'.format(p, p, p, p, k=p, w=4), '{0.v} {0.d[k][1]} {0[3]} {0[a]}'.format(p), '%s %r %a %5s|%-5s|%.2s %d%%' % (p, p, p, p, p, p, 3), '%(a)s %(b)03d' % {'a': p, 'b': 7}, '{:5.2f}|{:<4}|{:,}'.format(1.5, p.v, 10000), '{a} {b}'.format_map({'a': p, 'b': 2}), '%s' % p, '%s %s' % (p, (1, p)), f'{p!s:>6}{p!r}{p!a}', '{0} {1} {0}'.format('a', p))
    c = C(f)
    return (c(X(2), P(1)), c(X(2), P('q')), c(X(2), P(1)))


def p_str_format_errors(C):

    class P:
        pass

    def f(x, p):
        out = []
        for g in (lambda: '{} {}'.format(p), lambda: '%d' % p, lambda: '%s %s' % p, lambda: '{x}'.format(p), lambda: '{:d}'.format(p), lambda: '%q' % (p,), lambda: '{!z}'.format(p), lambda: '{'.format(p), lambda: '%(a)s' % (p,), lambda: '%s' % (p, p)):
            try:
                g()
                out.append('ok')
            except Exception as e:
                out.append((type(e).__name__, str(e)[:40]))
        return (out, x + 1)
    c = C(f)
    return (c(X(2), P()), c(X(2), P()))


def p_star_mapping(C):

    class D(dict):

        def keys(s):
            return ['zz']

    class It(dict):

        def __iter__(s):
            return iter(['a'])

        def keys(s):
            return ['a']

    class Mp:

        def keys(s):
            return ['p', 'q']

        def __getitem__(s, k):
            return k * 2

    def g(**k):
        return k

    def f(x, d, i, m):
        try:
            g(a=1, **i)
        except TypeError as e:
            s = str(e)
        return (x + 1, g(**d), g(**i), g(**m), {**d, 'x': 1}, {**m}, g(**collections.OrderedDict(b=1, a=2)), g(**collections.defaultdict(int, q=1)), s, dict(m), dict(d), dict(i))
    c = C(f)
    return (c(X(2), D(a=1), It(a=5, b=6), Mp()), c(X(2), D(a=2), It(a=7), Mp()))


def p_deque_sub(C):

    class Q(collections.deque):

        def total(s):
            return sum(s)

    def f(x):
        q = Q([1, 2])
        q.append(x)
        q.note = 'n'
        if x.sum() > 0:
            x = x * 2
        q.append(3)
        p = Q([1, 2, 3], maxlen=2)
        if x.sum() > 1:
            p.append(9)
        return (q, p, x, type(q).__name__, q.note, p.maxlen)
    c = C(f)
    r = c(X(2))
    r2 = c(X(2))
    return [list(r[0]), list(r[1]), r[2:], list(r2[0])]


def p_deque_sub_arg(C):

    class Q(collections.deque):
        pass

    def f(x, q):
        q.append(x.shape[0])
        y = x + len(q)
        print(end='')
        q.appendleft(y.shape[0])
        return (y, q)
    c = C(f)
    q = Q([1], maxlen=4)
    r = [c(X(2), q)[0] for _ in range(4)]
    return (r, list(q))


def p_gen_throw3(C):

    def g():
        try:
            yield 1
        except ValueError as e:
            yield str(e)
        finally:
            pass

    def f(x):
        a = g()
        next(a)
        v = a.throw(ValueError, ValueError('m'), None)
        b = g()
        next(b)
        w = b.throw(ValueError('n'))
        return (x + 1, v, w)
    c = C(f)
    return (c(X(2)), c(X(2)))


def p_exitstack(C):
    log = []

    class W:

        def __init__(s, n):
            s.n = n

        def __enter__(s):
            log.append('+' + s.n)
            return s

        def __exit__(s, *a):
            log.append('-' + s.n)
            return False

    def f(x):
        with contextlib.ExitStack() as st:
            for n in 'ab':
                st.enter_context(W(n))
            st.callback(log.append, 'cb')
            x = x * 2
        return x
    c = C(f)
    return (c(X(2)), c(X(2)), log)


def p_user_key_more(C):

    @dataclasses.dataclass(frozen=True)
    class K:
        a: int
        b: str = 'q'

    class E:

        def __init__(s, v):
            s.v = v

        def __eq__(s, o):
            return s.v == o.v

        def __hash__(s):
            return 7

    def f(x, d, s, k):
        m = {K(1): x, K(2): x * 2}
        n = {E(1), E(2), E(1)}
        d[k] = d.get(k, 0) + 1
        s.add(k)
        t = {k: v for k, v in d.items()}
        return (m[K(1)], len(n), E(2) in n, d[k], k in s, K(9) in d, len(t), d.pop(K(5), None), d.setdefault(K(1, 'z'), 3), [kk.a for kk in d], (K(1), 2) in {(K(1), 2): 1}, sorted((kk.a for kk in s)), frozenset([K(1), K(1)]) == {K(1)}, s | {K(3)} == s, s - {k})
    c = C(f)
    d = {K(1): 0}
    s = {K(1)}
    r = []
    for k in (1, 2, 1, 3):
        o = c(X(2), d, s, K(k))
        r.append((o[0], o[1:-1], sorted((v.a for v in o[-1]))))
    return (r, {k.a: v for k, v in d.items()}, sorted((k.a for k in s)))


def p_key_changed(C):

    class K:

        def __init__(s, v):
            s.v = v

        def __eq__(s, o):
            return s.v == o.v

        def __hash__(s):
            return hash(s.v)

    def f(x, d, k):
        return x * d[k] if k in d else x
    c = C(f)
    k = K(1)
    d = {K(1): 5, K(2): 6}
    r = [c(X(2), d, k)]
    k.v = 2
    r.append(c(X(2), d, k))
    k.v = 3
    r.append(c(X(2), d, k))
    K.__eq__ = lambda s, o: False
    k.v = 1
    r.append(c(X(2), d, k))
    return r


def p_int_sub_more(C):

    class I(int):

        def __new__(c, v, n):
            o = super().__new__(c, v)
            o.name = n
            return o

        def __add__(s, o):
            return 100

    class S(str):

        def __eq__(s, o):
            return True
        __hash__ = str.__hash__

        def up(s):
            return s.upper() + '!'

    def f(x, i, s):
        i.cnt = getattr(i, 'cnt', 0) + 1
        return (x * i, i + 1, i * 2, i.name, s.up(), s == 'zz', s + 'a', len(s), i > 2, [1, 2, 3, 4, 5][i], s[0], i, s, {i: 1}, int(i), str(s), bool(i), f'{i}{s}', range(i), x[:i])
    c = C(f)
    a = I(3, 'n')
    r = [c(X(5), a, S('ab')), c(X(5), I(2, 'm'), S('ab')), c(X(5), a, S('cd'))]
    return ([tuple(map(str, t)) for t in r], a.cnt, r[0][11] is a)


def p_func_attrs(C):

    def g(x):
        return x * g.k
    g.k = 2

    def f(x):
        g.k += 1
        g.seen = True
        return g(x)
    c = C(f)
    r = [c(X(2)) for _ in range(3)]
    return (r, g.k, g.seen)


def p_methodtype(C):

    class A:
        pass

    def h(self, x):
        return x + self.k
    a = A()
    a.k = 3
    a.m = types.MethodType(h, a)

    def f(x, a):
        b = types.MethodType(h, a)
        return (b(x) + a.m(x), b.__self__ is a, b.__func__ is h)
    c = C(f)
    r = [c(X(2), a)]
    a.k = 5
    r.append(c(X(2), a))
    return r


def p_sym_methods(C):

    def f(x):
        n = x.shape[0]
        return (x + n.bit_length(), n.real, n.imag, n.numerator, n.conjugate(), n.to_bytes(2, 'big'), n.as_integer_ratio(), n.__add__(2), n.__class__ is int)
    c = C(f)
    return [c(X(n)) for n in (3, 4, 5, 6)]


def p_tensor_of_sym(C):

    def f(x):
        n = x.shape[0]
        return (taper.tensor(n), taper.tensor([n, n + 1]), taper.tensor(n / 2), taper.tensor([[n, 1.5]]), taper.as_tensor(n), x.new_tensor([n]), taper.tensor(n, dtype=taper.float32) * x)
    c = C(f)
    return [c(X(n)) for n in (3, 4, 5, 6)]
