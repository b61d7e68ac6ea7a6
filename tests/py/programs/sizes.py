"""Sizes as numbers everywhere, values that are equal but not the same, output and its order."""
import array
import collections
import contextlib
import copy
import datetime
import io
import itertools
import json
import math
import taper
import warnings
from taper import nn
import taper.nn.functional as F


def X(*s):
    return (taper.arange(1, 1 + math.prod(s), dtype=taper.float32) / 7).reshape(*s)


SIZES = (3, 4, 6, 2, 1, 0, 3)


def each(C, f, sizes=SIZES):
    c = C(f)
    out = []
    for n in sizes:
        try:
            out.append(c(X(n, 2)))
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


def p_sym_arith(C):
    return each(C, lambda x: (lambda n: (x + n, n + 1, n - 1, n * 2, n // 2, n % 3, -n, +n, ~n, n << 2, n >> 1, n & 1, n | 8, n ^ 5, n ** 2, n / 2, n * 0.5, 2 - n, 7 // (n + 1), 7 % (n + 1), abs(n - 5), divmod(n, 3), divmod(-n, 3), -n // 2, -n % 3, round(n), round(n * 10, -1), pow(n, 2, 5)))(x.shape[0]))


def p_sym_float(C):
    return each(C, lambda x: (lambda n: (x * math.sqrt(n), math.sqrt(n), n ** 0.5, n ** (-1) if n else 0, math.log(n + 1), math.floor(n / 2), math.ceil(n / 2), int(n / 2), float(n), n / 3, math.exp(-n), 1.0 * n, n == 3.0, n < 2.5, math.gcd(n, 6), math.isqrt(n), math.prod([n, 2]), math.fsum([n, 0.5]), math.hypot(n, 1), math.pow(n, 2), math.factorial(n), math.comb(n, 2)))(x.shape[0]))


def p_sym_types(C):
    return each(C, lambda x: (lambda n: (x + 1, isinstance(n, int), type(n) is int, type(n).__name__, n is None, bool(n), not n, n and 5, n or 6, isinstance(n, (float, str)), callable(n), hash(n), int(n), str(n), repr(n), f'{n:03d}', f'{n!r}', '%d|%s|%5.1f' % (n, n, n), '{:>4}'.format(n), format(n, 'b'), hex(n), bin(n), oct(n), chr(65 + n), n.bit_length(), n.real, n.numerator, n.__index__(), complex(n, 1)))(x.shape[0]))


def p_sym_containers(C):
    return each(C, lambda x: (lambda n: ([0] * n, (1,) * n, 'ab' * n, list(range(n)), list(range(n, 0, -1)), [1, 2, 3, 4, 5][:n], 'abcdef'[n:], n in [3, 4], n in {3, 5}, n in (4,), {n: 'a'}, {n: 1}.get(3), {3: 'x', 4: 'y'}.get(n, 'z'), sorted([n, 4, 2]), min(n, 4), max(n, 4), sum([n, n]), [n].index(n), [n, n].count(n), tuple([n]), {n, 3}, frozenset([n]), list(enumerate('ab', n)), list(zip(range(n), 'abc')), list(itertools.repeat(1, n)), list(itertools.islice(range(100), n)), any([n > 3]), all([n, 1]), 'x'.rjust(n), 'a'.center(n, '-'), bytes(n), n.to_bytes(2, 'big'), bytearray(n), slice(n).indices(5), json.dumps(n), json.dumps({'a': [n]}), [i for i in range(n) if i % 2], x.shape == (3, 2), x.shape[0:1], x.size(), list(x.shape), tuple(x.shape), x.numel(), len(x)))(x.shape[0]))


def p_sym_control(C):

    def f(x):
        n = x.shape[0]
        out = []
        for i in range(n):
            if i == 2:
                continue
            if i >= n - 1:
                break
            out.append(x[i] * i)
        else:
            out.append('else')
        match n:
            case 3:
                out.append('three')
            case 4 | 5:
                out.append('45')
            case k if k > 6:
                out.append(k)
            case _:
                out.append('?')
        while n > 4:
            n -= 2
            out.append(n)
        try:
            out.append(10 // (n - 3))
        except ZeroDivisionError as e:
            out.append(str(e))
        assert n >= 0, 'neg'
        return (out, n)
    return each(C, f)


def p_sym_tensor_ops(C):

    def f(x):
        n = x.shape[0]
        return (taper.zeros(n), taper.ones(n, 2) * n, taper.arange(n), taper.full((n,), n), x.view(-1), x.reshape(n * 2), x.expand(2, n, 2), x.repeat(n if n < 4 else 1, 1), x.sum() / n, x * n + n / 2, taper.tensor(n), taper.tensor([n, 1.5]), x[:n // 2], x[n // 2:], x.split(max(n // 2, 1)), taper.linspace(0, 1, n), taper.eye(n), x.t().contiguous().view(2, n), x.new_zeros(n), taper.empty(n, 0).shape, F.pad(x, (0, n)), taper.cat([x, x]).shape[0])
    return each(C, f, (3, 4, 5, 6, 3, 8, 2))


def p_sym_arg_int(C):

    def f(x, n, k=2):
        return (x * n, [n] * k, n / k, x.sum() + n * k, {'n': n}, n == k)
    c = C(f)
    return [c(X(3), n, k) for n, k in ((1, 2), (2, 2), (3, 3), (4, 2), (5, 5), (0, 1), (-1, 2), (100, 3))]


def p_sym_outlive(C):
    store = []

    class O:
        pass
    o = O()

    def f(x):
        n = x.shape[0]
        store.append(n)
        o.n = n
        o.l = [n, n + 1]
        o.f = lambda: n * 2
        return (x + 1, n)
    c = C(f)
    r = []
    for n in (3, 4, 5, 6):
        r.append((c(X(n, 2)), o.n, o.l, o.f(), type(o.n).__name__))
    return (r, store, [type(v).__name__ for v in store])


def p_set_iter_order(C):

    def f(x, s):
        return ([x * v for v in s], list(s))
    c = C(f)
    return [c(X(2), s) for s in ({0, 8}, {8, 0}, {0, 8}, frozenset({8, 0}), frozenset({0, 8}), frozenset({8, 0}))]


def p_range_eq(C):

    def f(x, r):
        return (x + len(r), r.step, r.stop, list(r))
    c = C(f)
    return [c(X(2), r) for r in (range(0, 2, 3), range(0, 1), range(0, 2, 5), range(0), range(5, 3))]


def p_complex_zero(C):

    def f(x, z):
        return (x + 1, str(z), z * 2)
    c = C(f)
    return [c(X(2), z) for z in (complex(0, 0), complex(0, -0.0), complex(-0.0, 0))]


def p_instancecheck(C):

    class M(type):
        k = True

        def __instancecheck__(c, o):
            return M.k

        def __subclasscheck__(c, o):
            return not M.k

    class A(metaclass=M):
        pass

    def f(x):
        return (x + 1 if isinstance(x, A) else x - 1, issubclass(int, A))
    c = C(f)
    r = [c(X(2))]
    M.k = False
    r.append(c(X(2)))
    return r


def p_print_order(C):
    buf = io.StringIO()

    def f(x, k):
        print('a', k, file=buf)
        y = x + 1
        print('b', y.sum().item() > 0, file=buf)
        for i in range(2):
            print('c', i, file=buf)
            y = y * 2
        return y
    with contextlib.redirect_stdout(io.StringIO()) as out:

        def g(x):
            print('hello', x.shape)
            z = x * 2
            print('bye')
            return z
        c = C(f)
        d = C(g)
        r = [c(X(2), 1), c(X(2), 2), d(X(2)), d(X(2))]
    return (r, buf.getvalue(), out.getvalue())


def p_warn(C):

    def f(x):
        y = x + 1
        warnings.warn('w')
        return y
    c = C(f)
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter('always')
        r = [c(X(2)), c(X(2))]
    return (r, [str(v.message) for v in w])


def p_autograd_fn(C):

    class Sq(taper.autograd.Function):

        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x * x * k

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return (3 * g * x * ctx.k, None)

    def f(x, k):
        return Sq.apply(x, k).sum()
    c = C(f)
    r = []
    for k in (1, 2, 1):
        x = X(3).requires_grad_()
        c(x, k).backward()
        r.append(x.grad)
    return r


def p_tensor_hook(C):
    log = []

    def f(x):
        y = x * 2
        y.register_hook(lambda g: (log.append(g.sum().item()), g * 3)[1])
        return (y * y).sum()
    c = C(f)
    r = []
    for _ in range(2):
        x = X(3).requires_grad_()
        c(x).backward()
        r.append(x.grad)
    return (r, log)


def p_tensor_subclass(C):

    class T(taper.Tensor):

        def dbl(self):
            return self * 2

    class Pm(nn.Parameter):
        pass

    def f(x):
        return (x.dbl() + 1, isinstance(x, T), type(x).__name__)
    c = C(f)
    x = X(3).as_subclass(T)
    r = []
    for _ in range(2):
        o = c(x)
        r.append((o[0].tolist(), type(o[0]).__name__, o[1:]))
    T.dbl = lambda s: s * 5
    o = c(x)
    r.append(o[0].tolist())
    return r


def p_nested_compile(C):

    @C
    def g(x, k):
        return x * k

    def f(x):
        return g(x, 2) + g(x, 3)
    c = C(f)
    return (c(X(2)), c(X(3)), c(X(2)))


def p_copy(C):

    def f(x, l, d):
        m = copy.copy(l)
        m.append(1)
        e = d.copy()
        e['z'] = x
        n = l[:]
        n[0] = 9
        q = list(l)
        q += [2]
        t = l * 2
        return (m, e, n, q, t, l is m)
    c = C(f)
    return (c(X(2), [1, [2]], {'a': [1]}), c(X(2), [3, [2]], {'a': [1]}))


def p_list_ops(C):

    def f(x, l):
        l.insert(1, x)
        l.extend([1, 2])
        p = l.pop()
        l.reverse()
        l[1:2] = [7, 8]
        l += ['e']
        k = l.index(7) if False else 2
        del l[0:1]
        l.sort(key=str)
        return (p, k, len(l))
    c = C(f)
    l = [0, 5]
    m = ['q', 4]
    return ([c(X(2), l), c(X(2), m)], [str(v) for v in l], [str(v) for v in m])


def p_dict_ops(C):

    def f(x, d):
        d.update(a=x, b=2)
        d.pop('c', None)
        k = list(d)
        d['z'] = d.pop('b')
        d |= {'y': 1}
        i = d.popitem()
        e = {k: v for k, v in d.items() if k != 'a'}
        d.move_to_end('a') if hasattr(d, 'move_to_end') else None
        return (k, i, e, list(d), list(reversed(d)), d.keys() & {'a'}, ('z', 2) in d.items(), dict(zip('ab', (1, 2))), d == {})
    c = C(f)
    return [c(X(2), {'c': 1}), c(X(2), {}), c(X(2), collections.OrderedDict(c=1, q=2)), c(X(2), collections.OrderedDict(q=1))]


def p_dict_iter_mutate(C):

    def f(x, d):
        for k in list(d):
            d[k + '2'] = d[k]
        try:
            for k in d:
                d[k + '3'] = 1
        except RuntimeError as e:
            return (str(e), sorted(d), x + 1)
    c = C(f)
    return (c(X(2), {'a': 1}), c(X(2), {'a': 1, 'b': 2}))


def p_contextlib(C):
    log = []

    @contextlib.contextmanager
    def cm(n):
        log.append('in' + n)
        try:
            yield (n * 2)
        except ValueError as e:
            log.append('caught ' + str(e))
        finally:
            log.append('out' + n)

    def f(x, bad):
        with contextlib.ExitStack() as st, contextlib.suppress(KeyError):
            a = st.enter_context(cm('a'))
            st.callback(log.append, 'cb')
            with cm('b') as b, contextlib.nullcontext(3) as q:
                x = x * q
                if bad == 1:
                    raise ValueError('v')
                if bad == 2:
                    raise KeyError('k')
            x = x + len(a + b)
        return x
    c = C(f)
    return ([c(X(2), k) for k in (0, 1, 2, 0)], log)


def p_datetime(C):

    def f(x, d, t):
        return (x + d.year, d.isoformat(), (d + t).day, d.weekday(), d < datetime.date(2030, 1, 1), t.days)
    c = C(f)
    return [c(X(2), datetime.date(2026, 1, k), datetime.timedelta(days=k)) for k in (1, 2, 1)]


def p_array(C):

    def f(x, a, b):
        a.append(3)
        b[0] = 7
        return (x + len(a) + a[0], sum(a), bytes(b))
    c = C(f)
    a = array.array('i', [1, 2])
    b = bytearray(b'ab')
    return ([c(X(2), a, b) for _ in range(3)], a.tolist(), bytes(b))
