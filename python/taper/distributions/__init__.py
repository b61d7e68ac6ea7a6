"""Probability distributions over tensors: sampling, densities, entropies and divergences."""
from .distribution import Distribution, Independent  # noqa: F401
from .continuous import (Beta, Cauchy, Chi2, Dirichlet, Exponential, Gamma, Gumbel, HalfNormal, Laplace, LogNormal, MultivariateNormal,  # noqa: F401
                         Normal, StudentT, Uniform)
from .discrete import Bernoulli, Binomial, Categorical, Geometric, Multinomial, OneHotCategorical, Poisson  # noqa: F401
from .kl import kl_divergence, register_kl  # noqa: F401
from . import distribution, continuous, discrete, kl  # noqa: F401
