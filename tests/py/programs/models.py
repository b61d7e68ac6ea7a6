"""Models with their configuration, and the standard library around them."""
import abc
import collections
import dataclasses
import functools
import itertools
import math
import random
import string
import taper
from typing import Any
from taper import nn
import taper.nn.functional as F


def X(*s):
    return (taper.arange(1, 1 + math.prod(s), dtype=taper.float32) / 7).reshape(*s)


def fill(m, v=0.1):
    with taper.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_((taper.arange(p.numel(), dtype=taper.float32).reshape(p.shape) % 7 - 3) * v / (i + 1))
    return m


@dataclasses.dataclass
class Config:
    hidden: int = 8
    heads: int = 2
    layers: int = 2
    drop: float = 0.0
    act: str = 'gelu'
    bias: bool = True
    extra: dict = dataclasses.field(default_factory=dict)

    def head_dim(self):
        return self.hidden // self.heads


ACT = {'gelu': F.gelu, 'relu': F.relu, 'silu': lambda x: x * taper.sigmoid(x)}


class Out(collections.OrderedDict):

    def __getattr__(self, k):
        try:
            return self[k]
        except KeyError:
            raise AttributeError(k)

    def to_tuple(self):
        return tuple((v for v in self.values()))

    def __getitem__(self, k):
        if isinstance(k, str):
            return dict(self.items())[k]
        return self.to_tuple()[k]


class Attn(nn.Module):

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.qkv = nn.Linear(cfg.hidden, 3 * cfg.hidden, bias=cfg.bias)
        self.o = nn.Linear(cfg.hidden, cfg.hidden)

    def _split(self, t):
        b, n, _ = t.shape
        return t.view(b, n, self.cfg.heads, self.cfg.head_dim()).transpose(1, 2)

    def forward(self, x, mask=None, past=None, use_cache=False, output_attentions=False, **kw):
        q, k, v = (self._split(t) for t in self.qkv(x).chunk(3, dim=-1))
        if past is not None:
            k = taper.cat([past[0], k], dim=2)
            v = taper.cat([past[1], v], dim=2)
        present = (k, v) if use_cache else None
        s = q @ k.transpose(-1, -2) / math.sqrt(self.cfg.head_dim())
        if mask is not None:
            s = s.masked_fill(mask == 0, float('-inf'))
        a = F.softmax(s, dim=-1)
        y = (a @ v).transpose(1, 2).reshape(x.shape)
        out = (self.o(y), present)
        if output_attentions:
            out += (a,)
        return out


class Block(nn.Module):

    def __init__(self, cfg):
        super().__init__()
        self.ln = nn.LayerNorm(cfg.hidden)
        self.attn = Attn(cfg)
        self.mlp = nn.Sequential(nn.Linear(cfg.hidden, 2 * cfg.hidden), nn.GELU(), nn.Linear(2 * cfg.hidden, cfg.hidden))
        self.act = ACT[cfg.act]

    def forward(self, x, *args, **kwargs):
        r = x
        outs = self.attn(self.ln(x), *args, **kwargs)
        x = r + outs[0]
        return (self.act(x + self.mlp(x)),) + outs[1:]


class Model(nn.Module):
    base_prefix = 'model'

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.emb = nn.Embedding(11, cfg.hidden)
        self.h = nn.ModuleList([Block(cfg) for _ in range(cfg.layers)])
        self.norm = nn.LayerNorm(cfg.hidden)
        self.register_buffer('pos', taper.arange(16))
        self.pe = nn.Embedding(16, cfg.hidden)
        self.gradient_checkpointing = False

    @property
    def device(self):
        return next(self.parameters()).device

    @property
    def dtype(self):
        return next(iter(self.parameters())).dtype

    def forward(self, ids=None, mask=None, past=None, use_cache=None, output_attentions=None, output_hidden=None, return_dict=None, **kw):
        use_cache = use_cache if use_cache is not None else self.cfg.extra.get('use_cache', False)
        return_dict = True if return_dict is None else return_dict
        if ids is None:
            raise ValueError('need ids')
        past = past or [None] * len(self.h)
        n0 = past[0][0].shape[2] if past[0] is not None else 0
        x = self.emb(ids) + self.pe(self.pos[n0:n0 + ids.shape[1]])
        x = x.to(self.dtype)
        hid = () if output_hidden else None
        att = () if output_attentions else None
        pres = () if use_cache else None
        for i, (blk, p) in enumerate(zip(self.h, past)):
            if output_hidden:
                hid = hid + (x,)
            outs = blk(x, mask, past=p, use_cache=use_cache, output_attentions=output_attentions)
            x = outs[0]
            if use_cache:
                pres = pres + (outs[1],)
            if output_attentions:
                att = att + (outs[2],)
        x = self.norm(x)
        if not return_dict:
            return tuple((v for v in [x, pres, hid, att] if v is not None))
        return Out(last=x, pres=pres, hid=hid, att=att)


def ids(b, n):
    return (taper.arange(b * n) * 7 % 11).reshape(b, n)


def p_hf(C):
    m = fill(Model(Config()))
    c = C(m)
    r = []
    for kw in ({}, dict(use_cache=True), dict(output_attentions=True, output_hidden=True), dict(return_dict=False), dict(use_cache=True, return_dict=False)):
        for b, n in ((2, 3), (2, 5), (1, 4)):
            o = c(ids(b, n), **kw)
            r.append(o.to_tuple() if isinstance(o, Out) else o)
    try:
        c()
    except ValueError as e:
        r.append(str(e))
    m.cfg.act = 'relu'
    m.cfg.heads = 4
    r.append(c(ids(2, 3)).last)
    m.cfg.extra['use_cache'] = True
    r.append(len(c(ids(2, 3)).pres))
    return r


def p_hf_generate(C):
    m = fill(Model(Config())).eval()
    c = C(m)
    out = []
    with taper.no_grad():
        x = ids(1, 3)
        past = None
        cur = x
        for _ in range(6):
            o = c(cur, past=past, use_cache=True)
            past = o.pres
            nxt = o.last[:, -1].sum(-1, keepdim=True).abs().mul(100).long() % 11
            out.append(nxt.tolist())
            cur = nxt
    return out


def p_train_hf(C):
    m = fill(Model(Config()))
    opt = taper.optim.AdamW(m.parameters(), lr=0.01)

    def loss_fn(i):
        o = m(i)
        return (o.last ** 2).mean()
    c = C(loss_fn)
    r = []
    for k in range(4):
        opt.zero_grad()
        l = c(ids(2, 3 + k % 2))
        l.backward()
        opt.step()
        r.append(l.item())
    return r


def p_dataclass_frozen_slots(C):

    @dataclasses.dataclass(frozen=True, slots=True)
    class P:
        a: int
        b: Any = None

    @dataclasses.dataclass(order=True, kw_only=True)
    class Q:
        a: int = 1
        l: list = dataclasses.field(default_factory=list)

    def f(x, p, q):
        q.l.append(p.a)
        p2 = dataclasses.replace(p, a=p.a + 1)
        q2 = Q(a=3)
        q2.l.append(x)
        try:
            p.a = 3
        except dataclasses.FrozenInstanceError as e:
            s = str(e)
        return (x * p2.a + len(q.l), s, q2, p2, q < Q(a=5), dataclasses.asdict(Q(a=2)), [f.name for f in dataclasses.fields(q)])
    c = C(f)
    q = Q()
    return ([c(X(3), P(k % 2), q)[:2] for k in range(4)], q.l)


def p_kwargs(C):

    def inner(*a, scale=1, **k):
        return sum(a) * scale + sum(k.values())

    def f(x, *a, flag=False, **k):
        k2 = {**k, 'z': 1}
        if flag:
            k2.pop('z')
            k2.setdefault('y', x)
        return (inner(x, *a, **k2), sorted(k2), len(a))
    c = C(f)
    return [c(X(3)), c(X(3), 1, 2), c(X(3), 1, flag=True), c(X(3), q=X(3)), c(X(3), q=2, w=3, flag=True), c(X(3), scale=4)]


def p_metaclass_registry(C):

    class Reg(type):
        items = {}

        def __new__(m, n, b, d, **k):
            c = super().__new__(m, n, b, d)
            Reg.items[n.lower()] = c
            return c

        def __getitem__(c, k):
            return Reg.items[k]

        def __contains__(c, k):
            return k in Reg.items

        def __call__(c, *a, **k):
            o = super().__call__(*a, **k)
            o.made = True
            return o

        def __len__(c):
            return len(Reg.items)

        @property
        def nm(c):
            return c.__name__

    class A(metaclass=Reg):

        def __init__(self, k=1):
            self.k = k

        def f(self, x):
            return x + self.k

    class B(A):

        def f(self, x):
            return super().f(x) * 2

    def f(x, n):
        o = A[n](3)
        return (o.f(x), o.made, n in A, len(A), A.nm, B.nm)
    c = C(f)
    return (c(X(3), 'a'), c(X(3), 'b'), c(X(3), 'b'))


def p_abc(C):

    class S(abc.ABC):

        @abc.abstractmethod
        def f(self, x):
            ...

        @property
        @abc.abstractmethod
        def k(self):
            ...

        def run(self, x):
            return self.f(x) * self.k

    class T(S):

        def f(self, x):
            return x + 1

        @property
        def k(self):
            return 2

    def f(x, o):
        try:
            S()
        except TypeError as e:
            t = 'abstract' in str(e)
        return (o.run(x), isinstance(o, S), issubclass(T, S), t)
    c = C(f)
    return (c(X(3), T()), c(X(4), T()))


def p_gen_closure(C):

    def fib():
        a, b = (0, 1)
        while True:
            yield a
            a, b = (b, a + b)

    def f(x):
        g = fib()
        out = []
        for v in itertools.islice(g, 5):
            out.append(x * v)
        return (out, next(g), [next(g) for _ in range(2)])
    c = C(f)
    return (c(X(3)), c(X(4)))


def p_closure_list(C):

    def f(x):
        fs = []
        for i in range(3):
            fs.append(lambda y: y * i)
        gs = [lambda y, i=i: y * i for i in range(3)]
        return ([g(x) for g in fs], [g(x) for g in gs])
    c = C(f)
    return (c(X(3)), c(X(3)))


def p_string_format(C):

    class P:

        def __init__(s, v):
            s.v = v

        def __str__(s):
            return f'P{s.v}'

        def __repr__(s):
            return f'<P {s.v!r}>'

        def __format__(s, spec):
            return f'[{spec}:{s.v}]'

    def f(x, p):
        n = x.shape[0]
        return (x + 1, f"{n:>5}|{n:05d}|{n / 3:.3f}|{p}|{p!r}|{p:abc}|{'a':^5}", '%d %s %r %5.2f' % (n, p, p, n / 3), '{} {!r} {:xx} {k}'.format(p, p, p, k=n), '{0[a]} {1.v}'.format({'a': n}, p), f'n={n!r}', f'{x.shape}', str(p) + repr(p), '%(a)s' % {'a': p}, f'{x.dtype}', 'ab' * n, format(n, 'x'), string.Template('$a b').substitute(a=n))
    c = C(f)
    return (c(X(3), P(1)), c(X(4), P('q')), c(X(3), P(1)))


def p_set_order(C):

    def f(x, s):
        t = {3, 1, 2} | s
        out = [x * v for v in sorted(t)]
        t.discard(1)
        t.add(9)
        u = frozenset(t) & {9, 2}
        return (out, len(t), sorted(u), {v % 2 for v in t}, s < t, s - t, s ^ {1})
    c = C(f)
    return (c(X(2), {5}), c(X(2), {1}), c(X(2), set()), c(X(2), {5}))


def p_lru(C):
    calls = []

    @functools.lru_cache(maxsize=None)
    def mask(n):
        calls.append(n)
        return taper.ones(n, n).tril()

    @functools.cache
    def sq(n):
        return n * n

    def f(x):
        return x @ mask(x.shape[1]) * sq(x.shape[0])
    c = C(f)
    r = [c(X(2, 3)), c(X(2, 3)), c(X(3, 3)), c(X(2, 4))]
    return r


def p_lru_rebound(C):
    global LR

    @functools.lru_cache()
    def LR(n):
        return n + 1

    def f(x):
        return x * LR(2)
    c = C(f)
    r = [c(X(2))]

    @functools.lru_cache()
    def LR(n):
        return n + 100
    r.append(c(X(2)))
    return r


def p_partial(C):

    def g(a, b, k=1):
        return a * k + b
    h = functools.partial(g, k=3)
    hs = [functools.partial(g, b=i) for i in range(2)]

    def f(x, q):
        return (h(x, 1), [k(x) for k in hs], q(x), h.func is g, h.keywords)
    c = C(f)
    r = [c(X(2), functools.partial(g, 2)), c(X(2), functools.partial(g, X(2)))]
    h.keywords['k'] = 7
    r.append(c(X(2), functools.partial(g, 2)))
    return r


def p_partialmethod(C):

    class A:

        def f(self, x, k):
            return x * k
        g = functools.partialmethod(f, k=3)

        @functools.singledispatchmethod
        def h(self, v):
            return 0

        @h.register
        def _(self, v: int):
            return v + 1

        @h.register
        def _(self, v: str):
            return len(v)

    def f(x, a):
        return a.g(x) + a.h(3) + a.h('abc') + a.h(2.0)
    c = C(f)
    return (c(X(3), A()), c(X(3), A()))


def p_wraps_counter(C):

    def counted(fn):

        @functools.wraps(fn)
        def w(*a, **k):
            w.calls += 1
            return fn(*a, **k)
        w.calls = 0
        return w

    @counted
    def g(x):
        return x + 1

    def f(x):
        return g(g(x)) * g.calls
    c = C(f)
    return ([c(X(2)) for _ in range(3)], g.calls)


def p_func_attr(C):

    def f(x):
        f.n = getattr(f, 'n', 0) + 1
        return x * f.n
    c = C(f)
    return ([c(X(2)) for _ in range(3)], f.n)


def p_exc_chain(C):

    class E(Exception):

        def __init__(s, m, code):
            super().__init__(m)
            s.code = code

    def g(x, k):
        try:
            if k:
                raise E('bad', k)
            return x + 1
        except E as e:
            raise RuntimeError('outer') from e

    def f(x, k):
        try:
            return g(x, k)
        except RuntimeError as e:
            return (x - 1, str(e), e.__cause__.code, type(e.__cause__).__name__, e.args)
        finally:
            x = None
    c = C(f)
    return (c(X(2), 0), c(X(2), 2), c(X(2), 3), c(X(2), 0))


def p_reraise(C):

    def f(x, d):
        try:
            y = x * d['k']
        except KeyError:
            d['miss'] = d.get('miss', 0) + 1
            raise
        return y
    c = C(f)
    d = {}
    r = []
    for _ in range(3):
        try:
            c(X(2), d)
        except KeyError as e:
            r.append(repr(e))
    d['k'] = 2
    r.append(c(X(2), d))
    return (r, d)


def p_unpack(C):

    def f(t):
        (a, *b), c2 = t
        d, *e, g = [1, 2, 3, 4]
        h = [*b, *e]
        i = {**{'a': 1}, 'b': g}
        a, b2 = (b[0], a)
        return (a, b2, c2, h, i)
    c = C(f)
    return (c(((X(2), X(3), 3), 4)), c(((X(2), X(3)), 5)))


def p_global_dict_mut(C):
    global GD
    GD = {'n': 0, 'l': []}

    def f(x):
        GD['n'] += 1
        GD['l'].append(x.shape[0])
        GD.setdefault('t', []).append(x.sum())
        return x * GD['n']
    c = C(f)
    r = [c(X(2 + k % 2)) for k in range(5)]
    return (r, GD)


def p_alias_args(C):

    def f(a, b):
        a.append(1)
        b.append(2)
        return (a is b, len(a), len(b))

    def g(a, b):
        a.add_(1)
        return a + b
    c = C(f)
    l = []
    m = []
    r = [c(l, m), c(l, l), c(m, m), c(l, m)]
    d = C(g)
    x = X(3)
    y = X(3)
    r += [d(x, y), d(x, x), d(x, y), d(x, x.view(3)), d(x[:2], x[1:])]
    return (r, l, m, x, y)


def p_tensor_attr(C):

    def f(x):
        x.tag = getattr(x, 'tag', 0) + 1
        y = x + x.tag
        y.note = 'n'
        return (y, y.note)
    c = C(f)
    x = X(3)
    return (c(x), c(x), c(x), x.tag)


def p_random_py(C):

    def f(x):
        return x * random.random() + random.randint(1, 5)
    random.seed(3)
    c = C(f)
    return [c(X(3)) for _ in range(3)]
