"""Training from the same weights and data gives PyTorch's losses, parameters and buffers.

Losses agree to 1e-4 (float32) and 1e-9 (float64) of where they start, parameters to the same part of the largest
element of their tensor. Over 50 steps in float32 the parameters were within 4e-6 of PyTorch's in all 24 combinations
(float32 in PyTorch is itself up to 1e-5 from float64)."""
import copy
import os
import sys
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not importable")
import taper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import models  # noqa: E402

torch.set_num_threads(1)  # small models: a second thread only waits
taper.set_num_threads(1)
STEPS = int(os.environ.get("TAPER_ORACLE_STEPS", "12"))  # 50 for the full proof
OPTIMISERS = {
    "sgd": lambda lib, p: lib.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda lib, p: lib.optim.Adam(p, lr=1e-3),
    "adamw": lambda lib, p: lib.optim.AdamW(p, lr=1e-3, weight_decay=0.05),
}


def to_taper(t):
    return taper.from_numpy(t.detach().numpy().copy())


def pair(name, dtype):
    """The same model, weights and data in both libraries; dropout off, for its draws differ."""
    tm, targs, ttarget, tloss = models.build(name, torch, small=True)
    mm, _, _, mloss = models.build(name, taper, small=True)
    tm = tm.to(getattr(torch, dtype))
    mm = mm.to(getattr(taper, dtype))
    mm.load_state_dict({k: to_taper(v) for k, v in tm.state_dict().items()})
    for m in (tm, mm):
        for x in m.modules():
            if type(x).__name__ == "Dropout":
                x.p = 0.0
    cast = lambda t: t.to(getattr(torch, dtype)) if t.is_floating_point() else t  # noqa: E731
    targs, ttarget = tuple(cast(a) for a in targs), cast(ttarget)
    return (tm, targs, ttarget, tloss), (mm, tuple(to_taper(a) for a in targs), to_taper(ttarget), mloss)


def noise(model, args, target, loss):
    """Elements whose true gradient is zero (a bias before a batch norm, the key bias of attention): what reaches
    them is rounding noise, which Adam scales up to a full step in a random direction."""
    m = copy.deepcopy(model).double()
    loss(m(*(a.double() if a.is_floating_point() else a for a in args)), target.double() if target.is_floating_point() else target).backward()
    return {k: p.grad.abs() < 1e-9 for k, p in m.named_parameters() if p.grad is not None}


def train(name, opt, dtype, tol):
    (tm, ta, tt, tl), (mm, ma, mt, ml) = pair(name, dtype)
    skip = noise(tm, ta, tt, tl)
    to, mo = OPTIMISERS[opt](torch, tm.parameters()), OPTIMISERS[opt](taper, mm.parameters())
    for step in range(STEPS):
        a = models.train_step(tm, ta, tt, tl, to).item()
        b = models.train_step(mm, ma, mt, ml, mo).item()
        assert abs(a - b) <= tol * (1 + abs(a)), f"{name} {opt} {dtype}: loss at step {step}: {b} here, {a} there"
    have = mm.state_dict()
    for k, v in tm.state_dict().items():
        w = have[k]
        diff = (v.double() - torch.from_numpy(w.detach().double().numpy())).abs()
        if k in skip:
            diff = diff[~skip[k]]
        d = diff.max().item() if diff.numel() else 0
        noisy = dtype == "float32" and any(m.any() for m in skip.values()) and k not in dict(tm.named_parameters())
        # a noisy bias before a batch norm shifts the running mean by just that noise, which Adam makes a step of 1e-3 of each time
        size = v.double().abs().max().item()
        lim = max(100 * tol * (1 + size), STEPS * 1e-3) if noisy else tol * max(size, 1e-3)
        assert d <= lim, f"{name} {opt} {dtype}: {k} differs by {d}"


def make(name, opt, dtype, tol):
    def test():
        train(name, opt, dtype, tol)

    return test


for _n in models.NAMES:
    for _o in OPTIMISERS:
        globals()[f"test_{_n}_{_o}_float32"] = make(_n, _o, "float32", 1e-4)
        globals()[f"test_{_n}_{_o}_float64"] = make(_n, _o, "float64", 1e-9)
