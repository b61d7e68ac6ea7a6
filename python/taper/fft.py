"""Fourier transforms need complex tensors, which are not supported; the helpers that stay real are here."""
import taper
from ._absent import fill as _fill

_fill(globals(), "complex tensors are not supported",
      functions="fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 hfft2 ihfft2 fftn ifftn rfftn irfftn hfftn ihfftn")


def fftfreq(n, d=1.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    """The frequencies that belong to the n results of a transform."""
    k = taper.cat([taper.arange(0, (n - 1) // 2 + 1, dtype=dtype, device=device), taper.arange(-(n // 2), 0, dtype=dtype, device=device)])
    return (k / (n * d)).requires_grad_(requires_grad)


def rfftfreq(n, d=1.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    return (taper.arange(0, n // 2 + 1, dtype=dtype, device=device) / (n * d)).requires_grad_(requires_grad)


def _shift(input, dim, sign):
    dim = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    half = [input.size(d) // 2 if sign > 0 else (input.size(d) + 1) // 2 for d in dim]
    return taper.roll(input, half, dim)


def fftshift(input, dim=None):
    """Zero frequency moves to the middle."""
    return _shift(input, dim, 1)


def ifftshift(input, dim=None):
    return _shift(input, dim, -1)
