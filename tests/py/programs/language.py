"""Odd corners of the language: finalizers, identity, namespaces, protocols, exception groups."""
import abc
import asyncio
import collections
import contextvars
import dataclasses
import functools
import math
import operator
import taper
import types
from typing import Protocol, runtime_checkable, NamedTuple, ClassVar


def X(*s):
    return (taper.arange(1, 1 + math.prod(s), dtype=taper.float32) / 7).reshape(*s)


def p_globals_write(C):

    def f(x):
        globals()['GW'] = globals().get('GW', 0) + 1
        return x * GW
    c = C(f)
    return ([c(X(2)) for _ in range(3)], GW)


def p_vars_write(C):

    class A:
        pass

    def f(x, a):
        vars(a)['k'] = vars(a).get('k', 0) + 1
        a.__dict__.update(z=a.k * 2)
        a.__dict__['l'] = [x]
        return x * a.k + a.z
    a = A()
    c = C(f)
    return ([c(X(2), a) for _ in range(3)], a.k, a.z, list(vars(a)))


def p_class_swap(C):

    class A:

        def f(s, x):
            return x + 1

    class B(A):

        def f(s, x):
            return x * 10

    def g(x, o, sw):
        y = o.f(x)
        if sw:
            o.__class__ = B
        return y + o.f(x)
    o = A()
    c = C(g)
    return ([c(X(2), o, s) for s in (False, True, False)], type(o).__name__)


def p_alias_lists(C):

    class A:
        pass

    def f(x, a, b):
        a.l.append(1)
        return (x * len(b.l), a.l is b.l)
    a = A()
    b = A()
    a.l = []
    b.l = []
    c = C(f)
    r = [c(X(2), a, b)]
    b.l = a.l
    r.append(c(X(2), a, b))
    r.append(c(X(2), a, a))
    b.l = [5]
    r.append(c(X(2), a, b))
    return (r, a.l, b.l)


def p_protocol(C):

    @runtime_checkable
    class HasF(Protocol):

        def f(self, x):
            ...

    class A:
        pass

    def g(x, o):
        return x + 1 if isinstance(o, HasF) else x - 1
    a = A()
    c = C(g)
    r = [c(X(2), a)]
    a.f = lambda x: x
    r.append(c(X(2), a))
    del a.f
    A.f = lambda s, x: x
    r.append(c(X(2), a))
    return r


def p_subclasshook(C):

    class S(abc.ABC):

        @classmethod
        def __subclasshook__(cls, o):
            return hasattr(o, 'quack') or NotImplemented

    class D:
        pass

    class E:
        quack = 1

    def f(x, o):
        return x * 2 if isinstance(o, S) else x
    c = C(f)
    r = [c(X(2), D()), c(X(2), E())]
    S.register(D)
    r.append(c(X(2), D()))
    return r


def p_contextvar(C):
    cv = contextvars.ContextVar('cv', default=2)

    def f(x):
        return x * cv.get()
    c = C(f)
    r = [c(X(2))]
    t = cv.set(5)
    r.append(c(X(2)))
    cv.reset(t)
    r.append(c(X(2)))
    return r


def p_finalizer(C):
    log = []

    class R:

        def __init__(s, n):
            s.n = n

        def __del__(s):
            log.append(s.n)

    def f(x, k):
        r = R(k)
        y = x * 2
        del r
        log.append('after')
        return y
    c = C(f)
    r = [c(X(2), k) for k in range(2)]
    return (r, log)


def p_user_containers(C):

    def f(x, d, l, c, m):
        d['z'] = x.shape[0]
        l.append(3)
        c['q'] += 2
        return (x + d['a'] + len(l) + c['q'], list(d), list(l), m['k'], c.most_common(1), sorted(m))
    c = C(f)
    d = collections.UserDict(a=1)
    l = collections.UserList([1])
    ct = collections.Counter(q=1)
    m = collections.ChainMap({'k': 1}, {'k': 2, 'j': 3})
    return ([c(X(2), d, l, ct, m) for _ in range(3)], dict(d), list(l), dict(ct))


def p_mappingproxy(C):
    base = {'a': 2}
    mp = types.MappingProxyType(base)
    ns = types.SimpleNamespace(a=1, b=[2])

    def f(x):
        ns.c = ns.a + mp['a']
        ns.b.append(1)
        return x * mp['a'] + ns.c + len(ns.b)
    c = C(f)
    r = [c(X(2))]
    base['a'] = 7
    r.append(c(X(2)))
    ns.a = 9
    r.append(c(X(2)))
    return (r, ns)


def p_namedtuple_cls(C):

    class P(NamedTuple):
        a: int
        b: float = 2.0

        def tot(self):
            return self.a + self.b

        @property
        def neg(self):
            return -self.a

        @classmethod
        def mk(cls, v):
            return cls(v, v)

    def f(x, p):
        q = p._replace(a=5)
        a, b = p
        return (x * p.tot() + p.neg, q, P.mk(2), p._asdict(), p._fields, a, b, p == P(1, 2.0), p < P(2), P._make([1, 2]), len(p), p[0], hash(P(1, 1)) == hash((1, 1)))
    c = C(f)
    return [c(X(2), P(v)) for v in (1, 3, 1)]


def p_dataclass_kinds(C):

    @dataclasses.dataclass
    class A:
        n: int
        tag: ClassVar[str] = 't'
        init: dataclasses.InitVar[int] = 3
        d: int = dataclasses.field(init=False)
        l: list = dataclasses.field(default_factory=list, repr=False, compare=False)

        def __post_init__(s, init):
            s.d = s.n * init

    @dataclasses.dataclass(unsafe_hash=True)
    class H:
        v: int

    def f(x, a):
        b = A(2, init=4)
        a.l.append(b.d)
        m = {H(1): 2}
        return (x * a.d + b.d, b == A(2, init=4), repr(A(1)), m[H(1)], dataclasses.astuple(H(3)), A.tag, dataclasses.is_dataclass(a), sorted((f.name for f in dataclasses.fields(A))))
    a = A(3)
    c = C(f)
    r = [c(X(2), a), c(X(2), a)]
    a.n = 5
    a.d = 50
    A.tag = 'u'
    r.append(c(X(2), a))
    return (r, a.l)


def p_is_ints(C):

    def f(x, a, b):
        return (x + 1, a is b, a == b, a is not None, a is a, type(a) is int)
    c = C(f)
    n = 1000
    return [c(X(2), n, n), c(X(2), 5, 5), c(X(2), 'a', 'a')]


def p_star_unpack_tensor(C):

    def f(x):
        a, *b = x
        (c, d), e = (x[:2], x[2])
        return (a, b, c, d, e, [*x], {**{'x': x[0]}}, max(x.shape), tuple(x))
    c = C(f)
    return (c(X(3, 2)), c(X(3, 4)))


def p_async(C):

    async def g(x):
        await asyncio.sleep(0)
        return x + 1

    def f(x):
        return asyncio.run(g(x * 2))
    c = C(f)
    return (c(X(2)), c(X(2)))


def p_inner_class(C):

    def f(x):

        class In:
            k = x.shape[0]

            def g(s):
                return x * s.k
        return (In().g(), In.__name__)
    c = C(f)
    return (c(X(2)), c(X(3)), c(X(2)))


def p_try_nested(C):

    def f(x, k):
        out = []
        for i in range(3):
            try:
                try:
                    if i == k:
                        raise KeyError(i)
                    out.append(i)
                except KeyError as e:
                    out.append(('k', e.args))
                    if i == 1:
                        raise RuntimeError('r') from e
                finally:
                    out.append('f')
            except RuntimeError as e:
                out.append((str(e), type(e.__cause__).__name__))
                continue
            else:
                out.append('e')
        return (x, out)
    c = C(f)
    return [c(X(2), k) for k in (0, 1, 2, 5, 1)]


def p_except_group(C):

    def f(x, k):
        try:
            if k:
                raise ExceptionGroup('g', [ValueError(1), TypeError('t')])
        except* ValueError as e:
            return_ = ('v', len(e.exceptions))
        except* TypeError as e:
            return_ = ('t',)
        else:
            return_ = 'none'
        return (x, return_)
    c = C(f)
    r = []
    for k in (0, 1, 0, 1):
        r.append(c(X(2), k))
    return r


def p_with_return_swallow(C):

    class W:

        def __enter__(s):
            return s

        def __exit__(s, *a):
            return True

    def f(x, k):
        with W():
            if k == 0:
                return x + 1
            if k == 1:
                raise ValueError
            x = x * 2
        return x - 1
    c = C(f)
    return [c(X(2), k) for k in (0, 1, 2, 0)]


def p_big_loop(C):

    def f(x):
        for i in range(200):
            x = x + i % 3 * 0.01
        return x
    c = C(f)
    return (c(X(2)), c(X(3)))


def p_mutual(C):

    def ev(n, x):
        return x if n == 0 else od(n - 1, x + 1)

    def od(n, x):
        return x * 2 if n == 0 else ev(n - 1, x - 0.5)
    c = C(ev)
    return (c(6, X(2)), c(7, X(2)), c(6, X(3)))


def p_operator_tools(C):
    ig = operator.itemgetter('a', 'b')
    ag = operator.attrgetter('p.q', 'r')
    mc = operator.methodcaller('mul', 3)

    class O:
        pass
    o = O()
    o.p = O()
    o.p.q = 2
    o.r = 3

    def f(x):
        return (ig({'a': x, 'b': 1}), ag(o), mc(x), operator.add(x, 1), functools.reduce(operator.or_, [1, 2, 4]), list(map(operator.neg, [1, 2])))
    c = C(f)
    r = [c(X(2))]
    o.p.q = 9
    r.append(c(X(2)))
    return r


def p_hash_seed_sets(C):

    def f(x, names):
        return ([x * len(n) for n in sorted(set(names))], len({*names}), 'a' in set(names))
    c = C(f)
    return (c(X(2), ['b', 'a', 'b']), c(X(2), ('q',)), c(X(2), ['b', 'a', 'b']))


def p_comp_cond(C):

    def f(x, l):
        return ([a if a > 1 else -a for a in l if a != 3], {k: v for k, v in zip('abc', l)}, {a % 2 for a in l}, any((a > 2 for a in l)), all(l), next((a for a in l if a > 100), None), x + sum(l))
    c = C(f)
    return (c(X(2), [1, 2, 3]), c(X(2), [0, 5]), c(X(2), []))
