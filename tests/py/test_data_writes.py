"""Writes through Tensor.data in compiled functions: in the graph where nothing is on the tape, and right everywhere. Such a write does not
count as one (Tensor._version), also when a graph does it."""
import taper


def graphs(f, *args):
    """(result, graphs, breaks)"""
    n = []

    def backend(gm, inputs):
        n.append(1)
        return gm.forward
    taper._dynamo.reset()
    taper._dynamo.utils.counters.clear()
    return taper.compile(f, backend=backend)(*args), len(n), sum(taper._dynamo.utils.counters["graph_break"].values())


def sgd(p, g):
    p.data.add_(g, alpha=-0.1)
    p.data.mul_(0.9)


def copied(p, g):
    p.data.copy_(g * 2)
    return p.data + 1


def part(p, g):
    p.data[1] = g[0]
    v = p.data[2:]
    v.zero_()
    return p.detach() * 2


def both_ways(p, g):
    p.data.add_(g)
    with taper.no_grad():
        p.mul_(2)
    return p.data.sum()


def before_and_after(p, g):
    y = p.detach() * 3
    p.data.sub_(g)
    return y + p.detach()


def test_one_graph():
    for f in (sgd, copied, part, both_ways, before_and_after):
        for leaf in (True, False):
            p = taper.arange(4.0).requires_grad_(leaf)
            assert graphs(f, p, taper.ones(4))[1:] == (1, 0), f


def test_as_eager():
    for backend in ("eager", "aot_eager", "inductor"):
        for f in (sgd, copied, part, both_ways, before_and_after):
            taper._dynamo.reset()
            c = taper.compile(f, backend=backend)
            for leaf in (True, False):
                p, q, g = taper.arange(4.0).requires_grad_(leaf), taper.arange(4.0).requires_grad_(leaf), taper.tensor([1.0, 2.0, -1.0, 0.5])
                kept = [(x * x).sum() if leaf else None for x in (p, q)]  # holds p, and sees what is written
                for _ in range(3):
                    a, b = f(p, g), c(q, g)
                    assert p.tolist() == q.tolist() and (a is None) == (b is None) and (a is None or a.tolist() == b.tolist()), (backend, f)
                    assert (p._version == 0) == (q._version == 0), (backend, f, p._version, q._version)
                if leaf and f is not both_ways:
                    for k in kept:
                        k.backward()
                    assert p.grad.tolist() == q.grad.tolist() == [2 * v for v in p.tolist()], (backend, f)


def test_with_the_tape():
    """A step that kept the tensor sees the write: that is no graph's business."""
    def f(p, x):
        y = (p * p * x).sum()
        p.data.mul_(2)
        return y + p.sum()

    def late(p, x):
        p.data.mul_(2)
        return (p * p * x).sum()
    for f in (f, late):
        for backend in ("eager", "aot_eager", "inductor"):
            taper._dynamo.reset()
            p, q, x = taper.ones(3, requires_grad=True), taper.ones(3, requires_grad=True), taper.arange(3.0)
            a, b = f(p, x), taper.compile(f, backend=backend)(q, x)
            assert a.item() == b.item() and p.tolist() == q.tolist() and p._version == q._version
            a.backward()
            b.backward()
            assert p.grad.tolist() == q.grad.tolist(), (backend, p.grad, q.grad)


class Model(taper.nn.Module):
    def __init__(self, step):
        super().__init__()
        taper.manual_seed(0)
        self.linear, self.book, self.step = taper.nn.Linear(4, 4), taper.nn.Parameter(taper.ones(3, 4), requires_grad=False), step
        self.register_buffer("mean", taper.ones(4))
        self.register_buffer("other", taper.full((4,), 3.0))

    def forward(self, x):
        return self.step(self, x)


def averages(m, x):
    h = m.linear(x).tanh()
    m.mean.data.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
    m.book.data.copy_(m.book * m.mean)
    return (h @ m.book.t()).sum()


def clipped(m, x):
    m.linear.weight.data.clamp_(-0.1, 0.1)
    m.linear.bias.data.fill_(0)
    return m.linear(x).pow(2).sum()


def replaced(m, x):
    m.mean.data = m.mean * 2
    y = m.linear(x) * m.mean
    m.other.data = m.mean.data
    return y.sum() + m.other.sum()


def replaced_by_another(m, x):
    m.mean.data = m.other
    with taper.no_grad():
        m.mean.mul_(2)
    return (m.linear(x) * m.other).sum()


def kept_before(m, x):
    y = m.linear(x)
    m.linear.weight.data.mul_(2)
    return (y * m.linear(x)).sum()


def result_kept(m, x):
    y = m.linear(x).exp()
    y.data.mul_(2)
    m.mean.data.add_(1)
    return (y * m.mean).sum()


def other_sizes(m, x):
    m.mean.data = taper.ones(2)
    return m.linear(x).sum() + m.mean.sum()


def test_beside_a_tape_that_kept_other_tensors():
    for step in (averages, clipped, replaced, replaced_by_another, other_sizes, kept_before, result_kept):
        want = None
        for backend in (None, "eager", "aot_eager", "inductor"):
            taper._dynamo.reset()
            taper._dynamo.utils.counters.clear()
            m = Model(step)
            c = taper.compile(m, backend=backend) if backend else m
            losses = []
            for _ in range(1 if step is other_sizes else 2):
                r = c(taper.arange(8.0).view(2, 4) / 8)
                r.backward()
                losses.append(round(r.item(), 4))
            got = (losses, [(n, [round(v, 4) for v in t.flatten().tolist()], t._version, None if t.grad is None else round(t.grad.sum().item(), 3))
                            for n, t in (*m.named_parameters(), *m.named_buffers())], m.mean.data_ptr() == m.other.data_ptr())
            want = want or got
            assert want == got, (step, backend, want, got)
            if backend and step not in (kept_before, result_kept):
                assert not taper._dynamo.utils.counters["graph_break"], (step, taper._dynamo.utils.counters["graph_break"])


def test_a_function_that_assigns():
    class Assign(taper.autograd.Function):
        @staticmethod
        def forward(ctx, scratch, value, index):
            ctx.index = index
            scratch.data[index] = value
            return scratch

        @staticmethod
        def backward(ctx, grad):
            return grad, grad[ctx.index], None

    def f(k, v):
        for i in range(3):
            k = Assign.apply(k, v * i, (Ellipsis, i))
        return k.sum(-1)
    with taper.no_grad():
        k, v = taper.zeros(2, 3), taper.ones(2)
        r, n, breaks = graphs(f, k, v)
        assert (n, breaks) == (1, 0) and r.tolist() == [3.0, 3.0] and k.tolist() == [[0.0, 1.0, 2.0]] * 2 and k._version == 0
    want, got = [], []
    for out, g in ((want, f), (got, taper.compile(f))):
        v = taper.ones(2, requires_grad=True)
        r = g(taper.zeros(2, 3), v)
        (r * taper.tensor([1.0, 2.0])).sum().backward()
        out += [r.tolist(), v.grad.tolist()]
    assert want == got, (want, got)
