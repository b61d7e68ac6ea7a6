"""Library functions, closures, instances and classes patched while they are in use."""
import math
import sys
import taper
import types
from taper import nn
import taper.nn.functional as F


def X(*s):
    return (taper.arange(1, 1 + math.prod(s), dtype=taper.float32) / 7).reshape(*s)


def p_patch_library(C):
    m = nn.Sequential(nn.ReLU(), nn.Tanh())

    def f(x):
        return F.relu(x) + taper.sin(x) * math.sqrt(4.0) + m(x)
    c = C(f)
    r = [c(X(2) - 0.2)]
    old = (F.relu, taper.sin, math.sqrt, nn.Tanh.forward)
    try:
        F.relu = lambda x, inplace=False: x * 0 + 5
        r.append(c(X(2) - 0.2))
        taper.sin = lambda x: x * 100
        r.append(c(X(2) - 0.2))
        math.sqrt = lambda v: 1000.0
        r.append(c(X(2) - 0.2))
        nn.Tanh.forward = lambda s, x: x - 7
        r.append(c(X(2) - 0.2))
    finally:
        F.relu, taper.sin, math.sqrt, nn.Tanh.forward = old
    r.append(c(X(2) - 0.2))
    return r


def p_patch_module_fn(C):
    mod = types.ModuleType('helpers')
    mod.k = 2
    mod.fn = lambda x: x * mod.k
    sys.modules['helpers'] = mod

    def f(x):
        return mod.fn(x) + mod.k
    c = C(f)
    r = [c(X(2))]
    mod.k = 3
    r.append(c(X(2)))
    mod.fn = lambda x: x - 1
    r.append(c(X(2)))
    mod.extra = 1
    r.append(c(X(2)))
    return r


def p_same_code_other_closure(C):

    def mk(k, d=1):

        def g(x, q=d):
            return x * k + q
        return g
    fs = [mk(2), mk(3), mk(2, 5)]

    def f(x, i):
        return fs[i](x)
    c = C(f)
    r = [c(X(2), i) for i in (0, 1, 2, 0)]
    fs[0], fs[1] = (fs[1], fs[0])
    r += [c(X(2), i) for i in (0, 1)]

    def h(x, g):
        return g(x)
    d = C(h)
    r += [d(X(2), g) for g in fs] + [d(X(2), lambda x: x)]
    return r


def p_instance_shadow(C):

    class A:
        k = 1

        def m(s, x):
            return x + s.k

        @property
        def p(s):
            return 10

        @staticmethod
        def st(x):
            return x * 2
    a = A()
    b = A()

    def f(x, o):
        return o.m(x) + o.st(x) * o.p
    c = C(f)
    r = [c(X(2), a), c(X(2), b)]
    a.k = 5
    r.append(c(X(2), a))
    r.append(c(X(2), b))
    b.m = lambda x: x * 0
    r.append(c(X(2), b))
    b.st = lambda x: x + 50
    r.append(c(X(2), b))
    del b.m
    r.append(c(X(2), b))
    A.k = 7
    r.append(c(X(2), b))
    r.append(c(X(2), a))
    del A.p
    A.p = 3
    r.append(c(X(2), a))
    a.p = 4
    r.append(c(X(2), a))
    return r


def p_class_arg(C):

    class A:
        w = 2

        def __init__(s, k=1):
            s.k = k

        def __call__(s, x):
            return x * s.k * s.w

        @classmethod
        def make(cls):
            return cls(cls.w)

    class B(A):
        w = 3

    def f(x, cls):
        return (cls.make()(x) + cls(4)(x), cls.__name__, issubclass(cls, A))
    c = C(f)
    r = [c(X(2), A), c(X(2), B)]
    A.w = 10
    r.append(c(X(2), A))
    r.append(c(X(2), B))
    B.__init__ = lambda s, k=1: setattr(s, 'k', k * 100)
    r.append(c(X(2), B))
    B.__call__ = lambda s, x: x
    r.append(c(X(2), B))
    B.make = classmethod(lambda cls: cls(0))
    r.append(c(X(2), B))
    return r


def p_dunder_added(C):

    class A:

        def __init__(s, v):
            s.v = v

    def f(x, a):
        try:
            return x * (a + 1)
        except TypeError:
            return x - 1

    def g(x, a):
        return x * 2 if a else x

    def h(x, a):
        return (a == A(1), x + 1)
    c = C(f)
    d = C(g)
    e = C(h)
    a = A(1)
    r = [c(X(2), a), d(X(2), a), e(X(2), a)]
    A.__add__ = lambda s, o: s.v + o
    r.append(c(X(2), a))
    A.__bool__ = lambda s: False
    r.append(d(X(2), a))
    A.__eq__ = lambda s, o: s.v == o.v
    r.append(e(X(2), a))
    A.__len__ = lambda s: 1
    del A.__bool__
    r.append(d(X(2), a))
    return r


def p_getattr_added(C):

    class A:
        pass

    def f(x, a):
        return (x * getattr(a, 'z', 2), hasattr(a, 'q'))
    c = C(f)
    a = A()
    r = [c(X(2), a)]
    A.__getattr__ = lambda s, n: 9 if n == 'z' else (_ for _ in ()).throw(AttributeError(n))
    r.append(c(X(2), a))
    A.z = 4
    r.append(c(X(2), a))
    a.z = 6
    r.append(c(X(2), a))
    A.q = 1
    r.append(c(X(2), a))
    return r


def p_bases_changed(C):

    class P1:

        def f(s, x):
            return x + 1

    class P2:

        def f(s, x):
            return x * 10

    class A(P1):
        pass

    def g(x, a):
        return a.f(x)
    c = C(g)
    a = A()
    r = [c(X(2), a)]
    A.__bases__ = (P2,)
    r.append(c(X(2), a))
    P2.f = lambda s, x: x - 3
    r.append(c(X(2), a))
    return r


def p_builtins_patched(C):
    import builtins

    def f(x, l):
        return x * len(l) + max(l)
    c = C(f)
    r = [c(X(2), [1, 2])]
    old = builtins.max
    try:
        builtins.max = lambda l: 100
        r.append(c(X(2), [1, 2]))
    finally:
        builtins.max = old
    r.append(c(X(2), [1, 2]))
    return r
