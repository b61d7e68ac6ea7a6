"""Functional tensors are made inside the compiler."""
from .._absent import fill as _fill

_fill(globals(), "graphs are made functional inside the compiler", classes="FunctionalTensor FunctionalTensorMode")
