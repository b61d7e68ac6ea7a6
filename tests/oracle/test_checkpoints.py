"""Checkpoints between PyTorch and Taper, both ways: ten kinds of values in both file formats and with the pickle protocols in use."""
import io
import os
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not importable")
import taper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "py"))
import checkpoint_kinds  # noqa: E402

WAYS = [(new, protocol) for new in (True, False) for protocol in (2, 4)] + [(True, 5)]


def name(v):
    return str(v).split(".")[-1]


def same(a, b, path):
    """A value of PyTorch and one of Taper."""
    if isinstance(a, torch.Tensor):
        assert isinstance(b, taper.Tensor) and isinstance(a, torch.nn.Parameter) == isinstance(b, taper.nn.Parameter), path
        assert name(a.dtype) == name(b.dtype) and tuple(a.shape) == tuple(b.shape) and a.stride() == b.stride() and a.requires_grad == b.requires_grad, path
        assert a.storage_offset() == b.storage_offset() and str(a.device) == str(b.device) and a.__dict__ == b.__dict__, path
        if a.device.type != "meta":
            assert a.untyped_storage().nbytes() == b.untyped_storage().nbytes() and bytes(a.untyped_storage().tolist()) == bytes(b.untyped_storage()), path
    elif isinstance(a, (dict, list, tuple)):
        assert len(a) == len(b) and (type(a) is type(b) or isinstance(a, torch.Size) and isinstance(b, taper.Size)), path
        if isinstance(a, dict):
            assert list(a) == list(b) and getattr(a, "__dict__", None) == getattr(b, "__dict__", None), path
        for k in a if isinstance(a, dict) else range(len(a)):
            same(a[k], b[k], f"{path}.{k}")
    elif isinstance(a, (torch.dtype, torch.device, torch.layout)):
        assert name(a) == name(b), path
    else:
        assert type(a) is type(b) and a == b, path


def test_files_of_pytorch_are_read():
    for kind, value in checkpoint_kinds.kinds(torch).items():
        for new, protocol in WAYS:
            b = io.BytesIO()
            torch.save(value, b, _use_new_zipfile_serialization=new, pickle_protocol=protocol)
            b.seek(0)
            same(value, taper.load(b), f"{kind}, {'zip' if new else 'older'}, protocol {protocol}")


def test_files_of_taper_are_read_by_pytorch():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x.pt")
        for kind, value in checkpoint_kinds.kinds(taper).items():
            for new in (True, False):
                taper.save(value, path, _use_new_zipfile_serialization=new)
                same(torch.load(path, weights_only=True), value, f"{kind}, {'zip' if new else 'older'}")
            taper.save(value, path)
            same(torch.load(path, weights_only=True, mmap=True), value, kind + ", mapped")


def test_whole_models():
    """With weights_only=False, where the classes have the same attributes."""
    m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.BatchNorm1d(4), torch.nn.Conv1d(4, 2, 1)).eval()
    b = io.BytesIO()
    torch.save(m, b)
    b.seek(0)
    mine = taper.load(b, weights_only=False)
    x = torch.arange(12.0).view(4, 3)
    want = m[:3](x).detach()
    assert torch.allclose(torch.from_numpy(mine[:3](taper.from_numpy(x.numpy())).detach().numpy()), want, rtol=1e-5, atol=1e-5)
    b = io.BytesIO()
    taper.save(mine[0], b)
    b.seek(0)
    assert torch.equal(torch.load(b, weights_only=False).weight, m[0].weight)


def test_pytorch_refuses_what_it_must():
    b = io.BytesIO()
    taper.save(taper.nn.Linear(1, 1), b)
    b.seek(0)
    try:
        torch.load(b, weights_only=True)
    except Exception as e:
        assert "torch.nn.modules.linear.Linear" in str(e), e
    else:
        raise AssertionError("a whole model is no set of weights")
