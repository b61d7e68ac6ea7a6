"""Gather, scatter and indexing against PyTorch."""
from aten import *

I = torch.tensor


def test_gather_and_scatter():
    torch.manual_seed(1)
    c = Tally()
    for dt in ALL:
        for x in layouts(rand(3, 4, dtype=dt)):
            for d in (0, 1, -1):
                ix = torch.randint(0, 3, (2, 3))
                for index in (ix, ix.int(), ix.t().contiguous().t()):
                    c("gather", x, d, index)
                    s = rand(3, 4, dtype=dt, lo=0)
                    c("scatter_add", x, d, index, s)
                    c("scatter.value", x, d, index, 1)
                    if dt != torch.bool:
                        for r in ("sum", "prod", "mean", "amax", "amin"):
                            for inc in (True, False):
                                c("scatter_reduce.two", x, d, index, s, r, include_self=inc)
                        c("scatter.reduce", x, d, index, s, reduce="add"), c("scatter.value_reduce", x, d, index, 2, reduce="multiply")
                u = torch.stack([torch.randperm(3) for _ in range(3)], 1 if d == 0 else 0)
                c("scatter.src", x, d, u, s)
    x = rand(3, 4)
    z = torch.zeros(2, 2).long()
    c("gather", x, 0, torch.ones(2, 2), text=True), c("gather", x, 0, I([0, 1]), text=True), c("gather", x, 0, torch.zeros(2, 5).long(), text=True)
    c("gather", x, 0, torch.full((2, 2), 5), text=True), c("gather", x, 0, torch.full((2, 2), -1), text=True), c("gather", x, 7, z, text=True)
    c("gather", torch.tensor(2.0), 0, I(0)), c("gather", torch.tensor(2.0), 0, I([0, 0])), c("gather", x, 0, torch.zeros(0, 4).long())
    c("scatter.src", x, 0, z, torch.ones(1, 1), text=True), c("scatter.value", x, 0, torch.zeros(2, 5).long(), 1, text=True)
    c("scatter.src", x, 0, z, z, text=True), c("scatter.value", x, 0, torch.full((2, 2), 5), 1, text=True), c("scatter.value", x, 0, I([0]), 1, text=True)
    c("scatter.value_reduce", x, 0, z, 1, reduce="foo", text=True), c("scatter_reduce.two", x, 0, z, torch.ones(2, 2), "foo", text=True)
    c("scatter_add_", x.clone(), 0, z, torch.ones(2, 2)), c("scatter_.value", x.clone(), 1, z, 3)
    c.end(500)


def test_slices_by_index():
    c = Tally()
    for dt in ALL:
        for x in layouts(rand(4, 3, 5, dtype=dt)):
            for d in (0, 1, 2, -1):
                n = x.shape[d]
                ix = torch.randint(0, n, (2,))
                sh = list(x.shape)
                sh[d] = 2
                s = rand(*sh, dtype=dt, lo=0)
                for index in (ix, ix.int()):
                    c("index_select", x, d, index), c("index_add", x, d, index, s)
                    if dt != torch.bool:
                        for r in ("prod", "mean", "amax", "amin"):
                            c("index_reduce", x, d, index, s, r), c("index_reduce", x, d, index, s, r, include_self=False)
                        c("index_add", x, d, index, s, alpha=2)
                c("index_copy", x, d, torch.randperm(n)[:2], s)
                c("index_fill.int_Scalar", x, d, I([0, -1]), 1), c("index_fill.int_Tensor", x, d, I([0, -1]), torch.tensor(2).to(dt))
            c("take", x, torch.randint(-60, 60, (2, 7)))
            p = torch.randperm(60)[:6].view(2, 3)
            c("put", x, p, rand(2, 3, dtype=dt)), c("put", x, p, rand(2, 3, dtype=dt, lo=0), True)
            c("take_along_dim", x, torch.randint(0, 3, (4, 2, 5)), 1), c("take_along_dim", x, torch.randint(0, 3, (1, 2, 1)), 1), c("take_along_dim", x, torch.randint(0, 60, (3,)))
            m = torch.rand(4, 3, 5) < 0.5
            c("masked_select", x, m), c("masked_select", x, m[0]), c("masked_scatter", x, m, rand(60, dtype=dt)), c("masked_scatter", x, m[:, :1], rand(60, dtype=dt))
    x = rand(3, 4)
    t = dict(text=True)
    o = torch.ones
    c("index_select", x, 0, I([5]), **t), c("index_select", x, 0, I([1.0]), **t), c("index_select", x, 0, torch.zeros(2, 2).long(), **t)
    c("index_select", torch.tensor(1.0), 0, I([0])), c("index_select", torch.tensor(1.0), 0, I(0))
    c("index_add", x, 0, I([0, 1]), o(3, 4), **t), c("index_add", x, 0, I([0, 5]), o(2, 4), **t), c("index_add", x, 0, I([0, 1]), o(2, 3), **t)
    c("index_add", x, 0, I([0, 1]), o(2, 4).double(), **t), c("index_add", x, 0, I([0.0, 1]), o(2, 4), **t)
    c("index_copy", x, 0, I([0, 1]), o(3, 4), **t), c("index_copy", x, 0, I([0, 5]), o(2, 4), **t), c("index_copy", x, 0, I([0, 1]), o(2, 3))
    c("index_fill.int_Scalar", x, 0, I([0, 5]), 1, **t), c("index_fill.int_Scalar", x, 0, I([0.0]), 1, **t), c("index_fill.int_Tensor", x, 0, I([0]), o(2), **t)
    c("take", x, I([12]), **t), c("take", x, I([1.0]), **t), c("put", x, I([12]), o(1), **t), c("put", x, I([1, 2]), o(1), **t)
    c("take_along_dim", x, I([0]), 0, **t), c("take_along_dim", x, torch.zeros(5, 5).long(), 0, **t)
    c("masked_select", x, I([1, 0]), **t), c("masked_select", torch.tensor(3.0), torch.tensor(True)), c("masked_scatter", x, o(3, 4).bool(), o(3), **t)
    c("masked_scatter", x, o(3, 4).long(), o(3), **t), c("masked_scatter_backward", rand(3, 4), x > 0, [5, 4])
    c("index_reduce", x, 0, I([0, 1]), o(2, 4), "foo", **t)
    c.end(500)


def test_indexing_by_tensors():
    c = Tally()
    b = torch.rand(4, 3) < 0.5
    for dt in ALL:
        for x in layouts(rand(4, 3, 5, dtype=dt)):
            a, d, e = I([0, 2, -1]), I([[1], [0]]), I([0, 1, 2]).int()
            for ix in ([a], [d], [None, e], [None, None, a], [a, e], [d, e], [a, None, e], [None, d, e], [a, e, e], [b], [b[:, 0]], [None, b[0]],
                       [b[:, 0], None, I([0])], [I([]).long()], [I(0), None, I(1)], [None, I(1)], [b & ~b],
                       [torch.zeros(2, 3).long().t()], [None, torch.zeros(2, 3).long().t()]):
                r = c("index.Tensor", x, ix)
                if r is None:
                    continue
                v = rand(*r.shape, dtype=dt, lo=0)
                c("index_put", x, ix, torch.tensor(1).to(dt)), c("index_put", x, ix, torch.tensor(1).to(dt), True), c("index_put", x, ix, v, True)
                if r.dim() and r.shape[0]:
                    c("index_put", x, ix, v[:1], True)
    x = rand(3, 4)
    t = dict(text=True)
    for ix in ([I([5])], [I([-4])], [I([1.0])], [torch.ones(4).bool()], [torch.ones(3, 5).bool()], [I([0, 1]), I([0, 1, 2])]):
        c("index.Tensor", x, ix, **t)
    c("index.Tensor", x, [I([0])] * 3)
    c("index_put", x, [I([0, 1])], torch.ones(3, 4), **t), c("index_put", x, [I([0, 1])], torch.ones(2, 4).long(), **t), c("index_put", x, [I([5])], torch.ones(1), **t)
    p = torch.randperm(12).view(3, 4)
    c("index_put", x, [p % 3, p // 3], rand(3, 4)), c("index_put_", x.clone(), [x > 0], torch.tensor(9.0))
    c.end(500)


def test_embedding():
    c = Tally()
    for dt in FLOATS:
        w = rand(6, 4, dtype=dt)
        for ix in (torch.randint(0, 6, (2, 3)), torch.randint(0, 6, (5,)).int(), I(3), torch.zeros(0).long()):
            c("embedding", w, ix), c("embedding", w.t().contiguous().t(), ix)
            g = rand(*ix.shape, 4, dtype=dt)
            for pad in (-1, 2):
                for f in (False, True):
                    c("embedding_dense_backward", g, ix, 6, pad, f, tol=1e-2 if dt in (torch.float16, torch.bfloat16) else None)
    c("embedding", w, I([6]), text=True), c("embedding", w, I([1.0]), text=True), c("embedding", torch.ones(3), I([1]), text=True)
    c("one_hot", I([[0, 2], [1, 1]])), c("one_hot", I([0, 2]), 5), c("one_hot", I([5]), 3, text=True), c("one_hot", I([-1]), text=True)
    c("one_hot", I([1.0]), text=True), c("one_hot", torch.zeros(0).long(), text=True), c("one_hot", I(3))
    c.end()
