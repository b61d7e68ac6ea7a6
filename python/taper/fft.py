"""Discrete Fourier transforms, with PyTorch's names and conventions; any length, float32 and float64."""
import taper
from . import _C
from ._overridable import overridable_functions as _overridable_functions

__all__ = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2", "fftn", "ifftn", "rfftn",
           "irfftn", "hfftn", "ihfftn", "fftfreq", "rfftfreq", "fftshift", "ifftshift"]


def _scaling(norm, forward):
    """0: none, 1: by the root of the number of elements, 2: by their number."""
    if norm is None or norm == "backward":
        return 0 if forward else 2
    if norm == "forward":
        return 2 if forward else 0
    if norm == "ortho":
        return 1
    raise RuntimeError(f'Invalid normalization mode: "{norm}"')


def _number(input):
    """Integers become the default float."""
    if not isinstance(input, _C.Tensor):
        raise TypeError(f"argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    d = input.dtype
    if d.is_complex or d is _C.float32 or d is _C.float64:
        return input
    if d.is_floating_point:
        raise RuntimeError(f"Unsupported dtype {d}: transforms are of float32 and float64")
    return input.to(_C.get_default_dtype())


def _complex(input):
    x = _number(input)
    return x if x.dtype.is_complex else x.to(x.dtype.to_complex())


def _real(name, input):
    if isinstance(input, _C.Tensor) and input.dtype.is_complex:
        raise RuntimeError(f"{name} expects a real input tensor, but got {input.type().split('.')[-1].removesuffix('Tensor')}")
    return _number(input)


def _wrap(x, d):
    n = max(x.dim(), 1)
    if not -n <= d < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")
    return d % n


def _resize(x, sizes, dims):
    """Cut or filled up with zeros at the end of each dimension."""
    pad = [0] * (2 * x.dim())
    for n, d in zip(sizes, dims):
        if n == -1:
            continue
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")
        have = x.size(d)
        if n < have:
            x = x.narrow(d, 0, n)
        elif n > have:
            pad[2 * (x.dim() - 1 - d) + 1] = n - have
    return taper.constant_pad_nd(x, pad) if any(pad) else x


def _one(x, n, dim):
    d = _wrap(x, dim)
    if x.dim() == 0:
        raise IndexError("Dimension specified as -1 but tensor has no dimensions")
    return (x if n is None else _resize(x, [n], [d])), [d]


def _many(x, s, dim):
    """Sizes and dimensions as PyTorch completes them."""
    if isinstance(s, int):
        s = [s]
    if isinstance(dim, int):
        dim = [dim]
    if dim is not None:
        dims = [_wrap(x, d) for d in dim]
        if len(set(dims)) != len(dims):
            raise RuntimeError("FFT dims must be unique")
        if s is not None and len(s) != len(dims):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
    elif s is not None:
        if len(s) > x.dim():
            raise RuntimeError(f"Got shape with {len(s)} values but input tensor only has {x.dim()} dimensions.")
        dims = list(range(x.dim() - len(s), x.dim()))
    else:
        dims = list(range(x.dim()))
    return [-1] * len(dims) if s is None else list(s), dims


def _into(out, r):
    return r if out is None else taper.functional._into(out, r)


def _c2c(x, dims, norm, forward):
    scaling = _scaling(norm, forward)
    if not dims:
        return x
    if x.dtype.is_complex:
        return taper._fft_c2c(x, dims, scaling, forward)
    y = taper._fft_r2c(x, dims, scaling, False)
    return y if forward else y.conj()


def fft(input, n=None, dim=-1, norm=None, *, out=None):
    """The transform along one dimension: y[k] = sum of x[j] exp(-2 pi i j k / n)."""
    x, d = _one(_number(input), n, dim)
    return _into(out, _c2c(x, d, norm, True))


def ifft(input, n=None, dim=-1, norm=None, *, out=None):
    """The inverse of fft."""
    x, d = _one(_number(input), n, dim)
    return _into(out, _c2c(x, d, norm, False))


def rfft(input, n=None, dim=-1, norm=None, *, out=None):
    """The first half of the transform of real numbers: the rest is its conjugate."""
    x, d = _one(_real("rfft", input), n, dim)
    return _into(out, taper._fft_r2c(x, d, _scaling(norm, True), True))


def ihfft(input, n=None, dim=-1, norm=None, *, out=None):
    """The inverse of hfft."""
    x, d = _one(_real("ihfft", input), n, dim)
    return _into(out, taper._fft_r2c(x, d, _scaling(norm, False), True).conj())


def _last_size(x, d, n):
    n = 2 * (x.size(d) - 1) if n is None or n == -1 else n
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return n


def irfft(input, n=None, dim=-1, norm=None, *, out=None):
    """The inverse of rfft: n real numbers of n // 2 + 1 complex ones."""
    x = _complex(input)
    d = _wrap(x, dim)
    n = _last_size(x, d, n)
    return _into(out, taper._fft_c2r(_resize(x, [n // 2 + 1], [d]), [d], _scaling(norm, False), n))


def hfft(input, n=None, dim=-1, norm=None, *, out=None):
    """The transform, which is real, of a line whose second half is the conjugate of its first."""
    x = _complex(input)
    d = _wrap(x, dim)
    n = _last_size(x, d, n)
    return _into(out, taper._fft_c2r(_resize(x, [n // 2 + 1], [d]).conj(), [d], _scaling(norm, True), n))


def fftn(input, s=None, dim=None, norm=None, *, out=None):
    """The transform along several dimensions."""
    x = _complex(input)
    s, dims = _many(x, s, dim)
    return _into(out, _c2c(_resize(x, s, dims), dims, norm, True))


def ifftn(input, s=None, dim=None, norm=None, *, out=None):
    """The inverse of fftn."""
    x = _complex(input)
    s, dims = _many(x, s, dim)
    return _into(out, _c2c(_resize(x, s, dims), dims, norm, False))


def _some(name, dims):
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")


def rfftn(input, s=None, dim=None, norm=None, *, out=None):
    """fftn of real numbers; of the last dimension the first half."""
    x = _real("rfftn", input)
    s, dims = _many(x, s, dim)
    _some("rfftn", dims)
    return _into(out, taper._fft_r2c(_resize(x, s, dims), dims, _scaling(norm, True), True))


def irfftn(input, s=None, dim=None, norm=None, *, out=None):
    """The inverse of rfftn."""
    x = _complex(input)
    s, dims = _many(x, s, dim)
    _some("irfftn", dims)
    n = _last_size(x, dims[-1], s[-1])
    return _into(out, taper._fft_c2r(_resize(x, [*s[:-1], n // 2 + 1], dims), dims, _scaling(norm, False), n))


def hfftn(input, s=None, dim=None, norm=None, *, out=None):
    """The transform, which is real, of what is Hermitian in its last dimension."""
    x = _complex(input)
    s, dims = _many(x, s, dim)
    _some("hfftn", dims)
    n = _last_size(x, dims[-1], s[-1])
    x = _c2c(_resize(x, [*s[:-1], n // 2 + 1], dims), dims[:-1], norm, True)
    return _into(out, taper._fft_c2r(x.conj(), dims[-1:], _scaling(norm, True), n))


def ihfftn(input, s=None, dim=None, norm=None, *, out=None):
    """The inverse of hfftn."""
    x = _real("ihfftn", input)
    s, dims = _many(x, s, dim)
    _some("ihfftn", dims)
    x = taper._fft_r2c(_resize(x, s, dims), dims[-1:], _scaling(norm, False), True).conj()
    return _into(out, _c2c(x, dims[:-1], norm, False))


def _two(name, of_n):
    def f(input, s=None, dim=(-2, -1), norm=None, *, out=None):
        return of_n(input, s, dim, norm, out=out)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"{of_n.__name__} of the last two dimensions."
    return f


fft2, ifft2, rfft2, irfft2, hfft2, ihfft2 = (_two(_f.__name__[:-1] + "2", _f) for _f in (fftn, ifftn, rfftn, irfftn, hfftn, ihfftn))


def fftfreq(n, d=1.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    """The frequencies that belong to the n results of a transform."""
    dtype = dtype or _C.get_default_dtype()
    k = taper.cat([taper.arange(0, (n - 1) // 2 + 1, dtype=dtype, device=device), taper.arange(-(n // 2), 0, dtype=dtype, device=device)])
    return _into(out, k * (1.0 / (n * d))).requires_grad_(requires_grad)


def rfftfreq(n, d=1.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    """The frequencies that belong to the results of rfft."""
    k = taper.arange(0, n // 2 + 1, dtype=dtype or _C.get_default_dtype(), device=device)
    return _into(out, k * (1.0 / (n * d))).requires_grad_(requires_grad)


def _shift(input, dim, sign):
    dim = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    half = [input.size(d) // 2 if sign > 0 else (input.size(d) + 1) // 2 for d in dim]
    return taper.roll(input, half, dim)


def fftshift(input, dim=None):
    """Zero frequency moves to the middle."""
    return _shift(input, dim, 1)


def ifftshift(input, dim=None):
    """The inverse of fftshift."""
    return _shift(input, dim, -1)


_overridable_functions(globals(), [n for n in __all__ if n not in ("fftfreq", "rfftfreq")])
