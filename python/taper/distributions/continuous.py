"""Distributions with a density."""
import math

import taper
from .distribution import Distribution, broadcast

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class _LocScale(Distribution):
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)
        self._check("scale", self.scale, self.scale > 0, "GreaterThan(lower_bound=0.0)")

    def _noise(self, shape):
        return taper.empty(shape, dtype=self.loc.dtype)

    def _z(self, value):
        self._check_sample(value)
        return (value - self.loc) / self.scale

    def rsample(self, sample_shape=()):
        return self.loc + self._noise(self._extended_shape(sample_shape)) * self.scale


class Normal(_LocScale):
    mean = mode = property(lambda self: self.loc)
    stddev = property(lambda self: self.scale)
    variance = property(lambda self: self.scale.pow(2))

    def _noise(self, shape):
        return taper.randn(shape, dtype=self.loc.dtype)

    def log_prob(self, value):
        return -0.5 * self._z(value).pow(2) - self.scale.log() - _HALF_LOG_2PI

    def cdf(self, value):
        return 0.5 * (1 + taper.erf(self._z(value) / math.sqrt(2)))

    def icdf(self, value):
        return self.loc + self.scale * taper.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self):
        return 0.5 + _HALF_LOG_2PI + self.scale.log()


class LogNormal(_LocScale):
    mean = property(lambda self: (self.loc + self.scale.pow(2) / 2).exp())
    mode = property(lambda self: (self.loc - self.scale.pow(2)).exp())
    variance = property(lambda self: self.scale.pow(2).expm1() * (2 * self.loc + self.scale.pow(2)).exp())

    def rsample(self, sample_shape=()):
        return (self.loc + taper.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype) * self.scale).exp()

    def log_prob(self, value):
        self._check_sample(value, value > 0, "GreaterThan(lower_bound=0.0)")
        return Normal(self.loc, self.scale, False).log_prob(value.log()) - value.log()

    def cdf(self, value):
        return Normal(self.loc, self.scale, False).cdf(value.log())

    def entropy(self):
        return 0.5 + _HALF_LOG_2PI + self.scale.log() + self.loc


class Laplace(_LocScale):
    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: 2 * self.scale.pow(2))

    def _noise(self, shape):
        u = taper.rand(shape, dtype=self.loc.dtype).clamp(min=taper.finfo(self.loc.dtype).tiny) * 2 - 1
        return -u.sign() * taper.log1p(-u.abs().clamp(max=1 - taper.finfo(self.loc.dtype).eps))

    def log_prob(self, value):
        return -taper.log(2 * self.scale) - self._z(value).abs()

    def cdf(self, value):
        z = self._z(value)
        return 0.5 - 0.5 * z.sign() * taper.expm1(-z.abs())

    def icdf(self, value):
        t = value - 0.5
        return self.loc - self.scale * t.sign() * taper.log1p(-2 * t.abs())

    def entropy(self):
        return 1 + taper.log(2 * self.scale)


class Cauchy(_LocScale):
    mean = property(lambda self: taper.full_like(self.loc, math.nan))
    mode = property(lambda self: self.loc)
    variance = property(lambda self: taper.full_like(self.loc, math.inf))

    def _noise(self, shape):
        return taper.tan(math.pi * (taper.rand(shape, dtype=self.loc.dtype) - 0.5))

    def log_prob(self, value):
        return -math.log(math.pi) - self.scale.log() - taper.log1p(self._z(value).pow(2))

    def cdf(self, value):
        return taper.atan(self._z(value)) / math.pi + 0.5

    def icdf(self, value):
        return taper.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self):
        return math.log(4 * math.pi) + self.scale.log()


class Gumbel(_LocScale):
    mean = property(lambda self: self.loc + self.scale * 0.57721566490153286060)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: (math.pi * self.scale).pow(2) / 6)

    def _noise(self, shape):
        info = taper.finfo(self.loc.dtype)
        return -taper.log(-taper.log(taper.rand(shape, dtype=self.loc.dtype).clamp(info.tiny, 1 - info.eps)))

    def log_prob(self, value):
        z = -self._z(value)
        return z - z.exp() - self.scale.log()

    def cdf(self, value):
        return taper.exp(-taper.exp(-self._z(value)))

    def entropy(self):
        return self.scale.log() + (1 + 0.57721566490153286060)


class HalfNormal(Distribution):
    has_rsample = True

    def __init__(self, scale, validate_args=None):
        (self.scale,) = broadcast(scale)
        super().__init__(self.scale.shape, (), validate_args)
        self._check("scale", self.scale, self.scale > 0, "GreaterThan(lower_bound=0.0)")

    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    mode = property(lambda self: taper.zeros_like(self.scale))
    variance = property(lambda self: self.scale.pow(2) * (1 - 2 / math.pi))

    def rsample(self, sample_shape=()):
        return (taper.randn(self._extended_shape(sample_shape), dtype=self.scale.dtype) * self.scale).abs()

    def log_prob(self, value):
        self._check_sample(value, value >= 0, "GreaterThanEq(lower_bound=0.0)")
        return math.log(2) - 0.5 * (value / self.scale).pow(2) - self.scale.log() - _HALF_LOG_2PI

    def cdf(self, value):
        return taper.erf(value / self.scale / math.sqrt(2))

    def entropy(self):
        return 0.5 + _HALF_LOG_2PI + self.scale.log() - math.log(2)


class Uniform(Distribution):
    has_rsample = True

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = broadcast(low, high)
        super().__init__(self.low.shape, (), validate_args)
        if self._validate_args and not taper.compiler.is_compiling() and not bool((self.low < self.high).all()):
            raise ValueError("Uniform is not defined when low>= high")

    mean = property(lambda self: (self.high + self.low) / 2)
    variance = property(lambda self: (self.high - self.low).pow(2) / 12)

    def rsample(self, sample_shape=()):
        return self.low + taper.rand(self._extended_shape(sample_shape), dtype=self.low.dtype) * (self.high - self.low)

    def log_prob(self, value):
        self._check_sample(value, (value >= self.low) & (value <= self.high), "Interval(lower_bound, upper_bound)")
        inside = (value >= self.low) & (value < self.high)
        return taper.log(inside.to(self.low.dtype)) - taper.log(self.high - self.low)

    def cdf(self, value):
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value):
        return value * (self.high - self.low) + self.low

    def entropy(self):
        return taper.log(self.high - self.low)


class Exponential(Distribution):
    has_rsample = True

    def __init__(self, rate, validate_args=None):
        (self.rate,) = broadcast(rate)
        super().__init__(self.rate.shape, (), validate_args)
        self._check("rate", self.rate, self.rate > 0, "GreaterThan(lower_bound=0.0)")

    mean = property(lambda self: self.rate.reciprocal())
    mode = property(lambda self: taper.zeros_like(self.rate))
    variance = property(lambda self: self.rate.pow(-2))

    def rsample(self, sample_shape=()):
        return taper.empty(self._extended_shape(sample_shape), dtype=self.rate.dtype).exponential_() / self.rate

    def log_prob(self, value):
        self._check_sample(value, value >= 0, "GreaterThanEq(lower_bound=0.0)")
        return self.rate.log() - self.rate * value

    def cdf(self, value):
        return 1 - taper.exp(-self.rate * value)

    def icdf(self, value):
        return -taper.log1p(-value) / self.rate

    def entropy(self):
        return 1 - self.rate.log()


def standard_gamma(alpha):
    """Draws of Gamma(alpha, 1), by Marsaglia and Tsang: no gradient."""
    alpha = alpha.detach()
    small = alpha < 1
    a = taper.where(small, alpha + 1, alpha)
    d = a - 1 / 3
    c = 1 / (3 * d.sqrt())
    out, open_ = taper.zeros_like(a), taper.ones_like(a, dtype=taper.bool)
    while bool(open_.any()):
        x, u = taper.randn(a.shape, dtype=a.dtype), taper.rand(a.shape, dtype=a.dtype).clamp(min=taper.finfo(a.dtype).tiny)
        v = (1 + c * x).pow(3)
        ok = (v > 0) & (u.log() < 0.5 * x * x + d - d * v + d * v.clamp(min=taper.finfo(a.dtype).tiny).log())
        out = taper.where(open_ & ok, d * v, out)
        open_ = open_ & ~ok
    u = taper.rand(a.shape, dtype=a.dtype).clamp(min=taper.finfo(a.dtype).tiny)
    return taper.where(small, out * u.pow(1 / alpha), out).clamp(min=taper.finfo(a.dtype).tiny)


class Gamma(Distribution):
    def __init__(self, concentration, rate, validate_args=None):
        self.concentration, self.rate = broadcast(concentration, rate)
        super().__init__(self.concentration.shape, (), validate_args)
        self._check("concentration", self.concentration, self.concentration > 0, "GreaterThan(lower_bound=0.0)")
        self._check("rate", self.rate, self.rate > 0, "GreaterThan(lower_bound=0.0)")

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate.pow(2))

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        return standard_gamma(self.concentration.expand(shape)) / self.rate.detach()

    def log_prob(self, value):
        self._check_sample(value, value >= 0, "GreaterThanEq(lower_bound=0.0)")
        return taper.xlogy(self.concentration, self.rate) + taper.xlogy(self.concentration - 1, value) - self.rate * value - taper.lgamma(self.concentration)

    def entropy(self):
        return self.concentration - self.rate.log() + taper.lgamma(self.concentration) + (1 - self.concentration) * taper.digamma(self.concentration)


class Chi2(Gamma):
    def __init__(self, df, validate_args=None):
        (df,) = broadcast(df)
        super().__init__(0.5 * df, taper.full_like(df, 0.5), validate_args)

    df = property(lambda self: self.concentration * 2)


class Dirichlet(Distribution):
    def __init__(self, concentration, validate_args=None):
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)
        self._check("concentration", concentration, concentration > 0, "IndependentConstraint(GreaterThan(lower_bound=0.0), 1)")

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, True))

    @property
    def variance(self):
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def sample(self, sample_shape=()):
        g = standard_gamma(self.concentration.expand(self._extended_shape(sample_shape)))
        return g / g.sum(-1, True)

    def log_prob(self, value):
        self._check_sample(value, (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6 * 16), "Simplex()")
        c = self.concentration
        return taper.xlogy(c - 1, value).sum(-1) + taper.lgamma(c.sum(-1)) - taper.lgamma(c).sum(-1)

    def entropy(self):
        c, k = self.concentration, self.concentration.size(-1)
        a0 = c.sum(-1)
        return taper.lgamma(c).sum(-1) - taper.lgamma(a0) - (k - a0) * taper.digamma(a0) - ((c - 1) * taper.digamma(c)).sum(-1)


class Beta(Distribution):
    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = broadcast(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)
        for n in ("concentration1", "concentration0"):
            self._check(n, getattr(self, n), getattr(self, n) > 0, "GreaterThan(lower_bound=0.0)")

    def _both(self):
        return Dirichlet(taper.stack([self.concentration1, self.concentration0], -1), False)

    mean = property(lambda self: self.concentration1 / (self.concentration1 + self.concentration0))

    @property
    def variance(self):
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def sample(self, sample_shape=()):
        return self._both().sample(sample_shape).select(-1, 0)

    def log_prob(self, value):
        self._check_sample(value, (value >= 0) & (value <= 1), "Interval(lower_bound=0.0, upper_bound=1.0)")
        return self._both().log_prob(taper.stack([value, 1 - value], -1))

    def entropy(self):
        return self._both().entropy()


class StudentT(Distribution):
    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self.df, self.loc, self.scale = broadcast(df, loc, scale)
        super().__init__(self.df.shape, (), validate_args)
        self._check("scale", self.scale, self.scale > 0, "GreaterThan(lower_bound=0.0)")
        self._check("df", self.df, self.df > 0, "GreaterThan(lower_bound=0.0)")

    mean = property(lambda self: taper.where(self.df > 1, self.loc, taper.full_like(self.loc, math.nan)))
    mode = property(lambda self: self.loc)

    @property
    def variance(self):
        v = self.scale.pow(2) * self.df / (self.df - 2)
        v = taper.where(self.df > 2, v, taper.full_like(v, math.inf))
        return taper.where(self.df > 1, v, taper.full_like(v, math.nan))

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        z = taper.randn(shape, dtype=self.loc.dtype)
        chi = 2 * standard_gamma((self.df / 2).expand(shape))
        return self.loc.detach() + self.scale.detach() * z * taper.rsqrt(chi / self.df.detach())

    def log_prob(self, value):
        self._check_sample(value)
        y = (value - self.loc) / self.scale
        z = self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + taper.lgamma(0.5 * self.df) - taper.lgamma(0.5 * (self.df + 1))
        return -0.5 * (self.df + 1) * taper.log1p(y.pow(2) / self.df) - z


class MultivariateNormal(Distribution):
    has_rsample = True

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if (covariance_matrix is not None) + (scale_tril is not None) + (precision_matrix is not None) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = next(m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None)
        if given.dim() < 2:
            raise ValueError("the matrix must be at least two-dimensional, with optional leading batch dimensions")
        batch = taper.broadcast_shapes(given.shape[:-2], loc.shape[:-1])
        self.loc = loc.expand(tuple(batch) + tuple(loc.shape[-1:]))
        given = given.expand(tuple(batch) + tuple(given.shape[-2:]))
        self._tril = given if scale_tril is not None else taper.linalg.cholesky(given if covariance_matrix is not None else taper.linalg.inv(given))
        super().__init__(batch, loc.shape[-1:], validate_args)

    scale_tril = property(lambda self: self._tril)
    covariance_matrix = property(lambda self: self._tril @ self._tril.mT)
    precision_matrix = property(lambda self: taper.linalg.inv(self._tril @ self._tril.mT))
    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: self._tril.pow(2).sum(-1))

    def rsample(self, sample_shape=()):
        eps = taper.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + (self._tril @ eps.unsqueeze(-1)).squeeze(-1)

    def _mahalanobis(self, diff):
        tril = self._tril.expand(tuple(diff.shape[:-1]) + tuple(self._tril.shape[-2:]))
        return taper.linalg.solve_triangular(tril, diff.unsqueeze(-1), upper=False).squeeze(-1).pow(2).sum(-1)

    def _half_log_det(self):
        return self._tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value):
        self._check_sample(value)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._mahalanobis(value - self.loc)) - self._half_log_det()

    def entropy(self):
        return 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi)) + self._half_log_det()
