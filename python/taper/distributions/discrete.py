"""Distributions over numbers that can be counted."""
import math

import taper
import taper.nn.functional as F
from .distribution import Distribution, broadcast


class _Logits(Distribution):
    """Parameters given as probabilities or as logits; the other is computed when it is asked for."""

    def _take(self, probs, logits):
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        (v,) = broadcast(probs if probs is not None else logits)
        self._probs, self._logits = (v, None) if probs is not None else (None, v)
        return v

    def _parameters(self):
        return [k for k in ("_probs", "_logits", "total_count") if isinstance(self.__dict__.get(k), taper.Tensor)]

    @property
    def probs(self):
        return self._probs if self._probs is not None else self._logits.sigmoid()

    @property
    def logits(self):
        if self._logits is not None:
            return self._logits
        eps = taper.finfo(self._probs.dtype).eps
        p = self._probs.clamp(eps, 1 - eps)
        return p.log() - taper.log1p(-p)

    def _check_probs(self):
        if self._probs is not None:
            self._check("probs", self._probs, (self._probs >= 0) & (self._probs <= 1), "Interval(lower_bound=0.0, upper_bound=1.0)")

    def __repr__(self):
        name, v = ("probs", self._probs) if self._probs is not None else ("logits", self._logits)
        return f"{type(self).__name__}({name}: {v if v.numel() == 1 else tuple(v.shape)})"


class Bernoulli(_Logits):
    def __init__(self, probs=None, logits=None, validate_args=None):
        v = self._take(probs, logits)
        super().__init__(v.shape, (), validate_args)
        self._check_probs()

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))
    param_shape = property(lambda self: (self._probs if self._probs is not None else self._logits).shape)

    @property
    def mode(self):
        m = (self.probs >= 0.5).to(self.probs.dtype)
        return taper.where(self.probs == 0.5, taper.full_like(m, math.nan), m)

    def sample(self, sample_shape=()):
        with taper.no_grad():
            return taper.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        self._check_sample(value, (value == 0) | (value == 1), "Boolean()")
        logits, value = taper.broadcast_tensors(self.logits, value.to(self.logits.dtype))
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand=True):
        v = taper.arange(2, dtype=self.probs.dtype).view((-1,) + (1,) * len(self._batch_shape))
        return v.expand((-1,) + tuple(self._batch_shape)) if expand else v


class Geometric(_Logits):
    """Failures before the first success."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        v = self._take(probs, logits)
        super().__init__(v.shape, (), validate_args)
        if self._probs is not None:
            self._check("probs", self._probs, (self._probs > 0) & (self._probs <= 1), "Interval(lower_bound=0.0, upper_bound=1.0)")

    mean = property(lambda self: 1 / self.probs - 1)
    mode = property(lambda self: taper.zeros_like(self.probs))
    variance = property(lambda self: (1 / self.probs - 1) / self.probs)

    def sample(self, sample_shape=()):
        with taper.no_grad():
            u = taper.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype).clamp(min=taper.finfo(self.probs.dtype).tiny)
            return (u.log() / taper.log1p(-self.probs)).floor()

    def log_prob(self, value):
        self._check_sample(value, (value >= 0) & (value % 1 == 0), "IntegerGreaterThan(lower_bound=0)")
        p, value = taper.broadcast_tensors(self.probs, value.to(self.probs.dtype))
        p = p.masked_fill((p == 1) & (value == 0), 0)
        return value * taper.log1p(-p) + self.probs.log()

    def entropy(self):
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class Binomial(_Logits):
    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        v = self._take(probs, logits)
        self.total_count, v = broadcast(total_count, v)
        self.total_count = self.total_count.to(v.dtype)
        self._probs, self._logits = (v, None) if probs is not None else (None, v)
        super().__init__(v.shape, (), validate_args)
        self._check_probs()

    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count.max()))
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        with taper.no_grad():
            shape, most = self._extended_shape(sample_shape), int(self.total_count.max())
            hits = taper.rand((most, *shape), dtype=self.probs.dtype) < self.probs
            counted = taper.arange(most).view((-1,) + (1,) * len(shape)) < self.total_count
            return (hits & counted).sum(0).to(self.probs.dtype)

    def log_prob(self, value):
        self._check_sample(value, (value >= 0) & (value <= self.total_count), "IntegerInterval(lower_bound=0, upper_bound=total_count)")
        n, l = self.total_count, self.logits
        comb = taper.lgamma(n + 1) - taper.lgamma(value + 1) - taper.lgamma(n - value + 1)
        return comb + value * l - n * (l.clamp(min=0) + taper.log1p(taper.exp(-l.abs())))


class Categorical(_Logits):
    def __init__(self, probs=None, logits=None, validate_args=None):
        v = self._take(probs, logits)
        if v.dim() < 1:
            raise ValueError(f"`{'probs' if probs is not None else 'logits'}` parameter must be at least one-dimensional.")
        if probs is not None:
            self._probs = v / v.sum(-1, keepdim=True)
        else:
            self._logits = v - v.logsumexp(-1, keepdim=True)
        self._num_events = v.size(-1)
        super().__init__(v.shape[:-1], (), validate_args)
        if probs is not None:
            self._check("probs", v, (v >= 0).all(-1) & (v.sum(-1) > 0), "Simplex()")
        else:
            self._check("logits", v, v == v, "IndependentConstraint(Real(), 1)")

    probs = property(lambda self: self._probs if self._probs is not None else self._logits.softmax(-1))
    param_shape = property(lambda self: (self._probs if self._probs is not None else self._logits).shape)
    mean = property(lambda self: taper.full(self._batch_shape, math.nan, dtype=self.probs.dtype))
    variance = property(lambda self: taper.full(self._batch_shape, math.nan, dtype=self.probs.dtype))
    mode = property(lambda self: self.probs.argmax(-1))

    @property
    def logits(self):
        if self._logits is not None:
            return self._logits
        eps = taper.finfo(self._probs.dtype).eps
        return self._probs.clamp(eps, 1 - eps).log()

    def sample(self, sample_shape=()):
        sample_shape = taper.Size(sample_shape)
        with taper.no_grad():
            flat = self.probs.reshape(-1, self._num_events)
            return taper.multinomial(flat, sample_shape.numel(), True).T.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value):
        self._check_sample(value, (value >= 0) & (value < self._num_events), f"IntegerInterval(lower_bound=0, upper_bound={self._num_events - 1})")
        value = value.long().unsqueeze(-1)
        value, logits = taper.broadcast_tensors(value, self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self):
        low = taper.finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=low) * self.probs).sum(-1)

    def enumerate_support(self, expand=True):
        v = taper.arange(self._num_events).view((-1,) + (1,) * len(self._batch_shape))
        return v.expand((-1,) + tuple(self._batch_shape)) if expand else v


class OneHotCategorical(Distribution):
    def __init__(self, probs=None, logits=None, validate_args=None):
        self._cat = Categorical(probs, logits, validate_args)
        super().__init__(self._cat.batch_shape, self._cat.param_shape[-1:], validate_args)

    probs = property(lambda self: self._cat.probs)
    logits = property(lambda self: self._cat.logits)
    mean = property(lambda self: self._cat.probs)
    variance = property(lambda self: self._cat.probs * (1 - self._cat.probs))
    mode = property(lambda self: F.one_hot(self._cat.mode, self._event_shape[0]).to(self.probs.dtype))

    def sample(self, sample_shape=()):
        return F.one_hot(self._cat.sample(sample_shape), self._event_shape[0]).to(self.probs.dtype)

    def log_prob(self, value):
        self._check_sample(value, ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1), "OneHot()")
        return self._cat.log_prob(value.max(-1)[1])

    def entropy(self):
        return self._cat.entropy()

    def __repr__(self):
        return "OneHot" + repr(self._cat)


class Multinomial(Distribution):
    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count, self._cat = total_count, Categorical(probs, logits, validate_args)
        super().__init__(self._cat.batch_shape, self._cat.param_shape[-1:], validate_args)

    probs = property(lambda self: self._cat.probs)
    logits = property(lambda self: self._cat.logits)
    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        draws = self._cat.sample((self.total_count,) + tuple(sample_shape))
        return F.one_hot(draws, self._event_shape[0]).sum(0).to(self.probs.dtype)

    def log_prob(self, value):
        self._check_sample(value, (value >= 0).all(-1) & (value.sum(-1) == self.total_count), "Multinomial()")
        logits, value = taper.broadcast_tensors(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -math.inf), 0)
        return taper.lgamma(value.sum(-1) + 1) - taper.lgamma(value + 1).sum(-1) + (logits * value).sum(-1)

    def __repr__(self):
        return f"Multinomial({self.total_count}, {self._cat!r})"


def _poisson(rate):
    """Draws by walking up the distribution until it passes a uniform number."""
    u, k, p = taper.rand(rate.shape, dtype=rate.dtype), taper.zeros_like(rate), taper.exp(-rate)
    below = p.clone()
    i = 0
    while bool((u > below).any()) and i < 2000:
        i += 1
        k = k + (u > below).to(rate.dtype)
        p = p * rate / i
        below = below + p
    return k


class Poisson(Distribution):
    def __init__(self, rate, validate_args=None):
        (self.rate,) = broadcast(rate)
        super().__init__(self.rate.shape, (), validate_args)
        self._check("rate", self.rate, self.rate >= 0, "GreaterThanEq(lower_bound=0.0)")

    mean = variance = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())

    def sample(self, sample_shape=()):
        with taper.no_grad():
            rate = self.rate.expand(self._extended_shape(sample_shape)).double()
            parts = max(1, math.ceil(float(rate.max()) / 300)) if rate.numel() else 1  # exp(-rate) must not vanish; sums of draws are draws
            return sum(_poisson(rate / parts) for _ in range(parts)).to(self.rate.dtype)

    def log_prob(self, value):
        self._check_sample(value, (value >= 0) & (value % 1 == 0), "IntegerGreaterThan(lower_bound=0)")
        return taper.xlogy(value, self.rate) - self.rate - taper.lgamma(value + 1)
