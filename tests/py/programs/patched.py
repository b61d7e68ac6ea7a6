"""Classes, functions and globals that change between calls."""
import math
import taper
from taper import nn


def X(*s):
    return (taper.arange(1, 1 + math.prod(s), dtype=taper.float32) / 7).reshape(*s)


def p_builtin_shadowed_later(C):

    def f(x):
        return x * abs(-3)
    c = C(f)
    a = c(X(3))
    globals()['abs'] = lambda v: 100
    b = c(X(3))
    del globals()['abs']
    d = c(X(3))
    return (a, b, d)


def p_static_monkey(C):

    class A:

        @staticmethod
        def s(x):
            return x + 1

        @classmethod
        def k(cls, x):
            return x * 2

        @property
        def p(self):
            return 3
    o = A()

    def f(x):
        return o.s(x) + o.k(x) * o.p
    c = C(f)
    r = [c(X(3))]
    A.s = staticmethod(lambda x: x + 10)
    r.append(c(X(3)))
    A.k = classmethod(lambda cls, x: x * 20)
    r.append(c(X(3)))
    A.p = property(lambda self: 7)
    r.append(c(X(3)))
    o.s = lambda x: x - 1
    r.append(c(X(3)))
    return r


def p_static_monkey_arg(C):

    class A:

        @staticmethod
        def s(x):
            return x + 1

        @classmethod
        def k(cls, x):
            return x * 2

        @property
        def p(self):
            return 3

        def __add__(self, o):
            return 5

        def __len__(self):
            return 2

        def __call__(self, x):
            return x + 2

        def __getitem__(self, i):
            return i

        def __contains__(self, i):
            return True

        def __iter__(self):
            return iter([1, 2])

        def __eq__(self, o):
            return True

        def __bool__(self):
            return True

        def __enter__(self):
            return 1

        def __exit__(self, *a):
            return None

    def f(x, o):
        y = o.s(x) + o.k(x) * o.p + (o + 1) + len(o) + o(x) + o[3]
        if 3 in o:
            y = y + 1
        for v in o:
            y = y * v
        if o == 4:
            y = y + 3
        if o:
            y = y - 2
        with o as q:
            y = y + q
        return y
    c = C(f)
    o = A()
    r = [c(X(3), o)]
    A.s = staticmethod(lambda x: x + 10)
    r.append(c(X(3), o))
    A.k = classmethod(lambda cls, x: x * 20)
    r.append(c(X(3), o))
    A.p = property(lambda self: 7)
    r.append(c(X(3), o))
    A.__add__ = lambda s, o: 9
    r.append(c(X(3), o))
    A.__len__ = lambda s: 4
    r.append(c(X(3), o))
    A.__call__ = lambda s, x: x * 4
    r.append(c(X(3), o))
    A.__getitem__ = lambda s, i: -i
    r.append(c(X(3), o))
    A.__contains__ = lambda s, i: False
    r.append(c(X(3), o))
    A.__iter__ = lambda s: iter([3, 2])
    r.append(c(X(3), o))
    A.__eq__ = lambda s, o: False
    r.append(c(X(3), o))
    A.__bool__ = lambda s: False
    r.append(c(X(3), o))
    A.__enter__ = lambda s: 11
    r.append(c(X(3), o))
    return r


def p_base_monkey(C):

    class B:

        def g(self, x):
            return x + 1
        k = 2

    class D(B):

        def h(self, x):
            return super().g(x) * self.k
    o = D()

    def f(x):
        return o.h(x)
    c = C(f)
    r = [c(X(3))]
    B.g = lambda self, x: x + 5
    r.append(c(X(3)))
    B.k = 7
    r.append(c(X(3)))
    D.k = 8
    r.append(c(X(3)))
    D.g = lambda self, x: x * 0
    r.append(c(X(3)))
    B.h2 = 1
    del D.k
    r.append(c(X(3)))
    return r


def p_class_attr_counter(C):

    class M(nn.Module):
        calls = 0

        def __init__(self):
            super().__init__()
            self.l = nn.Linear(3, 3)

        def forward(self, x):
            M.calls += 1
            return self.l(x) * M.calls
    m = M()
    c = C(m)
    return [c(X(2, 3)) for _ in range(4)] + [M.calls]


def p_type_self_counter(C):

    class M(nn.Module):
        calls = 0

        def forward(self, x):
            type(self).calls += 1
            self.calls2 = getattr(self, 'calls2', 0) + 1
            return x * type(self).calls + self.calls2
    m = M()
    c = C(m)
    return [c(X(2, 3)) for _ in range(4)] + [M.calls, m.calls2]


def p_global_counter(C):
    global GC
    GC = 0

    def f(x):
        global GC
        GC += 1
        return x + GC
    c = C(f)
    r = [c(X(3)) for _ in range(12)]
    return (r, GC)


def p_mutable_default(C):

    def f(x, acc=[]):
        acc.append(x.sum())
        return sum(acc)
    c = C(f)
    return [c(X(3)) for _ in range(4)]


def p_mutable_default_dict(C):

    def f(x, memo={}):
        k = x.shape[0]
        if k not in memo:
            memo[k] = len(memo)
        return x + memo[k]
    c = C(f)
    return [c(X(n)) for n in (3, 4, 3, 5, 4, 6, 7, 3)]


def p_defaults_changed(C):

    def g(x, k=2, *, q=3):
        return x * k + q

    def f(x):
        return g(x)
    c = C(f)
    r = [c(X(3))]
    g.__defaults__ = (5,)
    r.append(c(X(3)))
    g.__kwdefaults__ = {'q': 9}
    r.append(c(X(3)))
    g.__code__ = (lambda x, k=2, *, q=3: x - k - q).__code__
    r.append(c(X(3)))
    return r


def p_top_defaults_changed(C):

    def g(x, k=2, *, q=3):
        return x * k + q
    c = C(g)
    r = [c(X(3))]
    g.__defaults__ = (5,)
    r.append(c(X(3)))
    g.__kwdefaults__ = {'q': 9}
    r.append(c(X(3)))
    return r


def p_closure_cell_changed(C):
    k = 1

    def f(x):
        return x + k

    def setk(v):
        nonlocal k
        k = v
    c = C(f)
    r = [c(X(3))]
    setk(4)
    r.append(c(X(3)))
    setk('a')
    try:
        c(X(3))
    except TypeError as e:
        r.append(str(e))
    setk(X(3))
    r.append(c(X(3)))
    return r


def p_closure_counter(C):
    n = 0

    def f(x):
        nonlocal n
        n += 1
        return x * n
    c = C(f)
    return ([c(X(3)) for _ in range(3)], n)


def p_forward_replaced(C):
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    for p in m.parameters():
        p.data.fill_(0.5)
    c = C(m)
    r = [c(X(2, 3))]
    m[1].forward = lambda x: x * 10
    r.append(c(X(2, 3)))
    del m[1].forward
    r.append(c(X(2, 3)))
    m[1] = nn.Tanh()
    r.append(c(X(2, 3)))
    m.append(nn.Softmax(dim=-1))
    r.append(c(X(2, 3)))
    old = nn.Tanh.forward
    nn.Tanh.forward = lambda self, x: x - 1
    r.append(c(X(2, 3)))
    nn.Tanh.forward = old
    r.append(c(X(2, 3)))
    return [t.detach() for t in r]


def p_hooks(C):
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    for p in m.parameters():
        p.data.fill_(0.5)
    log = []
    c = C(m)
    r = [c(X(2, 3))]
    h = m[0].register_forward_hook(lambda mod, i, o: (log.append(o.shape), o * 2)[1])
    r.append(c(X(2, 3)))
    h2 = m[1].register_forward_pre_hook(lambda mod, i: (i[0] - 1,))
    r.append(c(X(2, 3)))
    h.remove()
    r.append(c(X(2, 3)))
    h2.remove()
    r.append(c(X(2, 3)))
    h3 = m.register_forward_hook(lambda mod, i, o: o + 1)
    r.append(c(X(2, 3)))
    h3.remove()
    r.append(c(X(2, 3)))
    return ([t.detach() for t in r], log)


def p_train_eval(C):
    m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.0))
    for p in m.parameters():
        p.data.fill_(0.5)
    c = C(m)
    r = []
    for k in range(6):
        m.train(k % 2 == 0)
        r.append(c(X(4, 3) * (k + 1)).detach())
    return (r, m[1].running_mean.clone(), m[1].num_batches_tracked)


def p_param_replaced(C):
    m = nn.Linear(3, 3, bias=False)
    m.weight.data.fill_(1.0)
    c = C(m)
    r = [c(X(2, 3))]
    m.weight = nn.Parameter(taper.ones(3, 3) * 2)
    r.append(c(X(2, 3)))
    m.weight = nn.Parameter(taper.ones(4, 3) * 2)
    r.append(c(X(2, 3)))
    m.weight.data = taper.ones(5, 3)
    r.append(c(X(2, 3)))
    m.weight.data.mul_(3)
    r.append(c(X(2, 3)))
    m.weight.requires_grad_(False)
    r.append(c(X(2, 3)))
    return [(t.detach(), t.requires_grad) for t in r]


def p_property_side(C):

    class A:

        def __init__(self):
            self.n = 0
            self.log = []

        @property
        def v(self):
            self.n += 1
            self.log.append(self.n)
            return self.n

        @v.setter
        def v(self, k):
            self.n = k * 10

    def f(x, a):
        y = x * a.v + a.v
        a.v = 2
        return y + a.v
    a = A()
    c = C(f)
    return ([c(X(3), a) for _ in range(3)], a.n, a.log)


def p_slots(C):

    class S:
        __slots__ = ('a', 'b')

        def __init__(self, a):
            self.a = a

    def f(x, s):
        if hasattr(s, 'b'):
            return x * s.b
        s.b = s.a + 1
        return x + s.a
    s = S(3)
    c = C(f)
    r = [c(X(3), s), c(X(3), s)]
    del s.b
    r.append(c(X(3), s))
    s.a = 8
    del s.b
    r.append(c(X(3), s))
    return (r, s.b)


def p_try_finally_return(C):
    log = []

    def f(x, k):
        try:
            if k == 0:
                return x + 1
            if k == 1:
                raise ValueError('one')
            if k == 2:
                return x[100]
            y = x * 2
        except ValueError as e:
            log.append(str(e))
            return x - 1
        except IndexError:
            log.append('idx')
            y = x
        else:
            log.append('else')
            y = y + 1
        finally:
            log.append('fin')
            if k == 4:
                return x * 0
        return y
    c = C(f)
    return ([c(X(3), k) for k in (0, 1, 2, 3, 4, 0, 1, 2, 3, 4)], log)


def p_loop_continue_finally(C):

    def f(x):
        out = []
        for i in range(5):
            try:
                if i == 1:
                    continue
                if i == 3:
                    break
                out.append(x * i)
            finally:
                out.append(i)
        else:
            out.append('no')
        return out
    c = C(f)
    return (c(X(3)), c(X(4)))


def p_nested_with(C):
    log = []

    class W:

        def __init__(self, n, sw=False):
            self.n = n
            self.sw = sw

        def __enter__(self):
            log.append('+' + self.n)
            return self

        def __exit__(self, t, v, tb):
            log.append('-' + self.n + (t.__name__ if t else ''))
            return self.sw

    def f(x):
        with W('a') as a, W('b', True) as b:
            x = x + 1
            with W('c'), taper.no_grad():
                x = x * 2
                raise KeyError('q')
        return (x, taper.is_grad_enabled())
    c = C(f)
    return (c(X(3)), c(X(3)), log)


def p_recursion(C):

    def tree(x, d):
        if d == 0:
            return x
        return tree(x + 1, d - 1) * 2 + tree(x - 1, d - 1)
    c = C(tree)
    return (c(X(3), 3), c(X(3), 4), c(X(3), 3))


def p_module_recursion(C):

    class N(nn.Module):

        def __init__(self, d):
            super().__init__()
            self.l = nn.Linear(3, 3)
            self.l.weight.data.fill_(0.3)
            self.l.bias.data.fill_(0.1)
            self.kids = nn.ModuleList([N(d - 1), N(d - 1)]) if d else None

        def forward(self, x):
            y = self.l(x)
            if self.kids is not None:
                for i, k in enumerate(self.kids):
                    y = y + k(x) * i
            return y
    m = N(3)
    c = C(m)
    return (c(X(2, 3)).detach(), c(X(3, 3)).detach())
