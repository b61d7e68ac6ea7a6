"""Helpers of distributions."""
import functools as _functools

import taper
from .distribution import broadcast as broadcast_all  # noqa: F401

euler_constant = 0.57721566490153286060


class lazy_property:
    """Computed when it is first asked for, then kept on the object."""

    def __init__(self, wrapped):
        self.wrapped = wrapped
        _functools.update_wrapper(self, wrapped)

    def __get__(self, instance, obj_type=None):
        if instance is None:
            return self
        with taper.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def clamp_probs(probs):
    eps = taper.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits, is_binary=False):
    return taper.sigmoid(logits) if is_binary else taper.softmax(logits, dim=-1)


def probs_to_logits(probs, is_binary=False):
    p = clamp_probs(probs)
    return taper.log(p) - taper.log1p(-p) if is_binary else taper.log(p)


def vec_to_tril_matrix(vec, diag=0):
    n = int((-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * vec.shape[-1] + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2)
    mat = taper.zeros(vec.shape[:-1] + (n, n), dtype=vec.dtype)
    i, j = taper.tril_indices(n, n, offset=diag)
    mat[..., i, j] = vec
    return mat


def tril_matrix_to_vec(mat, diag=0):
    n = mat.shape[-1]
    i, j = taper.tril_indices(n, n, offset=diag)
    return mat[..., i, j]


def _standard_normal(shape, dtype, device):
    return taper.normal(taper.zeros(shape, dtype=dtype, device=device), taper.ones(shape, dtype=dtype, device=device))


def _sum_rightmost(value, dim):
    return value if dim == 0 else value.reshape(value.shape[:-dim] + (-1,)).sum(-1)
