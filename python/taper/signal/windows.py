"""Window functions. sym=False gives the windows of spectral analysis, which are periodic."""
import math as _math

import taper as _T

__all__ = ["bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming",
           "hann", "kaiser", "nuttall"]


def _window(fill):
    """A public function around fill(M, n, points, ...): n is the number of steps in a whole period, points(a, b) evenly
    spaced numbers."""
    def f(M, *args, sym=True, dtype=None, layout=_T.strided, device=None, requires_grad=False, **kw):
        dtype = dtype or _T.get_default_dtype()
        if M < 0:
            raise ValueError(f"Requires non-negative window length, got M={M}")
        if layout is not _T.strided:
            raise ValueError(f"{f.__name__} is implemented for strided tensors only, got: {layout}")
        if dtype not in (_T.float32, _T.float64):
            raise ValueError(f"{f.__name__} expects float32 or float64 dtypes, got: {dtype}")
        n = M - 1 if sym else M
        points = lambda a, b: _T.linspace(a, b, M, dtype=dtype, device=device)
        r = fill(M, n, points, *args, sym=sym, **kw) if M else _T.empty(0, dtype=dtype, device=device)
        return r.requires_grad_() if requires_grad else r

    f.__name__ = f.__qualname__ = fill.__name__
    f.__doc__ = fill.__doc__
    return f


@_window
def exponential(M, n, points, *, center=None, tau=1.0, sym=True):
    """exp(-|k - center| / tau)"""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    if center is None:
        center = (n if M > 1 else M - 1) / 2
    return (-points(-center / tau, (-center + M - 1) / tau).abs()).exp()


@_window
def cosine(M, n, points, *, sym=True):
    """Half a period of the sine."""
    step = _math.pi / (M + 1 if not sym and M > 1 else M)
    return points(0.5 * step, (M - 0.5) * step).sin()


@_window
def gaussian(M, n, points, *, std=1.0, sym=True):
    """exp(-(k - center)^2 / (2 std^2))"""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    start, scale = -(n if M > 1 else M - 1) / 2, 1 / (std * _math.sqrt(2))
    return (-points(start * scale, (start + M - 1) * scale) ** 2).exp()


@_window
def kaiser(M, n, points, *, beta=12.0, sym=True):
    """i0(beta sqrt(1 - x^2)) / i0(beta)"""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    if M == 1:
        return points(1, 1)
    k = points(-beta, min(beta, -beta + (M - 1) * 2 * beta / n))
    return (beta * beta - k ** 2).sqrt().i0() / _T.tensor(beta, dtype=k.dtype).i0()


def _cosines(M, n, points, a):
    if M == 1:
        return points(1, 1)
    k = points(0, (M - 1) * 2 * _math.pi / n)
    w = _T.tensor([(-1) ** i * v for i, v in enumerate(a)], dtype=k.dtype)
    i = _T.arange(len(a), dtype=k.dtype)
    return (w.unsqueeze(-1) * (i.unsqueeze(-1) * k).cos()).sum(0)


@_window
def general_cosine(M, n, points, *, a, sym=True):
    """A weighted sum of cosines, with signs that alternate."""
    if not isinstance(a, (list, tuple)):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return _cosines(M, n, points, a)


@_window
def general_hamming(M, n, points, *, alpha=0.54, sym=True):
    """alpha - (1 - alpha) cos"""
    return _cosines(M, n, points, (alpha, 1 - alpha))


@_window
def hamming(M, n, points, *, sym=True):
    """0.54 - 0.46 cos"""
    return _cosines(M, n, points, (0.54, 0.46))


@_window
def hann(M, n, points, *, sym=True):
    """0.5 - 0.5 cos"""
    return _cosines(M, n, points, (0.5, 0.5))


@_window
def blackman(M, n, points, *, sym=True):
    """Three terms."""
    return _cosines(M, n, points, (0.42, 0.5, 0.08))


@_window
def nuttall(M, n, points, *, sym=True):
    """Four terms, with continuous first derivative."""
    return _cosines(M, n, points, (0.3635819, 0.4891775, 0.1365995, 0.0106411))


@_window
def bartlett(M, n, points, *, sym=True):
    """A triangle."""
    if M == 1:
        return points(1, 1)
    return 1 - points(-1, -1 + (M - 1) * 2 / n).abs()
