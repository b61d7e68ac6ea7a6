"""Convolutions and their gradients against PyTorch: strides, padding, dilation, groups, transposed, layouts, odd sizes."""
import random
import unittest

import taper

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not importable")


def off(got, want):
    """Largest difference relative to the largest value."""
    got = torch.tensor(got.detach().numpy())
    assert got.shape == want.shape, (got.shape, want.shape)
    return ((got - want).abs().max() / (want.abs().max() + 1e-6)).item() if want.numel() else 0.0


def case(r):
    """Arguments of one convolution, or None where the window does not fit."""
    nd = r.choice([1, 2, 2, 2, 3])
    groups, cg, og = r.choice([1, 1, 1, 2, 3]), r.choice([1, 3, 8, 16, 17, 24, 32]), r.choice([1, 4, 8, 16, 17, 32, 48, 33])
    k, s, p, d = ([r.choice(c) for _ in range(nd)] for c in ([1, 2, 3, 3, 5, 7], [1, 1, 2, 3], [0, 1, 2, 3], [1, 1, 2]))
    size = [r.choice({1: [1, 9, 64, 150], 2: [4, 7, 8, 16, 33], 3: [5, 6, 9]}[nd]) for _ in range(nd)]
    if any(size[i] + 2 * p[i] < d[i] * (k[i] - 1) + 1 for i in range(nd)):
        return None
    turned = r.random() < 0.25
    kw = dict(stride=s, padding=p, dilation=d, groups=groups)
    if turned:
        kw["output_padding"] = [r.randrange(max(s[i], d[i])) for i in range(nd)]
    cin = cg * groups
    return nd, turned, r.choice([0, 1, 2, 3, 5]), cin, og * groups, [cin, og] + k if turned else [og * groups, cg] + k, size, kw


def test_convolutions_and_gradients():
    r = random.Random(7)
    torch.manual_seed(0)
    done = 0
    while done < 30:
        c = case(r)
        if c is None:
            continue
        nd, turned, n, cin, cout, wsize, size, kw = c
        dt, tol = r.choice([(torch.float32, 2e-5), (torch.float32, 2e-5), (torch.float64, 1e-12)])
        x = torch.randn(n, cin, *size, dtype=dt)
        if nd == 2 and r.random() < 0.2:
            x = x.to(memory_format=torch.channels_last)
        elif r.random() < 0.2:
            x = torch.randn(n, cin, *size[:-1], 2 * size[-1], dtype=dt)[..., ::2]
        w, b = torch.randn(*wsize, dtype=dt), torch.randn(cout, dtype=dt) if r.random() < 0.5 else None
        mine = [None if t is None else taper.from_numpy(t.numpy()).detach().requires_grad_(True) for t in (x, w, b)]
        theirs = [None if t is None else t.detach().requires_grad_(True) for t in (x, w, b)]
        name = f"conv_transpose{nd}d" if turned else f"conv{nd}d"
        try:
            want = getattr(torch.nn.functional, name)(*theirs, **kw)
        except RuntimeError:
            continue
        got = getattr(taper.nn.functional, name)(*mine, **kw)
        dy = torch.randn_like(want)
        want.backward(dy)
        got.backward(taper.from_numpy(dy.numpy()))
        done += 1
        assert off(got, want.detach()) < tol, (name, c)
        for i in range(3):
            if theirs[i] is not None:
                assert off(mine[i].grad, theirs[i].grad) < 5 * tol, (name, i, c)
