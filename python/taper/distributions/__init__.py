"""Probability distributions over tensors: sampling, densities, entropies and divergences."""
from .distribution import Distribution, Independent  # noqa: F401
from .continuous import (Beta, Cauchy, Chi2, Dirichlet, Exponential, Gamma, Gumbel, HalfNormal, Laplace, LogNormal, MultivariateNormal,  # noqa: F401
                         Normal, StudentT, Uniform)
from .discrete import Bernoulli, Binomial, Categorical, Geometric, Multinomial, OneHotCategorical, Poisson  # noqa: F401
from .kl import kl_divergence, register_kl  # noqa: F401
from . import distribution, continuous, discrete, kl  # noqa: F401
from . import constraints, utils  # noqa: F401
from .transforms import (AbsTransform, AffineTransform, CatTransform, ComposeTransform, CorrCholeskyTransform, CumulativeDistributionTransform,  # noqa: F401
                         ExpTransform, IndependentTransform, LowerCholeskyTransform, PositiveDefiniteTransform, PowerTransform, ReshapeTransform,
                         SigmoidTransform, SoftmaxTransform, SoftplusTransform, StackTransform, StickBreakingTransform, TanhTransform, Transform,
                         identity_transform)
from .constraint_registry import biject_to, transform_to  # noqa: F401
from .transformed_distribution import TransformedDistribution  # noqa: F401
from .more import (ContinuousBernoulli, ExponentialFamily, FisherSnedecor, GeneralizedPareto, HalfCauchy, InverseGamma, Kumaraswamy, LKJCholesky,  # noqa: F401
                   LogisticNormal, LowRankMultivariateNormal, MixtureSameFamily, NegativeBinomial, OneHotCategoricalStraightThrough, Pareto, RelaxedBernoulli,
                   RelaxedOneHotCategorical, VonMises, Weibull, Wishart)
from . import _supports as _supports  # noqa: F401
