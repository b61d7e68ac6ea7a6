"""Divergences of one distribution from another."""
import math

import taper
from .continuous import Beta, Dirichlet, Exponential, Gamma, Laplace, MultivariateNormal, Normal, Uniform
from .discrete import Bernoulli, Categorical, OneHotCategorical, Poisson
from .distribution import Independent

_known = {}


def register_kl(type_p, type_q):
    """@register_kl(P, Q): the function gives the divergence of a P from a Q."""
    if not isinstance(type_p, type) or not isinstance(type_q, type):
        raise TypeError(f"register_kl takes two classes, not {type_p!r} and {type_q!r}")

    def keep(fn):
        _known[type_p, type_q] = fn
        return fn
    return keep


def kl_divergence(p, q):
    """KL(p || q), for each of the batch."""
    fits = [(len(a.__mro__) + len(b.__mro__), fn) for (a, b), fn in _known.items() if isinstance(p, a) and isinstance(q, b)]
    if not fits:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}; write one with register_kl")
    return max(fits, key=lambda f: f[0])[1](p, q)


@register_kl(Normal, Normal)
def _(p, q):
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(Bernoulli, Bernoulli)
def _(p, q):
    def part(a, b):
        t = a * (a / b).log()
        return taper.where(b == 0, taper.full_like(t, math.inf), t).masked_fill(a == 0, 0)
    return part(p.probs, q.probs) + part(1 - p.probs, 1 - q.probs)


@register_kl(Categorical, Categorical)
def _(p, q):
    t = p.probs * (p.logits - q.logits)
    t = taper.where((q.probs == 0).expand_as(t), taper.full_like(t, math.inf), t)
    return t.masked_fill((p.probs == 0).expand_as(t), 0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _(p, q):
    return kl_divergence(p._cat, q._cat)


@register_kl(Uniform, Uniform)
def _(p, q):
    r = ((q.high - q.low) / (p.high - p.low)).log()
    return taper.where((q.low > p.low) | (q.high < p.high), taper.full_like(r, math.inf), r)


@register_kl(Exponential, Exponential)
def _(p, q):
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Laplace, Laplace)
def _(p, q):
    ratio, d = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + d / q.scale + ratio * taper.exp(-d / p.scale) - 1


@register_kl(Poisson, Poisson)
def _(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Gamma, Gamma)
def _(p, q):
    return (q.concentration * (p.rate / q.rate).log() + taper.lgamma(q.concentration) - taper.lgamma(p.concentration)
            + (p.concentration - q.concentration) * taper.digamma(p.concentration) + (q.rate - p.rate) * (p.concentration / p.rate))


@register_kl(Dirichlet, Dirichlet)
def _(p, q):
    a, b = p.concentration.sum(-1), q.concentration.sum(-1)
    t = (p.concentration - q.concentration) * (taper.digamma(p.concentration) - taper.digamma(a).unsqueeze(-1))
    return taper.lgamma(a) - taper.lgamma(b) - (taper.lgamma(p.concentration) - taper.lgamma(q.concentration)).sum(-1) + t.sum(-1)


@register_kl(Beta, Beta)
def _(p, q):
    return kl_divergence(p._both(), q._both())


@register_kl(MultivariateNormal, MultivariateNormal)
def _(p, q):
    n = p.event_shape[0]
    ratio = taper.linalg.solve_triangular(q.scale_tril, p.scale_tril, upper=False).pow(2).sum((-2, -1))
    return q._half_log_det() - p._half_log_det() + 0.5 * (ratio + q._mahalanobis(q.loc - p.loc) - n)


@register_kl(Independent, Independent)
def _(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("the two Independent distributions take different numbers of dimensions as one event")
    return p._sum(kl_divergence(p.base_dist, q.base_dist))
