"""Distributions made of others."""
import math as _math

import taper
import taper.nn.functional as F
from . import constraints
from .continuous import Beta, Cauchy, Chi2, Exponential, Gamma, Normal, Uniform
from .discrete import Categorical, OneHotCategorical, _Logits
from .distribution import Distribution, broadcast
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, ExpTransform, PowerTransform, SigmoidTransform, StickBreakingTransform
from .utils import clamp_probs


class ExponentialFamily(Distribution):
    """Distributions whose density is an exponential of a linear form."""


class HalfCauchy(Distribution):
    arg_constraints, support, has_rsample = {"scale": constraints.positive}, constraints.nonnegative, True

    def __init__(self, scale, validate_args=None):
        (self.scale,) = broadcast(scale)
        super().__init__(self.scale.shape, (), validate_args)

    mean = variance = property(lambda self: taper.full_like(self.scale, _math.inf))
    mode = property(lambda self: taper.zeros_like(self.scale))

    def _base(self):
        return Cauchy(taper.zeros_like(self.scale), self.scale, False)

    def rsample(self, sample_shape=()):
        return self._base().rsample(sample_shape).abs()

    def log_prob(self, value):
        self._check_sample(value, value >= 0, "GreaterThanEq(lower_bound=0.0)")
        return taper.where(value >= 0, self._base().log_prob(value) + _math.log(2), -_math.inf)

    def cdf(self, value):
        return 2 * self._base().cdf(value) - 1

    def icdf(self, prob):
        return self._base().icdf((prob + 1) / 2)

    def entropy(self):
        return self._base().entropy() - _math.log(2)


class Pareto(TransformedDistribution):
    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale, alpha, validate_args=None):
        self.scale, self.alpha = broadcast(scale, alpha)
        super().__init__(Exponential(self.alpha, validate_args), [ExpTransform(), AffineTransform(0, self.scale)], validate_args)

    support = property(lambda self: constraints.greater_than_eq(self.scale))
    mode = property(lambda self: self.scale)
    mean = property(lambda self: taper.where(self.alpha <= 1, _math.inf, self.alpha * self.scale / (self.alpha - 1)))

    def entropy(self):
        return (self.scale / self.alpha).log() + 1 + self.alpha.reciprocal()


class Weibull(TransformedDistribution):
    arg_constraints, support = {"scale": constraints.positive, "concentration": constraints.positive}, constraints.positive

    def __init__(self, scale, concentration, validate_args=None):
        self.scale, self.concentration = broadcast(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        super().__init__(Exponential(taper.ones_like(self.scale), validate_args), [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)],
                         validate_args)

    mean = property(lambda self: self.scale * taper.exp(taper.lgamma(1 + self.concentration_reciprocal)))


class Kumaraswamy(TransformedDistribution):
    arg_constraints, support = {"concentration1": constraints.positive, "concentration0": constraints.positive}, constraints.unit_interval

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = broadcast(concentration1, concentration0)
        base = Uniform(taper.zeros_like(self.concentration0), taper.ones_like(self.concentration0), validate_args)
        super().__init__(base, [PowerTransform(self.concentration0.reciprocal()), AffineTransform(1.0, -1.0), PowerTransform(self.concentration1.reciprocal())],
                         validate_args)


class LogisticNormal(TransformedDistribution):
    arg_constraints, support = {"loc": constraints.real, "scale": constraints.positive}, constraints.simplex

    def __init__(self, loc, scale, validate_args=None):
        base = Normal(loc, scale, validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args)

    loc = property(lambda self: self.base_dist.base_dist.loc)
    scale = property(lambda self: self.base_dist.base_dist.scale)


class InverseGamma(TransformedDistribution):
    arg_constraints, support = {"concentration": constraints.positive, "rate": constraints.positive}, constraints.positive

    def __init__(self, concentration, rate, validate_args=None):
        base = Gamma(concentration, rate, validate_args)
        super().__init__(base, PowerTransform(-base.rate.new_ones(())), validate_args)

    concentration = property(lambda self: self.base_dist.concentration)
    rate = property(lambda self: self.base_dist.rate)
    mean = property(lambda self: taper.where(self.concentration > 1, self.rate / (self.concentration - 1), _math.inf))
    mode = property(lambda self: self.rate / (self.concentration + 1))


class FisherSnedecor(Distribution):
    arg_constraints, support, has_rsample = {"df1": constraints.positive, "df2": constraints.positive}, constraints.positive, True

    def __init__(self, df1, df2, validate_args=None):
        self.df1, self.df2 = broadcast(df1, df2)
        super().__init__(self.df1.shape, (), validate_args)

    mean = property(lambda self: taper.where(self.df2 > 2, self.df2 / (self.df2 - 2), _math.nan))

    def rsample(self, sample_shape=()):
        a = Gamma(self.df1 * 0.5, self.df1, False).rsample(sample_shape)
        b = Gamma(self.df2 * 0.5, self.df2, False).rsample(sample_shape)
        return (a / b.clamp(min=taper.finfo(b.dtype).tiny)).clamp(min=taper.finfo(a.dtype).tiny)

    def log_prob(self, value):
        self._check_sample(value, value > 0, "GreaterThan(lower_bound=0.0)")
        h1, h2, r = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        return (h1 + h2).lgamma() - h1.lgamma() - h2.lgamma() + h1 * r.log() + (h1 - 1) * value.log() - (h1 + h2) * taper.log1p(r * value)


class VonMises(Distribution):
    arg_constraints, support = {"loc": constraints.real, "concentration": constraints.positive}, constraints.real

    def __init__(self, loc, concentration, validate_args=None):
        self.loc, self.concentration = broadcast(loc, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    mean = mode = property(lambda self: self.loc)

    def log_prob(self, value):
        self._check_sample(value)
        k = self.concentration
        return k * taper.cos(value - self.loc) - _math.log(2 * _math.pi) - (taper.special.i0e(k).log() + k)

    def sample(self, sample_shape=()):
        """Best and Fisher's rejection from a wrapped Cauchy distribution."""
        with taper.no_grad():
            shape = self._extended_shape(sample_shape)
            k, x = self.concentration.double().expand(shape), taper.zeros(shape, dtype=taper.float64)
            tau = 1 + (1 + 4 * k * k).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * k)
            r = (1 + rho * rho) / (2 * rho)
            done = taper.zeros(shape, dtype=taper.bool)
            while not bool(done.all()):
                u1, u2, u3 = taper.rand((3,) + tuple(shape), dtype=taper.float64).unbind()
                z = taper.cos(_math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                ok = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
                x = taper.where(ok & ~done, (u3 - 0.5).sign() * f.clamp(-1, 1).acos(), x)
                done = done | ok
            return ((x + _math.pi + self.loc) % (2 * _math.pi) - _math.pi).to(self.loc.dtype)


class NegativeBinomial(_Logits):
    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        v = self._take(probs, logits)
        self.total_count, v = taper.broadcast_tensors(taper.as_tensor(total_count, dtype=v.dtype), v)
        if self._probs is not None:
            self._probs = v
        else:
            self._logits = v
        super().__init__(v.shape, (), validate_args)

    arg_constraints, support = {"total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0), "logits": constraints.real}, constraints.nonnegative_integer
    mean = property(lambda self: self.total_count * taper.exp(self.logits))
    variance = property(lambda self: self.mean / taper.sigmoid(-self.logits))

    def sample(self, sample_shape=()):
        from .discrete import _poisson
        with taper.no_grad():
            return _poisson(Gamma(self.total_count, taper.exp(-self.logits), False).sample(sample_shape))

    def log_prob(self, value):
        self._check_sample(value, value >= 0, "nonnegative integers")
        norm = -taper.lgamma(self.total_count + value) + taper.lgamma(1.0 + value) + taper.lgamma(self.total_count)
        return self.total_count * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits) - norm.masked_fill(self.total_count + value == 0.0, 0.0)


class ContinuousBernoulli(_Logits):
    has_rsample = True
    arg_constraints, support = {"probs": constraints.unit_interval, "logits": constraints.real}, constraints.unit_interval

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        v = self._take(probs, logits)
        super().__init__(v.shape, (), validate_args)
        self._lims = lims

    def _log_norm(self):
        p = clamp_probs(self.probs)
        far = (p <= self._lims[0]) | (p > self._lims[1])
        cut = taper.where(far, p, taper.full_like(p, self._lims[0]))
        exact = taper.log(taper.abs(taper.log1p(-cut) - taper.log(cut))) - taper.where(cut <= 0.5, taper.log1p(-2.0 * cut.clamp(max=0.5)), taper.log(2.0 * cut.clamp(min=0.5) - 1.0))
        x = (p - 0.5) ** 2
        return taper.where(far, exact, _math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    def icdf(self, value):
        p = clamp_probs(self.probs)
        far = (p <= self._lims[0]) | (p > self._lims[1])
        cut = taper.where(far, p, taper.full_like(p, self._lims[0]))
        return taper.where(far, (taper.log1p(-cut + value * (2.0 * cut - 1.0)) - taper.log1p(-cut)) / (taper.log(cut) - taper.log1p(-cut)), value)

    def rsample(self, sample_shape=()):
        return self.icdf(taper.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype))

    def log_prob(self, value):
        self._check_sample(value, (value >= 0) & (value <= 1), "Interval(lower_bound=0.0, upper_bound=1.0)")
        logits, value = taper.broadcast_tensors(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none") + self._log_norm()


class LogitRelaxedBernoulli(_Logits):
    has_rsample, support = True, constraints.real

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self.temperature = temperature
        v = self._take(probs, logits)
        super().__init__(v.shape, (), validate_args)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        p, u = clamp_probs(self.probs.expand(shape)), clamp_probs(taper.rand(shape, dtype=self.probs.dtype))
        return (u.log() - (-u).log1p() + p.log() - (-p).log1p()) / self.temperature

    def log_prob(self, value):
        self._check_sample(value)
        logits, value = taper.broadcast_tensors(self.logits, value)
        d = logits - value * self.temperature
        return taper.as_tensor(self.temperature).log() + d - 2 * d.exp().log1p()


class RelaxedBernoulli(TransformedDistribution):
    arg_constraints, support = {"probs": constraints.unit_interval, "logits": constraints.real}, constraints.unit_interval

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits), SigmoidTransform(), validate_args)

    temperature = property(lambda self: self.base_dist.temperature)
    logits = property(lambda self: self.base_dist.logits)
    probs = property(lambda self: self.base_dist.probs)


class ExpRelaxedCategorical(Distribution):
    has_rsample = True
    arg_constraints, support = {"probs": constraints.simplex, "logits": constraints.real_vector}, constraints.real_vector

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self._categorical, self.temperature = Categorical(probs, logits), temperature
        super().__init__(self._categorical.batch_shape, self._categorical.logits.shape[-1:], validate_args)

    logits = property(lambda self: self._categorical.logits)
    probs = property(lambda self: self._categorical.probs)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        u = clamp_probs(taper.rand(shape, dtype=self.logits.dtype))
        scores = (self.logits.expand(shape) - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(dim=-1, keepdim=True)

    def log_prob(self, value):
        k = self.logits.shape[-1]
        logits, value = taper.broadcast_tensors(self.logits, value)
        t = taper.as_tensor(self.temperature, dtype=logits.dtype)
        scale = taper.full_like(t, float(k)).lgamma() - t.log().mul(-(k - 1))
        score = logits - value * t
        return (score - score.logsumexp(dim=-1, keepdim=True)).sum(-1) + scale


class RelaxedOneHotCategorical(TransformedDistribution):
    arg_constraints, support = {"probs": constraints.simplex, "logits": constraints.real_vector}, constraints.simplex

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        super().__init__(ExpRelaxedCategorical(temperature, probs, logits), ExpTransform(), validate_args)

    temperature = property(lambda self: self.base_dist.temperature)
    logits = property(lambda self: self.base_dist.logits)
    probs = property(lambda self: self.base_dist.probs)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    has_rsample = True

    def rsample(self, sample_shape=()):
        s, p = self.sample(sample_shape), self.probs
        return s + (p - p.detach())


class MixtureSameFamily(Distribution):
    """One of several components, chosen by a Categorical."""

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        self._mixture, self._component = mixture_distribution, component_distribution
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(component_distribution.batch_shape[:-1], component_distribution.event_shape, validate_args)

    mixture_distribution = property(lambda self: self._mixture)
    component_distribution = property(lambda self: self._component)
    support = property(lambda self: constraints.MixtureSameFamilyConstraint(self._component.support))

    def _pad(self, p):
        return p.reshape(p.shape + (1,) * self._event_ndims)

    @property
    def mean(self):
        return (self._pad(self._mixture.probs) * self._component.mean).sum(-1 - self._event_ndims)

    @property
    def variance(self):
        p = self._pad(self._mixture.probs)
        inside = (p * self._component.variance).sum(-1 - self._event_ndims)
        return inside + (p * (self._component.mean - self.mean.unsqueeze(-1 - self._event_ndims)).pow(2)).sum(-1 - self._event_ndims)

    def log_prob(self, x):
        lp = self._component.log_prob(x.unsqueeze(-1 - self._event_ndims))
        return taper.logsumexp(lp + taper.log_softmax(self._mixture.logits, dim=-1), dim=-1)

    def cdf(self, x):
        return (self._component.cdf(x.unsqueeze(-1 - self._event_ndims)) * self._mixture.probs).sum(-1)

    def sample(self, sample_shape=()):
        with taper.no_grad():
            at = len(tuple(sample_shape)) + len(self.batch_shape)
            which, all_ = self._mixture.sample(sample_shape), self._component.sample(sample_shape)
            which = which.reshape(which.shape + (1,) * (self._event_ndims + 1))
            which = which.expand(which.shape[:at + 1] + tuple(self.event_shape))
            return taper.gather(all_, at, which).squeeze(at)


class LowRankMultivariateNormal(Distribution):
    has_rsample = True
    arg_constraints, support = {"loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2), "cov_diag": constraints.independent(constraints.positive, 1)}, constraints.real_vector

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        self.cov_factor = cov_factor
        self.loc, self.cov_diag = taper.broadcast_tensors(loc, cov_diag)
        super().__init__(self.loc.shape[:-1], self.loc.shape[-1:], validate_args)

    mean = mode = property(lambda self: self.loc)
    covariance_matrix = property(lambda self: self.cov_factor @ self.cov_factor.mT + taper.diag_embed(self.cov_diag))
    variance = property(lambda self: self.cov_factor.pow(2).sum(-1) + self.cov_diag)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        w = taper.randn(tuple(shape[:-1]) + (self.cov_factor.shape[-1],), dtype=self.loc.dtype)
        return self.loc + (self.cov_factor @ w.unsqueeze(-1)).squeeze(-1) + self.cov_diag.sqrt() * taper.randn(shape, dtype=self.loc.dtype)

    def log_prob(self, value):
        from .continuous import MultivariateNormal
        return MultivariateNormal(self.loc, self.covariance_matrix, validate_args=False).log_prob(value)


class LKJCholesky(Distribution):
    arg_constraints, support = {"concentration": constraints.positive}, constraints.corr_cholesky

    def __init__(self, dim, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)
        marginal = self.concentration + 0.5 * (dim - 2)
        offset = taper.arange(dim - 1, dtype=self.concentration.dtype)
        offset = taper.cat([offset.new_zeros((1,)), offset])
        self._beta = Beta(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset)

    def sample(self, sample_shape=()):
        with taper.no_grad():
            y = self._beta.sample(sample_shape).unsqueeze(-1)
            u = taper.randn(self._extended_shape(sample_shape), dtype=y.dtype).tril(-1)
            u = u / u.norm(dim=-1, keepdim=True)
            u[..., 0, :].fill_(0.0)
            w = taper.sqrt(y) * u
            diag = taper.clamp(1 - (w ** 2).sum(-1), min=taper.finfo(w.dtype).tiny).sqrt()
            return w + taper.diag_embed(diag)

    def log_prob(self, value):
        diag = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - taper.arange(2, self.dim + 1)
        top = (order * diag.log()).sum(-1)
        n = self.dim - 1
        alpha = self.concentration + 0.5 * n
        return top - (0.5 * n * _math.log(_math.pi) + taper.mvlgamma(alpha - 0.5, n) - taper.lgamma(alpha) * n)


class Wishart(Distribution):
    has_rsample, support = True, constraints.positive_definite

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        m = given[0]
        self.scale_tril = m if scale_tril is not None else taper.linalg.cholesky(m if covariance_matrix is not None else taper.linalg.inv(m))
        self.df = taper.as_tensor(df, dtype=m.dtype).expand(m.shape[:-2])
        super().__init__(m.shape[:-2], m.shape[-2:], validate_args)

    covariance_matrix = property(lambda self: self.scale_tril @ self.scale_tril.mT)
    mean = property(lambda self: self.df[..., None, None] * self.covariance_matrix)

    def rsample(self, sample_shape=()):
        p = self.event_shape[-1]
        shape = self._extended_shape(sample_shape)
        noise = taper.randn(shape, dtype=self.scale_tril.dtype).tril(-1)
        df = self.df.unsqueeze(-1) - taper.arange(p, dtype=self.df.dtype)
        noise = noise + taper.diag_embed(Chi2(df).rsample(sample_shape).clamp(min=1e-12).sqrt())
        chol = self.scale_tril @ noise
        return chol @ chol.mT

    def log_prob(self, value):
        nu, p = self.df, self.event_shape[-1]
        inside = taper.cholesky_solve(value, self.scale_tril.expand(value.shape))
        logdet = 2 * self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return (-nu * (p * _math.log(2) + logdet) / 2 - taper.mvlgamma(nu / 2, p) + (nu - p - 1) / 2 * taper.linalg.slogdet(value).logabsdet
                - inside.diagonal(dim1=-2, dim2=-1).sum(-1) / 2)


class GeneralizedPareto(Distribution):
    has_rsample = True

    def __init__(self, loc, scale, concentration, validate_args=None):
        self.loc, self.scale, self.concentration = broadcast(loc, scale, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    support = property(lambda self: constraints.greater_than_eq(self.loc))

    def icdf(self, value):
        c = self.concentration
        safe = taper.where(c == 0, taper.ones_like(c), c)
        return self.loc + self.scale * taper.where(c == 0, -taper.log1p(-value), ((1 - value) ** -safe - 1) / safe)

    def rsample(self, sample_shape=()):
        return self.icdf(taper.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype))

    def log_prob(self, value):
        z, c = (value - self.loc) / self.scale, self.concentration
        safe = taper.where(c == 0, taper.ones_like(c), c)
        return -self.scale.log() - taper.where(c == 0, z, (1 + 1 / safe) * taper.log1p(safe * z))
