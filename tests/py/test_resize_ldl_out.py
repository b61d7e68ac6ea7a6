"""Resizing with antialiasing, LDL and Householder factors, the linear cross entropy, and the rules of out=."""
import taper
import taper.nn.functional as F
from test_binding import raises


def close(a, b, tol=1e-5):
    assert a.shape == b.shape and (a - b).abs().max().item() <= tol, (a - b).abs().max()


def test_antialias_counts_every_place():
    """A picture made four times smaller is the weighted mean of what each place stands for; its mean stays."""
    x = taper.arange(64.0).view(1, 1, 8, 8)
    small = F.interpolate(x, size=(2, 2), mode="bilinear", antialias=True)
    # the triangle of reach 4 around 2 and 6, cut at the edges, weights 1/8 3/8 5/8 7/8 7/8 5/8 3/8 1/8
    w = taper.tensor([0.625, 0.875, 0.875, 0.625, 0.375, 0.125, 0.0, 0.0])
    w = taper.stack([w, w.flip(0)]) / w.sum()
    close(small[0, 0], w @ x[0, 0] @ w.t())
    assert abs(small.mean().item() - x.mean().item()) < 1e-4
    for mode in ("bilinear", "bicubic"):
        up = F.interpolate(x, size=(16, 12), mode=mode, antialias=True)
        flat = F.interpolate(taper.ones(2, 3, 5, 7), scale_factor=0.3, mode=mode, antialias=True)
        assert up.shape == (1, 1, 16, 12) and (flat - 1).abs().max().item() < 1e-6
    raises(ValueError, lambda: F.interpolate(x, size=(2, 2), mode="nearest", antialias=True), "restricted to bilinear and bicubic")


def test_ldl():
    a = taper.tensor([[0.0, 2.0, 1.0], [2.0, 0.0, 3.0], [1.0, 3.0, 4.0]])  # its first pivot is a block of two
    b = taper.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    f = taper.linalg.ldl_factor(a)
    close(a @ taper.linalg.ldl_solve(f.LD, f.pivots, b), b)
    many = taper.stack([a, a + 5 * taper.eye(3)])
    g = taper.linalg.ldl_factor_ex(many)
    assert g.info.tolist() == [0, 0] and g.pivots.dtype is taper.int32
    close(many @ taper.linalg.ldl_solve(g.LD, g.pivots, b), b.expand(2, 3, 2), 1e-4)
    raises(RuntimeError, lambda: taper.linalg.ldl_factor(taper.zeros(3, 3)), "is zero")
    raises(RuntimeError, lambda: taper.linalg.ldl_solve(f.LD, f.pivots + 9, b), "pivots are not those of ldl_factor")
    raises(RuntimeError, lambda: taper.linalg.ldl_solve(f.LD, f.pivots[:2], b), "Expected LD.shape[:-1] and pivots.shape to be the same")
    raises(RuntimeError, lambda: taper.linalg.ldl_factor(taper.zeros(3, 2)), "square matrices")


def test_geqrf():
    x = taper.tensor([[3.0, 1.0], [4.0, 2.0], [0.0, 2.0]])
    h = taper.geqrf(x)
    close(taper.linalg.householder_product(h.a, h.tau) @ h.a[:2].triu(), x)
    raises(RuntimeError, lambda: taper.geqrf(taper.ones(3)), "at least 2 dimensions")


def test_linear_cross_entropy():
    x, w, t = taper.randn(4, 6), taper.randn(5, 6), taper.tensor([0, 4, 2, 1])
    close(F.linear_cross_entropy(x, w, t, label_smoothing=0.1), F.cross_entropy(F.linear(x, w), t, label_smoothing=0.1))
    wide, many = taper.randn(5, 2, 6), taper.tensor([[0, 1], [4, 3], [2, 2], [1, 0]])
    close(F.linear_cross_entropy(x, wide, many), F.cross_entropy(taper.einsum("ni,cki->nck", x, wide), many))


def test_out_keeps_its_type_and_memory():
    """out= of another type or on top of an argument is refused where PyTorch refuses it, and written where it is given."""
    x, i = taper.arange(6.0), taper.tensor([0, 2, 4])
    raises(RuntimeError, lambda: taper.gather(x, 0, i, out=taper.empty(3, dtype=taper.float64)), "Expected out tensor to have dtype")
    raises(RuntimeError, lambda: taper.mm(x.view(2, 3), x.view(3, 2), out=taper.empty(2, 2, dtype=taper.float64)), "Expected out tensor")
    raises(RuntimeError, lambda: taper.take(x, i, out=x[:3]), "refer to a single memory location")
    raises(RuntimeError, lambda: taper.cat([x[:2], x[2:4]], out=x[:4]), "refer to a single memory location")
    raises(RuntimeError, lambda: taper.gather(x, 0, i, out=taper.zeros(1).expand(3)), "more than one element of the written-to tensor")
    raises(RuntimeError, lambda: taper.zeros(1).expand(3).normal_(), "more than one element of the written-to tensor")
    raises(RuntimeError, lambda: x.narrow(0, i, 1), "start must be an 0-dim integral Tensor")
    assert x.narrow(0, taper.tensor(2), 2).tolist() == [2, 3]
    o = taper.empty(0)
    assert taper.view_copy(x, (2, 3), out=o) is o and o.tolist() == [[0, 1, 2], [3, 4, 5]]
    u, s, v = taper.empty(0), taper.empty(0), taper.empty(0)
    taper.linalg.svd(x.view(2, 3), out=(u, s, v))
    close(u @ taper.diag(s) @ v[:2], x.view(2, 3))
    assert taper.add(x, x, out=taper.empty(6, dtype=taper.float64)).dtype is taper.float64
