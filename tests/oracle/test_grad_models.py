"""Gradients of whole models against PyTorch's, from the same weights, in float64."""
import os
import sys
import unittest
import warnings

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not importable: gradients of models are not compared with it")
import taper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import models  # noqa: E402

warnings.simplefilter("ignore")


def ours(t):
    return taper.tensor(t.tolist(), dtype=taper.float64 if t.is_floating_point() else taper.int64)


def check(name):
    theirs, inputs, target, loss_t = models.build(name, torch, small=True)
    mine, _, _, loss_m = models.build(name, taper, small=True)
    theirs, mine = theirs.double(), mine.double()
    mine.load_state_dict({k: ours(v) for k, v in theirs.state_dict().items()})
    inputs = [x.double() if x.is_floating_point() else x for x in inputs]
    target = target.double() if target.is_floating_point() else target
    a, b = loss_t(theirs(*inputs), target), loss_m(mine(*[ours(x) for x in inputs]), ours(target))
    a.backward()
    b.backward()
    assert abs(a.item() - b.item()) < 1e-10, (name, a.item(), b.item())
    scale = max(p.grad.abs().max().item() for p in theirs.parameters())
    for (n, p), (m, q) in zip(theirs.named_parameters(), mine.named_parameters()):
        assert n == m and tuple(q.grad.stride()) == tuple(p.grad.stride()), (name, n, q.grad.stride(), p.grad.stride())
        worst = (torch.tensor(q.grad.tolist(), dtype=torch.float64) - p.grad).abs().max().item()
        assert worst < 1e-10 * max(scale, 1), (name, n, worst)


def test_models():
    for name in models.NAMES:
        if name != "autoencoder":  # draws its own dropout masks
            check(name)
