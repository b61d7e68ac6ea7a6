"""Modules, optimisers and schedules as a newcomer uses them."""
import copy
import math

import taper
import taper.nn as nn


def raises(cls, fn, text=""):
    try:
        fn()
    except cls as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"{cls.__name__} was expected")


def test_module_registers_and_prints():
    m = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert [k for k, _ in m.named_parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert repr(m) == ("Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=True)\n  (1): ReLU()\n"
                       "  (2): Linear(in_features=3, out_features=1, bias=True)\n)")


def test_training_lowers_the_loss_with_every_optimiser():
    for cls, kw in [(taper.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)), (taper.optim.Adam, dict(lr=0.05)),
                    (taper.optim.AdamW, dict(lr=0.05)), (taper.optim.Adamax, dict(lr=0.05)), (taper.optim.NAdam, dict(lr=0.05)),
                    (taper.optim.RAdam, dict(lr=0.05)), (taper.optim.RMSprop, dict(lr=0.02, momentum=0.5, centered=True)),
                    (taper.optim.Adagrad, dict(lr=0.2)), (taper.optim.Adadelta, dict(lr=5.0))]:
        taper.manual_seed(0)
        m, x = nn.Linear(4, 1), taper.randn(32, 4)
        y = x.sum(1, keepdim=True)
        opt = cls(m.parameters(), **kw)
        losses = []
        for _ in range(40):
            opt.zero_grad()
            loss = nn.functional.mse_loss(m(x), y)
            loss.backward()
            opt.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0] * 0.5, (cls.__name__, losses[0], losses[-1])


def test_lbfgs_solves_a_quadratic():
    taper.manual_seed(0)
    x = taper.randn(5).requires_grad_()
    target = taper.arange(5).float()
    opt = taper.optim.LBFGS([x], line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad()
        loss = ((x - target) ** 2).sum()
        loss.backward()
        return loss

    opt.step(closure)
    assert (x - target).abs().max().item() < 1e-3


def test_state_dict_messages():
    m = nn.Linear(2, 3)
    raises(RuntimeError, lambda: m.load_state_dict({"weight": taper.zeros(3, 2)}), 'Missing key(s) in state_dict: "bias".')
    raises(RuntimeError, lambda: m.load_state_dict({"weight": taper.zeros(3, 2), "bias": taper.zeros(3), "x": taper.zeros(1)}),
           'Unexpected key(s) in state_dict: "x".')
    raises(RuntimeError, lambda: m.load_state_dict({"weight": taper.zeros(2, 2), "bias": taper.zeros(3)}),
           "size mismatch for weight: copying a param with shape")
    assert str(m.load_state_dict(m.state_dict())) == "<All keys matched successfully>"


def test_optimizer_messages():
    raises(ValueError, lambda: taper.optim.SGD([], lr=0.1), "optimizer got an empty parameter list")
    p = nn.Parameter(taper.zeros(2))
    raises(ValueError, lambda: taper.optim.Adam([p], lr=float("nan")), "Invalid learning rate: nan")
    raises(ValueError, lambda: taper.optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1), "some parameters appear in more than one parameter group")
    raises(TypeError, lambda: taper.optim.SGD(p, lr=0.1), "params argument given to the optimizer should be an iterable of Tensors or dicts")


def test_hooks_and_modes():
    m, seen = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), []
    h = m.register_forward_hook(lambda mod, a, out: seen.append(tuple(out.shape)))
    m[0].register_forward_pre_hook(lambda mod, a: (a[0] * 0,))
    x = taper.ones(3, 2)
    assert taper.equal(m.eval()(x), m[0].bias.detach().expand(3, 2))
    h.remove()
    m(x)
    assert seen == [(3, 2)] and not m.training and not m[1].training


def test_backward_hook_sees_gradients():
    m, seen = nn.Linear(2, 1), []
    m.register_full_backward_hook(lambda mod, gi, go: seen.append((gi[0].shape, go[0].tolist())))
    x = taper.ones(1, 2).requires_grad_()
    m(x).sum().backward()
    assert seen == [((1, 2), [[1.0]])] and x.grad is not None


def test_deepcopy_is_independent():
    m = nn.Linear(2, 2)
    c = copy.deepcopy(m)
    with taper.no_grad():
        c.weight.zero_()
    assert m.weight.abs().sum().item() > 0 and isinstance(c.weight, nn.Parameter) and c.weight.requires_grad


def test_batch_norm_keeps_statistics():
    m = nn.BatchNorm1d(3)
    x = taper.randn(16, 3) * 2 + 1
    m(x)
    want = 0.1 * x.mean(0)
    assert (m.running_mean - want).abs().max().item() < 1e-6 and m.num_batches_tracked.item() == 1
    m.eval()
    before = m.running_mean.clone()
    m(x)
    assert taper.equal(before, m.running_mean)


def test_recurrent_shapes():
    x = taper.randn(2, 5, 3)
    y, (h, c) = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)(x)
    assert y.shape == (2, 5, 8) and h.shape == c.shape == (4, 2, 4)
    y, h = nn.GRU(3, 4, batch_first=True)(x)
    assert y.shape == (2, 5, 4) and taper.allclose(y[:, -1], h[0])


def test_transformer_runs_both_ways():
    m = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
    out = m(taper.randn(2, 4, 16), taper.randn(2, 3, 16), tgt_mask=nn.Transformer.generate_square_subsequent_mask(3))
    out.sum().backward()
    assert out.shape == (2, 3, 16) and all(p.grad is not None for p in m.parameters())


def test_schedules():
    def run(make, n):
        opt = taper.optim.SGD([nn.Parameter(taper.zeros(1))], lr=1.0)
        s, lrs = make(opt), []
        for _ in range(n):
            lrs.append(opt.param_groups[0]["lr"])
            opt.step()
            s.step()
        return lrs

    L = taper.optim.lr_scheduler
    assert run(lambda o: L.StepLR(o, 2, 0.5), 5) == [1.0, 1.0, 0.5, 0.5, 0.25]
    assert run(lambda o: L.ExponentialLR(o, 0.5), 3) == [1.0, 0.5, 0.25]
    assert run(lambda o: L.LambdaLR(o, lambda e: 1 / (1 + e)), 3) == [1.0, 0.5, 1 / 3]
    cos = run(lambda o: L.CosineAnnealingLR(o, 4), 5)
    assert all(abs(a - (1 + math.cos(math.pi * i / 4)) / 2) < 1e-12 for i, a in enumerate(cos))


def test_data_loader():
    from taper.utils.data import DataLoader, TensorDataset
    d = TensorDataset(taper.arange(10), taper.arange(10) * 2)
    batches = list(DataLoader(d, batch_size=4))
    assert [b[0].tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    g = taper.Generator().manual_seed(0)
    order = [x.item() for b in DataLoader(d, batch_size=1, shuffle=True, generator=g) for x in b[0]]
    assert sorted(order) == list(range(10)) and order != list(range(10))
    assert len(DataLoader(d, batch_size=4, drop_last=True)) == 2


def test_clip_grad_norm():
    p = nn.Parameter(taper.zeros(4))
    p.grad = taper.ones(4) * 3
    assert abs(nn.utils.clip_grad_norm_([p], 1.0).item() - 6.0) < 1e-6
    assert abs(p.grad.norm().item() - 1.0) < 1e-5


def test_weight_norm_learns():
    m = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    m(taper.ones(1, 3)).sum().backward()
    assert {k for k, _ in m.named_parameters()} == {"bias", "parametrizations.weight.original0", "parametrizations.weight.original1"}
    assert all(p.grad is not None for p in m.parameters())


def test_lazy_modules_take_their_sizes_from_the_first_input():
    m = nn.Sequential(nn.LazyConv2d(4, 3, padding=1), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))
    assert m[4].has_uninitialized_params() and repr(m[4].weight) == "<UninitializedParameter>"
    raises(RuntimeError, lambda: m[4].weight.shape, "Can't access the shape of an uninitialized parameter")
    out = m(taper.randn(2, 3, 6, 6))
    assert out.shape == (2, 5) and type(m[4]) is nn.Linear and m[4].in_features == 4 * 36 and m[0].in_channels == 3
    other = nn.Sequential(nn.LazyConv2d(4, 3, padding=1), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))
    other.load_state_dict(m.state_dict())
    x = taper.randn(2, 3, 6, 6)
    assert taper.equal(m.eval()(x), other.eval()(x)) and type(other[0]) is nn.Conv2d
    raises(RuntimeError, lambda: nn.LazyConv2d(4, 3)(taper.ones(3, 4)), "Expected 3D (unbatched) or 4D (batched) input to LazyConv2d")


def test_adaptive_softmax_agrees_with_its_own_probabilities():
    m = nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], div_value=2.0)
    x, t = taper.randn(9, 8), taper.tensor([0, 1, 2, 3, 6, 7, 11, 5, 0])
    out, loss = m(x, t)
    full = m.log_prob(x)
    assert taper.allclose(full.exp().sum(1), taper.ones(9), atol=1e-5)
    assert taper.allclose(out, full.gather(1, t.unsqueeze(1)).squeeze(1), atol=1e-5) and abs(loss.item() + out.mean().item()) < 1e-6
    assert taper.equal(m.predict(x), full.argmax(1))
    raises(ValueError, lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 12, [7, 3]), "cutoffs should be a sequence of unique, positive integers")


def test_names_that_write_and_norms_that_go():
    x = taper.tensor([-1.0, 2.0])
    F = nn.functional
    for name, args in (("relu", ()), ("elu", (0.5,)), ("celu", ()), ("selu", ()), ("hardtanh", (-0.5, 0.5)), ("leaky_relu", (0.1,)), ("threshold", (0.0, 7.0))):
        y = x.clone()
        assert getattr(F, name + "_")(y, *args) is y and taper.equal(y, getattr(F, name)(x, *args)), name
    for norm, remove in ((nn.utils.weight_norm, nn.utils.remove_weight_norm), (nn.utils.spectral_norm, nn.utils.remove_spectral_norm)):
        m = norm(nn.Linear(3, 2)).eval()
        want = m(taper.ones(1, 3))
        remove(m)
        assert taper.allclose(m(taper.ones(1, 3)), want) and [n for n, _ in m.named_parameters()][0] in ("weight", "bias")
        raises(ValueError, lambda: remove(m), "not found in Linear")
    assert taper.utils.data.DataLoader


def test_attention_without_gradients_is_contiguous():
    x = taper.randn(4, 32, 64)
    for batch_first in (True, False):
        m = nn.MultiheadAttention(64, 8, batch_first=batch_first).eval()
        for f in (m, taper.compile(m)):
            with taper.no_grad():
                assert f(x, x, x)[0].stride() == (2048, 64, 1)
            assert f(x, x, x)[0].stride() == ((64, 256, 1) if batch_first else (2048, 64, 1))


def test_transposed_convolution_without_a_result():
    for layer, x in ((nn.ConvTranspose2d(1, 1, 2, padding=1), taper.ones(1, 1, 1, 1)), (nn.ConvTranspose1d(1, 1, 1, padding=1), taper.ones(1, 1, 1))):
        for f in (layer, taper.compile(layer)):
            try:
                f(x)
            except RuntimeError as e:
                assert "Output size is too small" in str(e)
            else:
                raise AssertionError("it has a result")


def test_norms_of_large_orders():
    a = taper.tensor([[0.01, 3.0], [50.0, 0.3], [7.0, 20.0]])
    for p in (-41.0, 41.0, -3, 10, -0.5, 100.0):
        for f in (lambda a: taper.norm(a, p=p, dim=1), lambda a: taper.linalg.vector_norm(a, p, dim=0)):
            want = f(a.double())
            for g in (f, taper.compile(f), taper.compile(f, backend="aot_eager_decomp_partition")):
                assert taper.allclose(g(a).double(), want, rtol=1e-5), (p, g(a), want)
