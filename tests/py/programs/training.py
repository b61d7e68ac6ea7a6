"""Training, views and memory that is shared, random numbers, layouts, errors half way."""
import copy
import functools
import itertools
import math
import taper
import threading
from taper import nn
import taper.nn.functional as F


def X(*s):
    return (taper.arange(1, 1 + math.prod(s), dtype=taper.float32) / 7).reshape(*s)


def fill(m, v=0.1):
    with taper.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_((taper.arange(p.numel(), dtype=taper.float32).reshape(p.shape) % 7 - 3) * v / (i + 1))
    return m


def D(t):
    return t.detach().clone() if isinstance(t, taper.Tensor) else type(t)(map(D, t)) if isinstance(t, (list, tuple)) else {k: D(v) for k, v in t.items()} if isinstance(t, dict) else t


def p_view_out_mutate(C):

    def f(x):
        y = x.view(-1)
        z = x[0]
        w = x.t()
        return (y, z, w)
    c = C(f)
    x = X(2, 3)
    y, z, w = c(x)
    x.mul_(2)
    y[0] = 100
    return (y, z, w, x)


def p_inplace_view_chain(C):

    def f(x):
        a = x[0]
        b = a[1:]
        b.zero_()
        a.add_(1)
        c = x.reshape(-1)
        c[-1] = 7
        return (x.sum(), b)
    c = C(f)
    x = X(2, 3)
    r = c(x)
    r2 = c(x)
    return (r, r2, x)


def p_grad_inplace(C):

    def f(x, w):
        y = x * w
        y.add_(1)
        y[0] = y[0] * 2
        z = y.relu_()
        return (z * w).sum()
    c = C(f)
    r = []
    for k in (1, 2):
        x = (X(3) - 1).requires_grad_()
        w = (X(3) * k).requires_grad_()
        c(x, w).backward()
        r.append((x.grad, w.grad))
    return r


def p_grad_accum(C):
    m = fill(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
    c = C(m)
    opt = taper.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    r = []
    for step in range(3):
        for mb in range(2):
            (c(X(2, 3) * (mb + 1)).sum() / 2).backward()
        r.append([p.grad.clone() for p in m.parameters()])
        opt.step()
        opt.zero_grad()
    return (r, [D(p) for p in m.parameters()])


def p_second_order(C):

    def f(x):
        return (x ** 3).sum()
    c = C(f)
    x = X(3).requires_grad_()
    y = c(x)
    g, = taper.autograd.grad(y, x)
    return g


def p_grad_in_fn(C):

    def f(x):
        x = x.detach().requires_grad_()
        y = (x * x).sum()
        g, = taper.autograd.grad(y, x)
        return g * 2
    c = C(f)
    return (c(X(3)), c(X(4)))


def p_detach_mix(C):

    def f(x, w):
        a = x * w
        b = a.detach() * w
        with_ng = None
        with taper.no_grad():
            with_ng = a * 3
        return ((a + b + with_ng).sum(), with_ng.requires_grad, b.requires_grad)
    c = C(f)
    x = X(3).requires_grad_()
    w = X(3).requires_grad_()
    o = c(x, w)
    o[0].backward()
    return (x.grad, w.grad, o[1:])


def p_freeze(C):
    m = fill(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)))
    c = C(m)
    r = []
    for fz in (False, True, False):
        for p in m[0].parameters():
            p.requires_grad_(not fz)
        m.zero_grad()
        c(X(2, 3)).sum().backward()
        r.append([None if p.grad is None else p.grad.clone() for p in m.parameters()])
    return r


def p_load_state(C):
    m = fill(nn.Linear(3, 2))
    c = C(m)
    r = [D(c(X(2, 3)))]
    sd = {k: v * 2 for k, v in m.state_dict().items()}
    m.load_state_dict(sd)
    r.append(D(c(X(2, 3))))
    m.double()
    r.append(D(c(X(2, 3).double())))
    m.float()
    r.append(D(c(X(2, 3))))
    return r


def p_deepcopy_compiled(C):
    m = fill(nn.Linear(3, 2))
    c = C(m)
    a = D(c(X(2, 3)))
    d = copy.deepcopy(m)
    with taper.no_grad():
        d.weight.mul_(3)
    e = C(d)
    return (a, D(e(X(2, 3))), D(c(X(2, 3))))


def p_module_swap(C):

    class W(nn.Module):

        def __init__(s):
            super().__init__()
            s.inner = nn.Identity()
            s.scale = 2

        def forward(s, x):
            return s.inner(x) * s.scale
    w = W()
    c = C(w)
    r = [c(X(2))]
    w.inner = nn.ReLU()
    r.append(c(-X(2)))
    w.scale = 3
    r.append(c(X(2)))
    w.scale = X(2)
    r.append(c(X(2)))
    return r


def p_module_call_kwargs(C):

    class M(nn.Module):

        def forward(s, x, *, scale=1.0, bias=None, **kw):
            y = x * scale
            if bias is not None:
                y = y + bias
            return (y, sorted(kw))
    m = M()
    log = []
    m.register_forward_pre_hook(lambda mod, a, k: (log.append(sorted(k)), (a, {**k, 'scale': k.get('scale', 1) * 2}))[1], with_kwargs=True)
    m.register_forward_hook(lambda mod, a, k, o: (log.append(len(a)), None)[1], with_kwargs=True)
    c = C(m)
    return (c(X(2)), c(X(2), scale=3.0), c(X(2), bias=X(2), q=1), log)


def p_list_of_tensors_attr(C):

    class M(nn.Module):

        def __init__(s):
            super().__init__()
            s.acts = []
            s.stats = {}

        def forward(s, x):
            s.acts.clear()
            for i in range(3):
                x = x * 2
                s.acts.append(x)
                s.stats[f'l{i}'] = x.mean()
            return x
    m = M()
    c = C(m)
    r = []
    for k in (1, 2):
        c(X(2) * k)
        r.append((list(m.acts), dict(m.stats)))
    return r


def p_functional_modules(C):

    class Mlp(nn.Module):

        def __init__(s, *dims, act=nn.ReLU):
            super().__init__()
            s.layers = nn.Sequential(*itertools.chain.from_iterable(((nn.Linear(a, b), act()) for a, b in zip(dims, dims[1:]))))

        def forward(s, x):
            return functools.reduce(lambda h, l: l(h), s.layers, x)
    m = fill(Mlp(3, 4, 2))
    c = C(m)
    return (D(c(X(2, 3))), D(c(X(5, 3))))


def p_mixin_super(C):

    class A(nn.Module):

        def __init__(s, **k):
            super().__init__(**k)
            s.l = nn.Linear(2, 2)

        def forward(s, x):
            return s.post(s.l(s.pre(x)))

        def pre(s, x):
            return x

        def post(s, x):
            return x

    class Pre:

        def pre(s, x):
            return super().pre(x) * 2

    class Post:

        def post(s, x):
            return super().post(x) + 1

    class M(Pre, Post, A):
        pass
    m = fill(M())
    c = C(m)
    r = [D(c(X(2, 2)))]
    M.pre = lambda s, x: x - 1
    r.append(D(c(X(2, 2))))
    del M.pre
    r.append(D(c(X(2, 2))))
    return r


def p_getattr_module(C):

    class M(nn.Module):

        def __init__(s):
            super().__init__()
            s.l = nn.Linear(2, 2)

        def __getattr__(s, n):
            try:
                return super().__getattr__(n)
            except AttributeError:
                if n.startswith('x_'):
                    return len(n)
                raise

        def forward(s, x):
            return s.l(x) * s.x_abc + hasattr(s, 'nope')
    m = fill(M())
    c = C(m)
    r = [D(c(X(2, 2)))]
    m.x_abc = 10
    r.append(D(c(X(2, 2))))
    m.nope = 1
    r.append(D(c(X(2, 2))))
    return r


def p_weight_tie_norm(C):

    class M(nn.Module):

        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(5, 3)
            s.o = nn.Linear(3, 5, bias=False)
            s.o.weight = s.e.weight

        def forward(s, i):
            return s.o(s.e(i))
    m = fill(M())
    c = C(m)
    i = taper.tensor([0, 2, 4])
    c(i).sum().backward()
    g = m.e.weight.grad.clone()
    m.o.weight = nn.Parameter(taper.ones(5, 3))
    return (g, D(c(i)), len(list(m.parameters())))


def p_dropout_seed(C):
    m = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.2))
    c = C(m)
    r = []
    for k in range(3):
        taper.manual_seed(k)
        r.append(c(taper.ones(4, 4)))
    m.eval()
    r.append(c(taper.ones(2, 2)))
    return r


def p_random_ops(C):

    def f(x):
        return (x + taper.rand(3), taper.randn(2, 2), taper.randint(0, 10, (3,)), taper.randperm(5), taper.bernoulli(taper.full((4,), 0.5)))
    c = C(f)
    taper.manual_seed(5)
    return (c(X(3)), c(X(3)))


def p_dtype_promote(C):

    def f(x, i, s):
        return (x + i, i * s, i / 2, x * 2.5, i // 2, i % 2, x > i, taper.where(i > 1, x, i), i ** 2, x.int() + s, i + True, (x > 1) + 1, taper.cat([x, i]))
    c = C(f)
    i = taper.tensor([1, 2, 3])
    return ([c(X(3), i, s) for s in (2, 2.5, True)], [c(X(3).double(), i, 2)], [c(X(3).half(), i, 2)])


def p_empty_scalar(C):

    def f(x):
        return (x.sum(), x.reshape(-1), x + 1, x.numel(), x.mean() if x.numel() else 0, taper.cat([x, x]) if x.dim() else x)
    c = C(f)
    return ([c(X(*s)) for s in ((0,), (0, 3), (2, 0), (1,), (1, 1), (3,))], c(taper.tensor(2.0)), c(taper.tensor(3.0)))


def p_noncontig(C):

    def f(x):
        return (x * 2, x.sum(0), x.reshape(-1), x.is_contiguous(), x.stride(), (x + 1).stride(), x.contiguous().view(-1))
    c = C(f)
    a = X(4, 3)
    return [c(v) for v in (a, a.t(), a[::2], a[:, 1:], a.t()[1:], a[1:].t(), X(2, 3, 4).permute(2, 0, 1).reshape(4, 6), a.expand(4, 3))]


def p_threads(C):

    def f(x, k):
        return (x * k).sum()
    c = C(f)
    out = {}

    def w(k):
        out[k] = [c(X(n), k).item() for n in (2, 3, 4)]
    ts = [threading.Thread(target=w, args=(k,)) for k in range(4)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    return [out[k] for k in range(4)]


def p_exception_midway(C):

    class S:

        def __init__(s):
            s.n = 0
            s.l = []

    def f(x, s, bad):
        s.n += 1
        s.l.append(x.sum())
        x.add_(1)
        if bad:
            raise ValueError('mid')
        s.n += 10
        return x * s.n
    s = S()
    c = C(f)
    x = X(2)
    r = []
    for b in (0, 1, 0, 1, 1, 0):
        try:
            r.append(c(x, s, b))
        except ValueError as e:
            r.append(str(e))
    return (r, s.n, len(s.l), x)


def p_op_error_midway(C):

    class S:
        n = 0

    def f(x, y, s):
        s.n += 1
        z = x + 1
        w = z @ y
        s.n += 100
        return w
    s = S()
    c = C(f)
    r = []
    for y in (X(3, 2), X(4, 2), X(3, 2)):
        try:
            r.append(c(X(2, 3), y, s))
        except RuntimeError as e:
            r.append(str(e)[:60])
    return (r, s.n)


def p_sched_train(C):
    m = fill(nn.Linear(3, 1))
    o = taper.optim.Adam(m.parameters(), lr=0.1)
    sc = taper.optim.lr_scheduler.StepLR(o, 1, gamma=0.5)

    def step(x):
        o.zero_grad()
        l = (m(x) ** 2).mean()
        l.backward()
        o.step()
        return l
    c = C(step)
    r = []
    for k in range(4):
        r.append(c(X(2, 3)).item())
        sc.step()
    return (r, [D(p) for p in m.parameters()], o.param_groups[0]['lr'])


def p_clip_grad(C):
    m = fill(nn.Linear(3, 2), 0.5)

    def step(x):
        m.zero_grad()
        (m(x) ** 2).sum().backward()
        n = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        return n
    c = C(step)
    return ([D(c(X(2, 3) * k)) for k in (1, 2)], [D(p.grad) for p in m.parameters()])


def p_einsum_misc(C):

    def f(x, y):
        return (taper.einsum('ij,jk->ik', x, y), F.softmax(x, -1), x.topk(1, -1), x.sort(-1), x.max(1), taper.stack([x, x], 1), x.chunk(2, 1), x.split([1, 2], 1), taper.meshgrid(x[0], x[1], indexing='ij'), x.unbind(0), F.one_hot(taper.tensor([0, 2]), 3), x.flip(0), x.roll(1, 0), taper.outer(x[0], x[1]), F.pad(x, (1, 1)), x.cumsum(0), x.masked_fill(x > 1, 0), x.gather(1, taper.tensor([[0], [1]])), x.norm(), x.var(0), x.argmax(), taper.allclose(x, x))
    c = C(f)
    return (c(X(2, 3), X(3, 2)), c(X(2, 3) * 2, X(3, 4)))
