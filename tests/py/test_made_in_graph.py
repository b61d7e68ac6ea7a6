"""Tensors that compiled code makes by the older constructors, parameters that it makes, and sizes that counts decide: one graph each."""
import taper
from taper import nn
from taper._dynamo.utils import counters

import taper.torch_alias  # noqa: F401  the legacy classes are torch's
import torch

BACKENDS = ("eager", "aot_eager", "inductor")


def flat(v):
    if isinstance(v, taper.Tensor):
        return type(v).__name__, v.dtype, v.requires_grad, v.is_leaf, v.tolist()
    return [flat(i) for i in v] if isinstance(v, (tuple, list)) else v


def same(f, *makes):
    """As eager, in results and gradients, as one graph."""
    seen = []
    for backend in (None, *BACKENDS):
        taper._dynamo.reset()
        counters.clear()
        args = [m() for m in makes]
        c = taper.compile(f, backend=backend, fullgraph=True) if backend else f
        out = [c(*args), c(*args)]
        for r in out:
            first = r[0] if isinstance(r, tuple) else r
            if first.requires_grad:
                first.sum().backward()
        seen.append((flat(out), [None if a.grad is None else a.grad.tolist() for a in args if isinstance(a, taper.Tensor)]))
        assert not counters["graph_break"] and seen[0] == seen[-1], (backend, seen[0], seen[-1])


def leaf():
    return taper.arange(6.0).requires_grad_()


def test_legacy_constructors():
    def f(x):
        return (x * 2, torch.Tensor([1, 2.5]), torch.FloatTensor([[1, 2], [3, 4]]), torch.LongTensor([1, 2]), torch.Tensor(2, 3).shape,
                torch.FloatTensor(3).fill_(1), x.new(2).shape, torch.Tensor(x.shape).shape, torch.Tensor().shape,
                torch.BoolTensor([True]), x.new([1.0, 2.0]), x.new(x.shape).zero_(), torch.Tensor((1, 2)))
    same(f, lambda: taper.ones(6))
    same(lambda x, k: x * torch.Tensor([k, 1, 1]).sum(), leaf, lambda: 2)


def test_parameters():
    def made(x):
        p = nn.Parameter(taper.ones(6) * 2)
        q = nn.Parameter(x, requires_grad=False)
        return (p * x).sum(), q, isinstance(p, nn.Parameter), p.requires_grad, p.is_leaf, type(q) is nn.Parameter
    same(made, lambda: taper.ones(6))
    same(made, leaf)

    def returned(x):
        p = nn.Parameter(x * 2)
        return (p * x).sum(), p
    same(returned, leaf)


def test_counts_that_are_data():
    def f(x, n):
        a = taper.repeat_interleave(x, n)
        return a.sin(), x.repeat_interleave(n).sum(), taper.repeat_interleave(n), x.view(6, 1).repeat_interleave(n, dim=0), \
            x.repeat_interleave(n, output_size=6)
    same(f, leaf, lambda: taper.tensor([1, 2, 0, 1, 1, 1]))
    same(lambda x, n: taper.repeat_interleave(x.view(2, 3), n, dim=1), leaf, lambda: taper.tensor([2]))
    same(lambda x: (taper.repeat_interleave(x, 2), taper.repeat_interleave(x.view(2, 3), 3, dim=1)), leaf)
    c = taper.compile(lambda x, n: x.repeat_interleave(n) * 2, fullgraph=True)
    for n in ([1, 0, 2], [3, 3, 3], [0, 0, 0]):
        n = taper.tensor(n)
        assert c(taper.arange(3.0), n).tolist() == (taper.arange(3.0).repeat_interleave(n) * 2).tolist()
    assert counters["stats"]["unique_graphs"] <= 2
