"""Whole training steps compiled into one graph give PyTorch's losses, parameters and buffers."""
import os
import sys
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not importable")
import taper

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_models as base  # noqa: E402
from test_models import OPTIMISERS, models, pair  # noqa: E402

STEPS = int(os.environ.get("TAPER_ORACLE_STEPS", "20"))
BACKENDS = ["aot_eager", "aot_eager_decomp_partition", "inductor"]
assert base


def run(name, opt):
    for backend in BACKENDS:
        (tm, ta, tt, tl), (mm, ma, mt, ml) = pair(name, "float64")
        to, mo = OPTIMISERS[opt](torch, tm.parameters()), OPTIMISERS[opt](taper, mm.parameters())
        taper._dynamo.reset()
        step = taper.compile(lambda: models.train_step(mm, ma, mt, ml, mo), backend=backend, fullgraph=True)
        for k in range(STEPS):
            a, b = models.train_step(tm, ta, tt, tl, to).item(), step().item()
            assert abs(a - b) <= 1e-9 * (1 + abs(a)), f"{name} {opt} {backend}: loss at step {k}: {b} here, {a} there"
        have = mm.state_dict()
        for key, v in tm.state_dict().items():
            d = (v.double() - torch.from_numpy(have[key].detach().double().numpy())).abs().max().item() if v.numel() else 0
            assert d <= 1e-8 * (1 + v.double().abs().max().item()), f"{name} {opt} {backend}: {key} differs by {d}"
        for (key, p), q in zip(tm.named_parameters(), mm.parameters()):
            d = (p.grad - torch.from_numpy(q.grad.numpy())).abs().max().item()
            assert d <= 1e-8 * (1 + p.grad.abs().max().item()), f"{name} {opt} {backend}: gradient of {key} differs by {d}"


def _make(name, opt):
    return lambda: run(name, opt)


for _n in models.NAMES:
    for _o in OPTIMISERS:
        globals()[f"test_{_n}_{_o}"] = _make(_n, _o)
