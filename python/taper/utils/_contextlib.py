"""Contexts that also decorate."""
from ..autograd.grad_mode import _Mode as _DecoratorContextManager  # noqa: F401
from ..autograd.grad_mode import _Mode as _NoParamDecoratorContextManager  # noqa: F401
