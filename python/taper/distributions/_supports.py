"""What each distribution allows for its parameters and its draws, as constraints."""
from . import constraints as c
from . import continuous as C, discrete as D
from .distribution import Distribution, Independent

_ROWS = {
    C.Normal: (c.real, dict(loc=c.real, scale=c.positive)), C.LogNormal: (c.positive, dict(loc=c.real, scale=c.positive)),
    C.Laplace: (c.real, dict(loc=c.real, scale=c.positive)), C.Cauchy: (c.real, dict(loc=c.real, scale=c.positive)),
    C.Gumbel: (c.real, dict(loc=c.real, scale=c.positive)), C.HalfNormal: (c.nonnegative, dict(scale=c.positive)),
    C.Exponential: (c.nonnegative, dict(rate=c.positive)), C.Gamma: (c.nonnegative, dict(concentration=c.positive, rate=c.positive)),
    C.Chi2: (c.nonnegative, dict(df=c.positive)), C.Dirichlet: (c.simplex, dict(concentration=c.independent(c.positive, 1))),
    C.Beta: (c.unit_interval, dict(concentration1=c.positive, concentration0=c.positive)),
    C.StudentT: (c.real, dict(df=c.positive, loc=c.real, scale=c.positive)),
    C.MultivariateNormal: (c.real_vector, dict(loc=c.real_vector, covariance_matrix=c.positive_definite, precision_matrix=c.positive_definite, scale_tril=c.lower_cholesky)),
    C.Uniform: (c.dependent_property(lambda self: c.interval(self.low, self.high), is_discrete=False, event_dim=0), dict(low=c.dependent(is_discrete=False, event_dim=0), high=c.dependent(is_discrete=False, event_dim=0))),
    D.Bernoulli: (c.boolean, dict(probs=c.unit_interval, logits=c.real)), D.Geometric: (c.nonnegative_integer, dict(probs=c.unit_interval, logits=c.real)),
    D.Poisson: (c.nonnegative_integer, dict(rate=c.nonnegative)), D.OneHotCategorical: (c.one_hot, dict(probs=c.simplex, logits=c.real_vector)),
    D.Binomial: (c.dependent_property(lambda self: c.integer_interval(0, self.total_count), is_discrete=True, event_dim=0), dict(total_count=c.nonnegative_integer, probs=c.unit_interval, logits=c.real)),
    D.Categorical: (c.dependent_property(lambda self: c.integer_interval(0, self.logits.shape[-1] - 1), is_discrete=True, event_dim=0), dict(probs=c.simplex, logits=c.real_vector)),
    D.Multinomial: (c.dependent_property(lambda self: c.multinomial(self.total_count), is_discrete=True, event_dim=1), dict(probs=c.simplex, logits=c.real_vector)),
}
for _cls, (_support, _args) in _ROWS.items():
    _cls.support, _cls.arg_constraints = _support, _args
Independent.support = c.dependent_property(lambda self: c.independent(self.base_dist.support, self.reinterpreted_batch_ndims))
Distribution.has_enumerate_support = False
D.Bernoulli.has_enumerate_support = D.Categorical.has_enumerate_support = D.OneHotCategorical.has_enumerate_support = D.Binomial.has_enumerate_support = True


def _validate_sample(self, value):
    """Raises where value cannot be a draw of this distribution."""
    if not hasattr(value, "shape"):
        raise ValueError("The value argument to log_prob must be a Tensor")
    try:
        support = self.support
    except NotImplementedError:
        return
    ok = support.check(value)
    if not bool(ok.all()):
        raise ValueError(f"Expected value argument to be within the support ({support!r}) of the distribution {self!r}, but found invalid values:\n{value}")


Distribution._validate_sample = _validate_sample
Distribution.set_default_validate_args = staticmethod(Distribution.set_default_validate_args)
