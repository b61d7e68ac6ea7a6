"""Densities, entropies, moments and divergences beside PyTorch's; draws by their moments."""
import unittest

import taper
import taper.distributions

try:
    import torch
    import torch.distributions
    import torch.optim.swa_utils
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed")

T = lambda lib, *v: lib.tensor(list(v), dtype=lib.float64)  # noqa: E731
CASES = [("Normal", lambda l: (T(l, 0.5, -1), T(l, 1.5, 0.2)), (0.3, 2.0)), ("LogNormal", lambda l: (T(l, 0.5, -1), T(l, 1.5, 0.2)), (0.3, 2.0)),
         ("Laplace", lambda l: (T(l, 0.5, -1), T(l, 1.5, 0.2)), (0.3, 2.0)), ("Cauchy", lambda l: (T(l, 0.5, -1), T(l, 1.5, 0.2)), (0.3, 2.0)),
         ("Gumbel", lambda l: (T(l, 0.5, -1), T(l, 1.5, 0.9)), (0.3, 2.0)), ("HalfNormal", lambda l: (T(l, 1.5, 0.2),), (0.3, 0.1)),
         ("Uniform", lambda l: (T(l, -1, 0), T(l, 1, 3)), (0.3, 2.0)), ("Exponential", lambda l: (T(l, 1.5, 0.2),), (0.3, 2.0)),
         ("Gamma", lambda l: (T(l, 1.5, 0.7), T(l, 0.3, 2)), (0.3, 2.0)), ("Beta", lambda l: (T(l, 1.5, 0.7), T(l, 0.3, 2)), (0.3, 0.6)),
         ("Chi2", lambda l: (T(l, 3, 4),), (0.3, 2.0)), ("StudentT", lambda l: (T(l, 3, 5), T(l, 0, 1), T(l, 1, 2)), (0.3, 2.0)),
         ("Bernoulli", lambda l: (T(l, 0.3, 0.9),), (1.0, 0.0)), ("Geometric", lambda l: (T(l, 0.3, 0.9),), (1.0, 0.0)), ("Poisson", lambda l: (T(l, 0.3, 4),), (1.0, 3.0)),
         ("Binomial", lambda l: (T(l, 5, 3), T(l, 0.3, 0.9)), (1.0, 3.0)), ("Dirichlet", lambda l: (T(l, 1.5, 0.7, 3),), (0.2, 0.3, 0.5)),
         ("Categorical", lambda l: (T(l, 0.2, 0.3, 0.5),), (1.0, 2.0, 0.0)), ("OneHotCategorical", lambda l: (T(l, 0.2, 0.3, 0.5),), (0.0, 1.0, 0.0)),
         ("Multinomial", lambda l: (4, T(l, 0.2, 0.3, 0.5)), (1.0, 2.0, 1.0)),
         ("MultivariateNormal", lambda l: (T(l, 1, 2), l.tensor([[2.0, 0.3], [0.3, 1.0]], dtype=l.float64)), (0.3, 0.1))]


def facts(lib, name, args, value):
    d = getattr(lib.distributions, name)(*args(lib))
    out = {}
    for what in ("log_prob", "cdf"):
        try:
            out[what] = getattr(d, what)(T(lib, *value)).tolist()
        except NotImplementedError:
            out[what] = None
    for what in ("mean", "variance", "stddev"):
        try:
            out[what] = getattr(d, what).tolist()
        except (NotImplementedError, AttributeError):
            out[what] = None
    try:
        out["entropy"] = d.entropy().tolist()
    except NotImplementedError:
        out["entropy"] = None
    out["shapes"] = [list(d.batch_shape), list(d.event_shape), list(d.sample((7,)).shape)]
    e = d.expand((3, *d.batch_shape)) if name not in ("OneHotCategorical", "Multinomial") else d
    out["expanded"] = [list(e.sample().shape), list(e.log_prob(e.sample()).shape)]
    return out


def close(a, b):
    if isinstance(a, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b))
    return a == b or a != a and b != b or abs(a - b) <= 1e-6 * max(1, abs(b))


def test_densities_and_moments():
    for name, args, value in CASES:
        ours, theirs = facts(taper, name, args, value), facts(torch, name, args, value)
        for k in theirs:
            assert ours[k] is None and k in ("cdf", "entropy") or theirs[k] is None or close(ours[k], theirs[k]), (name, k, ours[k], theirs[k])
            assert not (ours[k] is None and theirs[k] is not None and k == "entropy" and name not in ("StudentT", "Binomial", "Multinomial")), (name, k)


def test_draws_have_the_moments():
    taper.manual_seed(0)
    for name, args, _ in CASES:
        d = getattr(taper.distributions, name)(*args(taper))
        if name in ("Categorical", "Cauchy"):
            continue
        x = d.sample((20000,))
        err = ((x.mean(0) - d.mean).abs() / (d.variance.sqrt() + 1e-9)).max().item()
        assert err < 0.06, (name, err)


def test_divergences():
    pairs = [n for n, _, _ in CASES if n in ("Normal", "Laplace", "Uniform", "Exponential", "Gamma", "Beta", "Bernoulli", "Poisson", "Dirichlet", "Categorical", "MultivariateNormal")]
    for name in pairs:
        args = next(a for n, a, _ in CASES if n == name)
        out = []
        for lib in (taper, torch):
            p = getattr(lib.distributions, name)(*args(lib))
            q = getattr(lib.distributions, name)(*[a * 0.9 + (0.05 if name != "Uniform" else -0.1 + 0.5 * i) for i, a in enumerate(args(lib))])
            out.append(lib.distributions.kl_divergence(p, q).tolist())
        assert close(*out), (name, out)
    i = [lib.distributions.kl_divergence(*[lib.distributions.Independent(lib.distributions.Normal(T(lib, 0, m), T(lib, 1, 2)), 1) for m in (1, 3)]).item() for lib in (taper, torch)]
    assert close(*i)


def test_gradients_of_draws():
    for name in ("Normal", "Laplace", "Gumbel", "Uniform", "Exponential", "LogNormal"):
        args = next(a for n, a, _ in CASES if n == name)(taper)
        args = [a.requires_grad_() for a in args]
        getattr(taper.distributions, name)(*args).rsample((5,)).sum().backward()
        assert all(a.grad is not None for a in args), name


def test_averages_of_models():
    def run(lib):
        m = lib.nn.Linear(2, 2)
        m.load_state_dict({"weight": lib.tensor([[1.0, 2], [3, 4]]), "bias": lib.tensor([0.5, 1])})
        sw = lib.optim.swa_utils
        a, e = sw.AveragedModel(m), sw.AveragedModel(m, multi_avg_fn=sw.get_ema_multi_avg_fn(0.9))
        o = lib.optim.SGD(m.parameters(), lr=0.1)
        s, lrs = sw.SWALR(o, 0.01, anneal_epochs=4), []
        for _ in range(6):
            o.zero_grad()
            m(lib.ones(1, 2)).sum().backward()
            o.step()
            a.update_parameters(m)
            e.update_parameters(m)
            s.step()
            lrs.append(s.get_last_lr()[0])
        return lrs + [x for p in (*a.parameters(), *e.parameters()) for x in p.detach().flatten().tolist()] + [int(a.n_averaged)]
    assert close(run(taper), run(torch)), (run(taper), run(torch))
