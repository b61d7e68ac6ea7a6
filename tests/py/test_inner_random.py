"""Random programs that take gradients inside a compiled function and are differentiated outside: in one graph, and with a break at every decision."""
import random

import taper
from taper._dynamo.utils import counters

F = taper.nn.functional
UNARY = [taper.sin, taper.tanh, taper.sigmoid, taper.atan, F.gelu, F.softplus, F.silu, lambda t: t * t, lambda t: taper.exp(t * 0.3), lambda t: t.softmax(-1),
         lambda t: F.log_softmax(t, -1), lambda t: F.layer_norm(t, (4,)), lambda t: F.normalize(t, dim=-1), lambda t: t.t(), lambda t: t.cumsum(0),
         lambda t: taper.relu(t) + t, lambda t: t.flip(0), lambda t: t.roll(1, 0), lambda t: t / (1 + t * t), lambda t: t.clamp(-0.5, 0.8),
         lambda t: t.view(-1).view(4, 4), lambda t: t.sort(0)[0], lambda t: t.logsumexp(0, keepdim=True) + t, lambda t: t.std(0) + t,
         lambda t: t[[2, 0, 1, 3]], lambda t: taper.where(t > 0, t, t * 0.1)]
BINARY = [lambda a, b: a * b, lambda a, b: a @ b, lambda a, b: a + b, lambda a, b: a - b * 0.5, taper.maximum, lambda a, b: a / (b * b + 1)]


class Decisions:
    """What a random.Random would say, written down before: plain Python for capture."""

    def __init__(self, said, breaks):
        self.said, self.at, self.breaks = said, 0, breaks

    def random(self):
        self.at += 1
        if self.breaks:
            taper._dynamo.graph_break()
        return self.said[self.at - 1]

    def below(self, n):
        return int(self.random() * n)

    def one_of(self, values):
        return values[self.below(len(values))]


def program(seed, breaks):
    source = random.Random(seed)
    said = [source.random() for _ in range(80)]

    def grow(r, values, n):
        for _ in range(n):
            values.append(r.one_of(UNARY)(r.one_of(values)) if r.random() < 0.6 else r.one_of(BINARY)(values[-1 - r.below(2)], r.one_of(values)))

    def f(x, w, b):
        r = Decisions(said, breaks)
        values = [x, w, b]
        grow(r, values, 2 + r.below(4))
        last, kind = values[-1], r.below(5)
        if kind == 0:
            at = r.below(4)
            values += [g for g in taper.autograd.grad(last.sin().sum(), [values[at], values[(at + 1) % 4]], create_graph=True, allow_unused=True) if g is not None]
        elif kind == 1:
            def inner(y):
                v = [y, w]
                grow(Decisions(said, breaks), v, 3)
                return v[-1].sum() + y.sum()
            values.append(taper.func.grad(inner)(last))
        elif kind == 2:
            y = last.detach().requires_grad_()
            values += taper.autograd.grad((y * w).tanh().sum(), y, create_graph=r.random() < 0.7)
        elif kind == 3:
            values += [g for g in taper.autograd.grad((last * b).sum(), [x], retain_graph=True, allow_unused=True) if g is not None]
        else:
            values.append(taper.func.vjp(lambda t: taper.sin(t * w), last)[1](b)[0])
        grow(r, values, 1 + r.below(3))
        return values[-1].sum() + values[-2].mean(), values[-1]
    return f


def outcome(fn, seed):
    taper.manual_seed(seed)
    x = [taper.randn(4, 4, dtype=taper.float64).requires_grad_() for _ in range(3)]
    total, last = fn(*x)
    sums = total + last.sin().sum()
    if sums.requires_grad:
        sums.backward()
    return [sums.detach()] + [t.grad for t in x], sums.requires_grad


def same(a, b):
    return (a is None and b is None) or (a is not None and b is not None and taper.allclose(a, b, rtol=1e-6, atol=1e-8, equal_nan=True))


def check(seeds, breaks):
    for seed in seeds:
        f = program(seed, breaks)
        want = outcome(f, seed)
        for backend in ("aot_eager", "inductor"):
            taper._dynamo.reset()
            got = outcome(taper.compile(f, backend=backend), seed)
            assert got[1] == want[1] and all(map(same, got[0], want[0])), (seed, backend, got, want)
            assert bool(counters["graph_break"]) == breaks, (seed, counters["graph_break"])


def test_in_one_graph():
    check(range(60), False)


def test_with_breaks():
    check(range(100, 140), True)


def test_programs_whose_kernels_were_ordered_wrongly():
    """A kernel that another one had taken over was still waited for, or its successor in its place."""
    check((643, 770), False)
