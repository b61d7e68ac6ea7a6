"""State dicts through safetensors files, both ways: what PyTorch writes loads here into the same architecture and gives
the same outputs, and the reverse. The files are read and written by the safetensors package where it is installed, else
by Taper's own reader and writer on both sides (PyTorch's tensors through NumPy)."""
import os
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not importable")
try:
    import safetensors.torch as official
except ImportError:
    official = None
import taper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import models  # noqa: E402


def to_taper(t):
    return taper.from_numpy(t.detach().numpy().copy())


def torch_save(state, path):
    if official:
        official.save_file({k: v.contiguous() for k, v in state.items()}, path)
    else:
        taper.save({k: to_taper(v) for k, v in state.items()}, path)


def torch_load(path):
    return official.load_file(path) if official else {k: torch.from_numpy(v.numpy()) for k, v in taper.load(path).items()}


def outputs(name, dtype, theirs, mine, args):
    """The largest difference of the outputs, relative to their size; without dropout, statistics as stored."""
    theirs.eval(), mine.eval()
    cast = [a.to(dtype) if a.is_floating_point() else a for a in args]
    with torch.no_grad(), taper.no_grad():
        a, b = theirs(*cast), torch.from_numpy(mine(*[to_taper(x) for x in cast]).numpy())
    return ((a - b).abs().max() / a.abs().max()).item()


def both(name, dtype):
    theirs, args, target, loss = models.build(name, torch, seed=1, small=True)
    loss(theirs(*args), target)  # so that running statistics are not what they start as
    mine = models.build(name, taper, seed=2, small=True)[0]
    theirs, mine = theirs.to(dtype), mine.to(getattr(taper, str(dtype).split(".")[1]))
    tol = 1e-12 if dtype == torch.float64 else 2e-5 if dtype == torch.float32 else 0.05
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "a.safetensors")
        torch_save(theirs.state_dict(), path)
        state = taper.load(path)
        assert set(state) == set(theirs.state_dict()) == set(mine.state_dict()), name
        assert outputs(name, dtype, theirs, mine, args) > tol, "other weights must give other outputs"
        r = mine.load_state_dict(state, strict=True)
        assert not r.missing_keys and not r.unexpected_keys
        assert outputs(name, dtype, theirs, mine, args) <= tol, (name, dtype, "PyTorch's file")
        # back: what Taper writes, into a third model of PyTorch's
        path = os.path.join(d, "b.safetensors")
        taper.save(mine.state_dict(), path)
        third = models.build(name, torch, seed=3, small=True)[0].to(dtype)
        back = torch_load(path)
        third.load_state_dict(back, strict=True)
        for k, v in theirs.state_dict().items():
            assert back[k].dtype == v.dtype and torch.equal(back[k], v), (name, k)
        assert outputs(name, dtype, third, mine, args) <= tol, (name, dtype, "Taper's file")


def test_float32():
    for name in models.NAMES:
        both(name, torch.float32)


def test_float64():
    for name in models.NAMES:
        both(name, torch.float64)


def test_narrow_types_and_integers():
    both("mlp", torch.float16)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x.safetensors")
        state = {str(dt): torch.arange(6).reshape(2, 3).to(dt) for dt in (torch.bfloat16, torch.int8, torch.uint8, torch.int16,
                                                                         torch.int32, torch.int64, torch.bool)}
        state["empty"], state["number"] = torch.zeros(0, 3), torch.tensor(1.5)
        if not official:
            del state["torch.bfloat16"]  # NumPy has no such type
        torch_save(state, path)
        for k, v in taper.load(path).items():
            assert str(v.dtype).split(".")[1] == str(state[k].dtype).split(".")[1] and v.tolist() == state[k].tolist(), k
