"""A distribution seen through transforms."""
import taper
from .distribution import Distribution, Independent
from .transforms import ComposeTransform, Transform, _sum_rightmost


class TransformedDistribution(Distribution):
    def __init__(self, base_distribution, transforms, validate_args=None):
        transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in transforms):
            raise ValueError(f"transforms must be a Transform or a list of Transforms, but was {transforms}")
        self.transforms, chain = transforms, ComposeTransform(transforms)
        shape = tuple(base_distribution.batch_shape) + tuple(base_distribution.event_shape)
        forward = chain.forward_shape(shape)
        expanded = chain.inverse_shape(forward)
        if tuple(expanded) != shape:
            base_distribution = base_distribution.expand(expanded[:len(expanded) - len(base_distribution.event_shape)])
        extra = chain.domain.event_dim - len(base_distribution.event_shape)
        self.base_dist = Independent(base_distribution, extra) if extra > 0 else base_distribution
        dim = chain.codomain.event_dim + max(len(self.base_dist.event_shape) - chain.domain.event_dim, 0)
        super().__init__(forward[:len(forward) - dim], forward[len(forward) - dim:], validate_args)

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @property
    def support(self):
        from . import constraints
        if not self.transforms:
            return self.base_dist.support
        c = self.transforms[-1].codomain
        return constraints.independent(c, len(self.event_shape) - c.event_dim) if len(self.event_shape) > c.event_dim else c

    def expand(self, batch_shape, _instance=None):
        shape = ComposeTransform(self.transforms).inverse_shape(tuple(batch_shape) + tuple(self.event_shape))
        base = self.base_dist.expand(shape[:len(shape) - len(self.base_dist.event_shape)])
        return TransformedDistribution(base, self.transforms, self._validate_args)

    def sample(self, sample_shape=()):
        with taper.no_grad():
            x = self.base_dist.sample(sample_shape)
            for t in self.transforms:
                x = t(x)
            return x

    def rsample(self, sample_shape=()):
        x = self.base_dist.rsample(sample_shape)
        for t in self.transforms:
            x = t(x)
        return x

    def log_prob(self, value):
        dim, log_prob, y = len(self.event_shape), 0.0, value
        for t in reversed(self.transforms):
            x = t.inv(y)
            dim += t.domain.event_dim - t.codomain.event_dim
            log_prob = log_prob - _sum_rightmost(t.log_abs_det_jacobian(x, y), dim - t.domain.event_dim)
            y = x
        return log_prob + _sum_rightmost(self.base_dist.log_prob(y), dim - len(self.base_dist.event_shape))

    def _sign(self):
        s = 1
        for t in self.transforms:
            s = s * t.sign
        return s

    def cdf(self, value):
        for t in reversed(self.transforms):
            value = t.inv(value)
        v, s = self.base_dist.cdf(value), self._sign()
        return v if isinstance(s, int) and s == 1 else s * (v - 0.5) + 0.5

    def icdf(self, value):
        s = self._sign()
        value = value if isinstance(s, int) and s == 1 else s * (value - 0.5) + 0.5
        value = self.base_dist.icdf(value)
        for t in self.transforms:
            value = t(value)
        return value
