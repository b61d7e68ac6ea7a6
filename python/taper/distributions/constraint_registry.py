"""Transforms from unconstrained numbers to values that a constraint allows."""
from . import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    def __init__(self):
        self._registry = {}

    def register(self, constraint, factory=None):
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        cls = constraint if isinstance(constraint, type) else type(constraint)
        if not issubclass(cls, constraints.Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[cls] = factory
        return factory

    def __call__(self, constraint):
        try:
            factory = self._registry[type(constraint)]
        except KeyError:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints") from None
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _both(*cs):
    def keep(fn):
        for c in cs:
            biject_to.register(c, fn)
            transform_to.register(c, fn)
        return fn
    return keep


@_both(constraints.real)
def _real(c):
    return transforms.identity_transform


@_both(constraints.positive, constraints.nonnegative)
def _positive(c):
    return transforms.ExpTransform() if c.lower_bound == 0 else _above(c)


@_both(constraints.greater_than, constraints.greater_than_eq)
def _above(c):
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(c.lower_bound, 1)])


@_both(constraints.less_than)
def _below(c):
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(c.upper_bound, -1)])


@_both(constraints.interval, constraints.half_open_interval)
def _between(c):
    if not hasattr(c.lower_bound, "shape") and not hasattr(c.upper_bound, "shape") and (c.lower_bound, c.upper_bound) == (0, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(c.lower_bound, c.upper_bound - c.lower_bound)])


@biject_to.register(constraints.simplex)
def _stick(c):
    return transforms.StickBreakingTransform()


@transform_to.register(constraints.simplex)
def _softmax(c):
    return transforms.SoftmaxTransform()


@_both(constraints.lower_cholesky)
def _lower(c):
    return transforms.LowerCholeskyTransform()


@_both(constraints.positive_definite, constraints.positive_semidefinite)
def _definite(c):
    return transforms.PositiveDefiniteTransform()


@_both(constraints.corr_cholesky)
def _corr(c):
    return transforms.CorrCholeskyTransform()


@_both(constraints.cat)
def _cat(c):
    return transforms.CatTransform([biject_to(x) for x in c.cseq], c.dim, c.lengths)


@_both(constraints.stack)
def _stack(c):
    return transforms.StackTransform([biject_to(x) for x in c.cseq], c.dim)


@biject_to.register(constraints.independent)
def _independent(c):
    return transforms.IndependentTransform(biject_to(c.base_constraint), c.reinterpreted_batch_ndims)


@transform_to.register(constraints.independent)
def _independent_to(c):
    return transforms.IndependentTransform(transform_to(c.base_constraint), c.reinterpreted_batch_ndims)
