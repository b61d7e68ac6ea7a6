"""taper.distributions and taper.optim.swa_utils by themselves; the numbers are compared with PyTorch's in tests/oracle."""
import math

import taper
from taper import distributions as D, nn
from taper.testing.compiled import counted_draws


def raises(cls, fn):
    try:
        fn()
    except cls as e:
        return str(e)
    raise AssertionError(f"no {cls.__name__}")


def test_a_policy_learns():
    taper.manual_seed(0)
    net = nn.Linear(2, 3)
    opt = taper.optim.Adam(net.parameters(), lr=0.1)
    x = taper.randn(64, 2)
    first = None
    for _ in range(30):
        d = D.Categorical(logits=net(x))
        a = d.sample()
        reward = (a == 2).float()
        loss = -(d.log_prob(a) * (reward - reward.mean())).mean() - 0.01 * d.entropy().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        first = reward.mean().item() if first is None else first
    assert reward.mean().item() > max(0.8, first)


@counted_draws()
def test_draws_and_densities_are_captured():
    def f(mu, s):
        d = D.Normal(mu, s, validate_args=False)
        z = d.rsample()
        return z, D.kl_divergence(d, D.Normal(taper.zeros_like(mu), taper.ones_like(s), validate_args=False)).sum() + d.log_prob(z).sum()
    mu, s = taper.randn(4, requires_grad=True), taper.rand(4) + 0.5
    taper.manual_seed(1)
    want = f(mu, s)
    taper.manual_seed(1)
    got = taper.compile(f, fullgraph=True)(mu, s)
    assert taper.allclose(want[0], got[0]) and taper.allclose(want[1], got[1], rtol=1e-5)


def test_known_values():
    n = D.Normal(0.0, 1.0)
    assert abs(n.log_prob(taper.tensor(0.0)).item() + 0.5 * math.log(2 * math.pi)) < 1e-6 and abs(n.cdf(taper.tensor(0.0)).item() - 0.5) < 1e-7
    assert abs(n.icdf(n.cdf(taper.tensor(0.7))).item() - 0.7) < 1e-5
    assert D.Categorical(taper.tensor([1.0, 3.0])).probs.tolist() == [0.25, 0.75]
    b = D.Bernoulli(logits=taper.zeros(2, 3))
    assert b.batch_shape == (2, 3) and b.sample((4,)).shape == (4, 2, 3) and b.enumerate_support().shape == (2, 2, 3)
    i = D.Independent(b, 1)
    assert i.batch_shape == (2,) and i.event_shape == (3,) and i.log_prob(taper.zeros(2, 3)).shape == (2,)
    assert D.OneHotCategorical(taper.ones(4)).sample((5,)).sum(-1).tolist() == [1.0] * 5
    taper.manual_seed(0)
    assert abs(D.Poisson(1000.0).sample((2000,)).mean().item() - 1000) < 5


def test_wrong_arguments_are_said():
    assert "Expected parameter scale" in raises(ValueError, lambda: D.Normal(0.0, -1.0))
    assert "Either `probs` or `logits`" in raises(ValueError, lambda: D.Bernoulli())
    assert "within the support" in raises(ValueError, lambda: D.Categorical(taper.ones(3)).log_prob(taper.tensor(3)))
    assert "low>= high" in raises(ValueError, lambda: D.Uniform(1.0, 0.0))
    assert "Exactly one of" in raises(ValueError, lambda: D.MultivariateNormal(taper.zeros(2)))
    assert "No KL(p || q)" in raises(NotImplementedError, lambda: D.kl_divergence(D.Normal(0.0, 1.0), D.Poisson(1.0)))
    assert "no rsample" in raises(NotImplementedError, lambda: D.Bernoulli(0.5).rsample())
    assert "Number or torch.Tensor" in raises(ValueError, lambda: D.Normal("a", 1))


def test_own_divergences():
    class Mine(D.Normal):
        pass

    @D.register_kl(Mine, D.Normal)
    def mine(p, q):
        return taper.tensor(7.0)
    assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)).item() == 7 and D.kl_divergence(D.Normal(0.0, 1.0), D.Normal(0.0, 1.0)).item() == 0


def test_averaged_models_and_their_statistics():
    from taper.optim import swa_utils
    m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    a = swa_utils.AveragedModel(m)
    a.update_parameters(m)
    with taper.no_grad():
        m[0].weight.add_(2)
    a.update_parameters(m)
    assert taper.allclose(a.module[0].weight, m[0].weight - 1) and int(a.n_averaged) == 2
    data = [(taper.randn(16, 2),) for _ in range(4)]
    swa_utils.update_bn(data, a)
    want = taper.cat([a.module[0](x) for (x,) in data]).mean(0)
    assert taper.allclose(a.module[1].running_mean, want, atol=1e-5) and a.module[1].momentum == 0.1
    assert "anneal_strategy" in raises(ValueError, lambda: swa_utils.SWALR(taper.optim.SGD(m.parameters(), 0.1), 0.01, anneal_strategy="x"))
