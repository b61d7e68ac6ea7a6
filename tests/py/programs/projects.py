"""Programs in the style of larger projects: configurations, caches, registries, callbacks, pipelines."""
import collections
import dataclasses
import enum
import functools
import itertools
import logging
import math
import taper
import time
import warnings
from typing import Optional, Any
from collections.abc import Mapping
from taper import nn
import taper.nn.functional as F


logger = logging.getLogger('x')


def X(*s):
    return (taper.arange(1, 1 + math.prod(s), dtype=taper.float32) / 7).reshape(*s)


def fill(m, v=0.1):
    with taper.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_((taper.arange(p.numel(), dtype=taper.float32).reshape(p.shape) % 7 - 3) * v / (i + 1))
    return m


def D(t):
    return t.detach().clone() if isinstance(t, taper.Tensor) else type(t)(map(D, t)) if type(t) in (list, tuple) else {k: D(v) for k, v in t.items()} if isinstance(t, dict) else t


class PretrainedConfig:
    attribute_map = {'n_head': 'num_heads'}

    def __init__(self, **kw):
        self.num_heads = kw.pop('num_heads', 2)
        self.hidden = kw.pop('hidden', 8)
        self.use_cache = kw.pop('use_cache', False)
        for k, v in kw.items():
            setattr(self, k, v)

    def __getattribute__(self, k):
        if k != 'attribute_map' and k in super().__getattribute__('attribute_map'):
            k = super().__getattribute__('attribute_map')[k]
        return super().__getattribute__(k)

    def __setattr__(self, k, v):
        super().__setattr__(type(self).attribute_map.get(k, k), v)


@dataclasses.dataclass
class ModelOutput:
    last: Optional[taper.Tensor] = None
    cache: Any = None
    hidden: Optional[tuple] = None

    def __getitem__(self, i):
        return tuple((v for v in dataclasses.astuple(self) if v is not None))[i] if False else tuple((getattr(self, f.name) for f in dataclasses.fields(self) if getattr(self, f.name) is not None))[i]

    def to_tuple(self):
        return tuple((getattr(self, f.name) for f in dataclasses.fields(self) if getattr(self, f.name) is not None))


class Cache:

    def __init__(self):
        self.k = []
        self.v = []
        self._seen = 0

    def __len__(self):
        return len(self.k)

    def __getitem__(self, i):
        return (self.k[i], self.v[i])

    def get_seq_length(self, i=0):
        return self.k[i].shape[-2] if len(self.k) > i else 0

    def update(self, k, v, i):
        if i == 0:
            self._seen += k.shape[-2]
        if len(self.k) <= i:
            self.k.append(k)
            self.v.append(v)
        else:
            self.k[i] = taper.cat([self.k[i], k], -2)
            self.v[i] = taper.cat([self.v[i], v], -2)
        return (self.k[i], self.v[i])


class Rotary(nn.Module):

    def __init__(self, dim, base=10000.0):
        super().__init__()
        inv = 1 / base ** (taper.arange(0, dim, 2).float() / dim)
        self.register_buffer('inv', inv, persistent=False)
        self.cos = None
        self.len = 0

    def forward(self, x, offset=0):
        n = x.shape[-2] + offset
        if n > self.len or self.cos is None:
            t = taper.arange(n).float()
            f = taper.outer(t, self.inv)
            e = taper.cat([f, f], -1)
            self.cos, self.sin = (e.cos(), e.sin())
            self.len = n
        return (self.cos[offset:n].to(x.dtype), self.sin[offset:n].to(x.dtype))


def rot(x):
    a, b = x.chunk(2, -1)
    return taper.cat([-b, a], -1)


class Attn(nn.Module):

    def __init__(self, cfg, idx):
        super().__init__()
        self.idx = idx
        self.h = cfg.n_head
        self.hd = cfg.hidden // cfg.n_head
        self.qkv = nn.Linear(cfg.hidden, 3 * cfg.hidden)
        self.o = nn.Linear(cfg.hidden, cfg.hidden)
        self.rope = Rotary(self.hd)

    def forward(self, x, cache=None, mask=None):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, self.hd).permute(2, 0, 3, 1, 4)
        off = cache.get_seq_length(self.idx) if cache is not None else 0
        c, s = self.rope(q, off)
        q = q * c + rot(q) * s
        k = k * c + rot(k) * s
        if cache is not None:
            k, v = cache.update(k, v, self.idx)
        w = q @ k.transpose(-1, -2) * self.hd ** (-0.5)
        m = taper.full((n, k.shape[-2]), taper.finfo(w.dtype).min).triu(k.shape[-2] - n + 1)
        w = w + m
        if mask is not None:
            w = w + mask
        return self.o((w.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):

    def __init__(self, cfg, i):
        super().__init__()
        self.n = nn.LayerNorm(cfg.hidden)
        self.a = Attn(cfg, i)
        self.m = nn.Sequential(nn.Linear(cfg.hidden, 16), nn.SiLU(), nn.Linear(16, cfg.hidden))

    def forward(self, x, **kw):
        x = x + self.a(self.n(x), **kw)
        return x + self.m(x)


class Model(nn.Module):
    config_class = PretrainedConfig

    def __init__(self, cfg):
        super().__init__()
        self.config = cfg
        self.emb = nn.Embedding(13, cfg.hidden)
        for i in range(2):
            setattr(self, f'layer_{i}', Block(cfg, i))
        self.apply(self._init)
        self.gradient_checkpointing = False

    def _init(self, m):
        if isinstance(m, nn.Linear):
            nn.init.constant_(m.bias, 0.1)
        elif isinstance(m, (nn.LayerNorm, nn.Embedding)):
            pass

    def forward(self, ids: taper.Tensor, cache: Optional[Cache]=None, attention_mask=None, use_cache: Optional[bool]=None, output_hidden: bool=False, return_dict: Optional[bool]=True):
        use_cache = use_cache if use_cache is not None else self.config.use_cache
        if self.gradient_checkpointing and self.training and use_cache:
            logger.warning('no')
            use_cache = False
        if use_cache and cache is None:
            cache = Cache()
        x = self.emb(ids)
        hs = () if output_hidden else None
        mask = None
        if attention_mask is not None:
            mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * taper.finfo(x.dtype).min
        for i in range(2):
            if output_hidden:
                hs += (x,)
            x = getattr(self, f'layer_{i}')(x, cache=cache, mask=mask)
        out = ModelOutput(last=x, cache=cache if use_cache else None, hidden=hs)
        return out if return_dict else out.to_tuple()


def ids(b, n, o=0):
    return ((taper.arange(b * n) + o) * 5 % 13).reshape(b, n)


def p_llama_like(C):
    m = fill(Model(PretrainedConfig(n_head=2))).eval()
    c = C(m)
    r = []
    with taper.no_grad():
        for b, n in ((1, 4), (2, 4), (2, 6)):
            o = c(ids(b, n))
            r.append(D(o.last))
            o = c(ids(b, n), output_hidden=True, return_dict=False)
            r.append(D(list(o)))
            o = c(ids(b, n), attention_mask=taper.ones(b, n))
            r.append(D(o[0]))
    return r


def p_llama_generate(C):
    m = fill(Model(PretrainedConfig(use_cache=True))).eval()
    c = C(m)
    r = []
    with taper.no_grad():
        o = c(ids(1, 3))
        cache = o.cache
        for k in range(5):
            o = c(ids(1, 1, k), cache=cache)
            r.append((D(o.last), cache._seen, len(cache), cache[0][0].shape))
    m.config.use_cache = False
    r.append(c(ids(1, 2)).cache is None)
    m.config.n_head = 1
    return r


def p_llama_train(C):
    m = fill(Model(PretrainedConfig()))
    opt = taper.optim.AdamW(m.parameters(), lr=0.01)
    c = C(m)
    r = []
    for k in range(4):
        o = c(ids(2, 4 + k % 2))
        l = F.cross_entropy(o.last.reshape(-1, 8), (ids(2, 4 + k % 2) % 8).reshape(-1))
        opt.zero_grad()
        l.backward()
        opt.step()
        r.append(l.item())
    return r


class Registry(dict):

    def register(self, n):

        def d(f):
            self[n] = f
            return f
        return d


ACT = Registry()


@ACT.register('sq')
def _sq(x):
    return x * x


ACT['relu'] = F.relu


def p_registry(C):

    def f(x, n):
        return ACT[n](x) if n in ACT else ACT.get('sq')(x)
    c = C(f)
    r = [c(X(2), 'sq'), c(X(2), 'relu'), c(X(2), 'zz')]
    ACT['sq'] = lambda x: x * 9
    r += [c(X(2), 'sq'), c(X(2), 'zz')]
    ACT['zz'] = lambda x: x - 1
    r.append(c(X(2), 'zz'))
    return r


def p_pytree_walk(C):

    def walk(o, f):
        if isinstance(o, taper.Tensor):
            return f(o)
        if isinstance(o, Mapping):
            return type(o)(((k, walk(v, f)) for k, v in o.items()))
        if isinstance(o, tuple) and hasattr(o, '_fields'):
            return type(o)(*(walk(v, f) for v in o))
        if isinstance(o, (list, tuple)):
            return type(o)((walk(v, f) for v in o))
        return o
    P = collections.namedtuple('P', 'a b')

    def f(o):
        return walk(o, lambda t: t * 2)
    c = C(f)
    return (c({'a': [X(2), (X(1), 3)], 'p': P(X(2), 's')}), c([X(2)]), c(collections.OrderedDict(z=X(2))))


def p_callbacks(C):

    class Tr:

        def __init__(s):
            s.cbs = collections.defaultdict(list)
            s.log = []
            s.step = 0

        def on(s, e):
            return lambda f: (s.cbs[e].append(f), f)[1]

        def fire(s, e, *a):
            for f in s.cbs[e]:
                f(s, *a)

        def run(s, x):
            s.step += 1
            s.fire('start', x)
            y = (x * 2).sum()
            s.fire('end', y)
            return y
    t = Tr()

    @t.on('start')
    def a(tr, x):
        tr.log.append(('start', tr.step, tuple(x.shape)))

    @t.on('end')
    def b(tr, y):
        tr.log.append(('end', y))
    c = C(t.run)
    r = [c(X(n)) for n in (2, 3, 2)]
    t.on('end')(lambda tr, y: tr.log.append('extra'))
    r.append(c(X(2)))
    return (r, t.log, t.step)


def p_state_machine(C):

    class St(enum.Enum):
        A = 1
        B = 2
        C = 3

    class M:

        def __init__(s):
            s.st = St.A
            s.n = 0

        def step(s, x):
            match s.st:
                case St.A:
                    s.st = St.B
                    return x + 1
                case St.B:
                    s.st = St.C if s.n > 1 else St.A
                    s.n += 1
                    return x * 2
                case St.C:
                    raise StopIteration('done')
    m = M()

    def f(x):
        try:
            return (m.step(x), m.st.name)
        except StopIteration as e:
            return ('stop', e.value)
    c = C(f)
    return [c(X(2)) for _ in range(9)]


def p_descriptor(C):

    class Typed:

        def __set_name__(s, o, n):
            s.n = '_' + n
            s.gets = 0

        def __get__(s, o, t=None):
            if o is None:
                return s
            s.gets += 1
            return getattr(o, s.n, 0)

        def __set__(s, o, v):
            setattr(o, s.n, v * 2)

    class Lazy:

        def __init__(s, f):
            s.f = f

        def __set_name__(s, o, n):
            s.name = n

        def __get__(s, o, t):
            v = s.f(o)
            o.__dict__[s.name] = v
            return v

    class A:
        a = Typed()
        b = Typed()

        @Lazy
        def big(s):
            return s.a * 100

    def f(x, o):
        o.a = 3
        y = x * o.a + o.b
        o.b = o.a
        return (y + o.big, A.a.gets)
    o = A()
    c = C(f)
    return ([c(X(2), o) for _ in range(3)], vars(o), A.a.gets, A.b.gets)


def p_init_subclass(C):

    class Base:
        subs = []

        def __init_subclass__(cls, tag=None, **k):
            super().__init_subclass__(**k)
            cls.tag = tag
            Base.subs.append(cls)

        def __class_getitem__(cls, k):
            return f'{cls.__name__}[{k}]'

        def __call__(s, x):
            return x * len(s.tag)

    class P(Base, tag='pp'):
        pass

    class Q(Base, tag='qqq'):
        pass

    def f(x):
        return ([s()(x) for s in Base.subs], Base['z'], [s.tag for s in Base.subs])
    c = C(f)
    r = [c(X(2))]

    class R(Base, tag='r'):
        pass
    r.append(c(X(2)))
    P.tag = 'longer'
    r.append(c(X(2)))
    return r


def p_generators_pipeline(C):

    def read(n):
        for i in range(n):
            yield i

    def sq(it):
        for v in it:
            yield (v * v)

    def bat(it, k):
        b = []
        for v in it:
            b.append(v)
            if len(b) == k:
                yield b
                b = []
        if b:
            yield b

    def f(x, n):
        return ([x * sum(b) for b in bat(sq(read(n)), 2)], list(itertools.accumulate(read(n))), sum((v for v in read(n) if v % 2)), max(((v, -v) for v in read(n))))
    c = C(f)
    return (c(X(2), 5), c(X(2), 4), c(X(2), 5))


def p_nonlocal_deep(C):

    def outer():
        a = 0
        l = []

        def mid():
            nonlocal a
            a += 1

            def inner(x):
                nonlocal a
                a += 10
                l.append(a)
                return x * a
            return inner
        return (mid, lambda: (a, list(l)))
    mid, get = outer()

    def f(x):
        return mid()(x) + mid()(x)
    c = C(f)
    return ([c(X(2)) for _ in range(3)], get())


def p_assert_msgs(C):

    def f(x, n):
        assert x.dim() == 1, f'dim {x.dim()}'
        assert n > 0
        return x * n
    c = C(f)
    r = []
    for a in ((X(2), 1), (X(2, 2), 1), (X(2), 0), (X(2), 2)):
        try:
            r.append(c(*a))
        except AssertionError as e:
            r.append(('A', str(e)))
    return r


def p_sort_stability(C):

    def f(x, l):
        return (sorted(l, key=lambda t: t[1]), sorted(l, key=lambda t: -t[0], reverse=True), min(l, key=lambda t: t[1]), max(l, key=len), [*reversed(l)], sorted({'b': 1, 'a': 2}.items()), x + 1, sorted('bca'), sorted([True, False, 2]), list(map(str, sorted([3, 'x'], key=str))))
    c = C(f)
    return (c(X(2), [(1, 2), (2, 1), (3, 2), (0, 1)]), c(X(2), [(5, 5, 5), (1, 1)]))


def p_float_format(C):

    def f(x, v):
        return (f'{v:.2e} {v:+.1f} {v:%} {v:g} {v!r} {v:>10.3f}', round(v, 2), round(v), int(v), divmod(v, 1.5), v // 1, v % 1, -v, abs(v), v.is_integer(), v.hex(), str(v), x * v, math.floor(v), v == int(v))
    c = C(f)
    return [c(X(2), v) for v in (1.5, -2.75, 10000000000.0, 0.1, 2.0)]


def p_time_counter(C):
    calls = [0]

    def timed(fn):

        @functools.wraps(fn)
        def w(*a, **k):
            t = time.perf_counter()
            r = fn(*a, **k)
            calls[0] += 1
            w.total = getattr(w, 'total', 0) + (time.perf_counter() - t >= 0)
            return r
        return w

    @timed
    def g(x):
        return x * 2

    def f(x):
        return g(x) + g(x)
    c = C(f)
    r = [c(X(2)) for _ in range(3)]
    return (r, calls, g.total)


def p_warn_once(C):

    @functools.lru_cache(None)
    def warn_once(m):
        warnings.warn(m)

    def f(x):
        warn_once('deprecated')
        return x + 1
    c = C(f)
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter('always')
        r = [c(X(2)) for _ in range(3)]
    return (r, len(w))


def p_logging(C):
    rec = []

    class H(logging.Handler):

        def emit(s, r):
            rec.append(r.getMessage())
    lg = logging.getLogger('p_logging')
    lg.handlers = [H()]
    lg.setLevel(logging.INFO)
    lg.propagate = False

    def f(x, k):
        lg.debug('dbg %s', k)
        y = x + 1
        lg.info('step %d shape %s', k, tuple(y.shape))
        if lg.isEnabledFor(logging.WARNING):
            lg.warning('w')
        return y
    c = C(f)
    return ([c(X(2), k) for k in range(2)], rec)
