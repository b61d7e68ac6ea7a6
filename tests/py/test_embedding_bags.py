"""EmbeddingBag: bags of one length (two dimensions) against the same bags by offsets, and as one kernel."""
import taper
from taper.nn import functional as F


def both(idx, weight, **kw):
    by_length = F.embedding_bag(idx, weight, **kw)
    flat = {k: v.reshape(-1) if k == "per_sample_weights" else v for k, v in kw.items()}
    offsets = taper.arange(0, idx.numel(), idx.size(1))
    return by_length, F.embedding_bag(idx.reshape(-1), weight, offsets, **flat)


def test_same_as_offsets():
    taper.manual_seed(0)
    weight, idx = taper.randn(50, 24), taper.randint(0, 50, (9, 7))
    weight[3] = float("nan")  # the padding row may hold anything
    idx[idx == 3] = 4
    padded = idx.clone()
    padded[2], padded[4, 1:3] = 3, 3
    w = taper.randn(9, 7)
    for kw in ({"mode": "sum"}, {"mode": "mean"}, {"mode": "max"}, {"mode": "sum", "per_sample_weights": w}):
        a, b = both(idx, weight, **kw)
        assert (a - b).abs().max().item() < 1e-5
        a, b = both(padded, weight, padding_idx=3, **kw)
        assert not a.isnan().any() and (a - b).abs().max().item() < 1e-5
        fn = taper.compile(lambda i: F.embedding_bag(i, weight, padding_idx=3, **kw))
        assert (fn(padded) - a).abs().max().item() < 1e-5


def test_gradients_and_narrow_types():
    taper.manual_seed(1)
    idx = taper.randint(0, 20, (6, 5))
    for mode in ("sum", "mean"):
        grads = []
        for way in (0, 1):
            weight = taper.randn(20, 8, generator=taper.Generator().manual_seed(7)).requires_grad_()
            (both(idx, weight, mode=mode)[way] ** 2).sum().backward()
            grads.append(weight.grad)
        assert (grads[0] - grads[1]).abs().max().item() < 1e-5
        a, b = both(idx, taper.randn(20, 8).to(taper.bfloat16), mode=mode)
        assert a.dtype == taper.bfloat16 and (a.float() - b.float()).abs().max().item() < 0.04


def test_one_kernel():
    bag, idx = taper.nn.EmbeddingBag(30, 16, mode="sum"), taper.randint(0, 30, (8, 4))
    counts = []

    def count(gm, args):
        counts.append([n.target for n in gm.graph.nodes if n.op == "call_function"])
        return gm.forward

    with taper.no_grad():
        want = bag(idx)
        assert (taper.compile(bag)(idx) - want).abs().max().item() < 1e-6
        taper.compile(bag, backend=count)(idx)
    assert counts and not any("index_add" in str(t) for t in counts[0])
