"""Lazy modules and the adaptive softmax behave as PyTorch's: shapes, state dicts, values, messages."""
import copy
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not importable")
import taper


def text(m):
    """Newer PyTorch also says whether a norm has a bias."""
    return repr(m).replace(", bias=True, track", ", track").replace(", bias=False, track", ", track")


def numbers(t):
    return taper.from_numpy(t.detach().numpy().copy())


CASES = [("LazyLinear", (5,), {}, (2, 3)), ("LazyLinear", (5,), {"bias": False}, (2, 4, 3)), ("LazyConv1d", (4, 3), {}, (2, 3, 7)),
         ("LazyConv2d", (4, 3, 2, 1), {"groups": 2}, (2, 6, 7, 7)), ("LazyConv3d", (4, 2), {"bias": False}, (2, 3, 4, 4, 4)),
         ("LazyConvTranspose1d", (4, 3), {}, (2, 3, 7)), ("LazyConvTranspose2d", (4, 3, 2), {}, (2, 3, 5, 5)), ("LazyConvTranspose3d", (2, 2), {}, (1, 3, 2, 2, 2)),
         ("LazyBatchNorm1d", (), {}, (4, 3)), ("LazyBatchNorm2d", (1e-3,), {"affine": False}, (4, 3, 2, 2)), ("LazyBatchNorm3d", (), {}, (4, 3, 2, 2, 2)),
         ("LazyInstanceNorm1d", (), {"affine": True}, (4, 3, 5)), ("LazyInstanceNorm2d", (), {"affine": False, "track_running_stats": False}, (4, 3, 2, 2)), ("LazyInstanceNorm3d", (), {"track_running_stats": True}, (4, 3, 2, 2, 2))]


def test_lazy_modules():
    for name, args, kw, shape in CASES:
        t, m = getattr(torch.nn, name)(*args, **kw), getattr(taper.nn, name)(*args, **kw)
        assert text(t) == text(m), (repr(t), repr(m))
        assert list(t.state_dict()) == list(m.state_dict()), name
        x = torch.randn(shape)
        copied = copy.deepcopy(m)
        want = t(x)
        m(numbers(x))
        assert type(m).__name__ == type(t).__name__ and text(m) == text(t), (repr(m), repr(t))
        state = {k: numbers(v) for k, v in t.state_dict().items()}
        m.load_state_dict(state)
        copied.load_state_dict(state)  # a lazy module takes the shapes of what is loaded
        for lib in (m, copied):
            lib.eval()
            t.eval()
            got = lib(numbers(x))
            assert (t(x) - torch.from_numpy(got.detach().numpy())).abs().max() < 1e-5, name
        t.train()
        assert want.shape == tuple(got.shape)


def test_messages():
    for lib in (torch, taper):
        m = lib.nn.LazyLinear(2)
        try:
            m.weight.shape
        except RuntimeError as e:
            assert "Can't access the shape of an uninitialized parameter or buffer" in str(e)
        else:
            raise AssertionError(lib)
        assert lib.nn.parameter.is_lazy(m.weight) and m.has_uninitialized_params()
        m(lib.ones(1, 3))
        assert m.weight.shape == (2, 3) and isinstance(m.weight, lib.nn.Parameter) and m.weight.requires_grad
        opt = lib.optim.SGD(m.parameters(), lr=0.1)
        m(lib.ones(1, 3)).sum().backward()
        opt.step()


def test_adaptive_softmax():
    for bias in (False, True):
        t = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10, 15], 2.0, bias).double()
        m = taper.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10, 15], 2.0, bias).double()
        m.load_state_dict({k: numbers(v) for k, v in t.state_dict().items()})
        assert repr(t) == repr(m)
        x, y = torch.randn(12, 16, dtype=torch.float64), torch.randint(0, 20, (12,))
        a, b = t(x, y), m(numbers(x), numbers(y))
        assert abs(a.loss.item() - b.loss.item()) < 1e-12 and (a.output - torch.from_numpy(b.output.detach().numpy())).abs().max() < 1e-12
        a.loss.backward()
        b.loss.backward()
        for p, q in zip(t.parameters(), m.parameters()):
            assert (p.grad is None) == (q.grad is None)
            if p.grad is not None:
                assert (p.grad - torch.from_numpy(q.grad.numpy())).abs().max() < 1e-12
        assert (t.log_prob(x) - torch.from_numpy(m.log_prob(numbers(x)).detach().numpy())).abs().max() < 1e-12
        assert t.predict(x).tolist() == m.predict(numbers(x)).tolist()
        assert abs(t(x[0], y[0]).loss.item() - m(numbers(x)[0], numbers(y)[0]).loss.item()) < 1e-12
    for bad in ("N(4, 5, [])", "N(4, 5, [3, 2])", "N(4, 5, [0, 2])", "N(4, 5, [2])(T.ones(2, 4), T.tensor([1, 9]))", "N(4, 5, [2])(T.ones(2, 4), T.tensor([1]))",
                "N(4, 5, [2])(T.ones(2, 4), T.tensor([[1]]))", "N(4, 5, [2])(T.ones(4), T.tensor([1]))", "N(4, 5, [2])(T.ones(2, 4), T.tensor(1))"):
        seen = []
        for lib in (torch, taper):
            try:
                eval(bad, {"N": lib.nn.AdaptiveLogSoftmaxWithLoss, "T": lib})
                seen.append(None)
            except Exception as e:
                seen.append((type(e).__name__, str(e)))
        assert seen[0] is not None and seen[0][0] == seen[1][0] and seen[0][1].replace("torch", "taper") == seen[1][1].replace("torch", "taper"), (bad, seen)
