"""Fourier transforms against the sum that defines them, round trips, gradients, compiled programs; stft and istft."""
import cmath
import math

import taper

LENGTHS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 30, 31, 37, 49, 64, 74, 97, 100, 127]


def raises(kind, f, words):
    try:
        f()
    except kind as e:
        assert words in str(e), e
    else:
        raise AssertionError("no error")


def dft(x, sign=-1):
    n = len(x)
    return [sum(x[j] * cmath.exp(sign * 2j * math.pi * (j * k % n) / n) for j in range(n)) for k in range(n)]


def close(got, want, tol):
    got = got.tolist() if isinstance(got, taper.Tensor) else got
    return len(got) == len(want) and all(abs(complex(a) - complex(b)) <= tol * (1 + abs(complex(b))) for a, b in zip(got, want))


def test_every_length_agrees_with_the_sum():
    taper.manual_seed(0)
    for n in LENGTHS:
        z = taper.randn(n, dtype=taper.complex128)
        x = taper.randn(n, dtype=taper.float64)
        assert close(taper.fft.fft(z), dft(z.tolist()), 1e-11), n
        assert close(taper.fft.ifft(z) * n, dft(z.tolist(), 1), 1e-11), n
        assert close(taper.fft.fft(x), dft(x.tolist()), 1e-11), n
        assert close(taper.fft.rfft(x), dft(x.tolist())[:n // 2 + 1], 1e-11), n
        assert close(taper.fft.fft(z.to(taper.complex64)), dft(z.tolist()), 2e-5), n
        assert close(taper.fft.irfft(taper.fft.rfft(x), n=n), x.tolist(), 1e-12), n
        assert close(taper.fft.hfft(taper.fft.ihfft(x), n=n), x.tolist(), 1e-12), n


def test_dimensions_sizes_and_scaling():
    taper.manual_seed(1)
    z = taper.randn(3, 8, 5, dtype=taper.complex128)
    for dim in (0, 1, 2, -1):
        want = taper.stack([taper.fft.fft(v) for v in z.movedim(dim, -1).reshape(-1, z.size(dim))]).reshape(z.movedim(dim, -1).shape)
        assert taper.allclose(taper.fft.fft(z, dim=dim), want.movedim(-1, dim))
    both = taper.fft.fft(taper.fft.fft(z, dim=0), dim=2)
    assert taper.allclose(taper.fft.fftn(z, dim=(0, 2)), both)
    assert taper.allclose(taper.fft.ifftn(taper.fft.fftn(z)), z) and taper.allclose(taper.fft.ifft2(taper.fft.fft2(z)), z)
    x = taper.randn(4, 6, 7, dtype=taper.float64)
    assert taper.allclose(taper.fft.irfftn(taper.fft.rfftn(x), s=x.shape), x)
    assert taper.allclose(taper.fft.irfft2(taper.fft.rfft2(x), s=x.shape[-2:]), x)
    assert taper.allclose(taper.fft.hfftn(taper.fft.ihfftn(x), s=x.shape), x)
    assert taper.allclose(taper.fft.rfftn(x), taper.fft.fftn(x)[..., :4])
    for norm, f, b in (("ortho", 1 / math.sqrt(8), 1 / math.sqrt(8)), ("forward", 1 / 8, 1), ("backward", 1, 1 / 8)):
        assert taper.allclose(taper.fft.fft(z, dim=1, norm=norm), taper.fft.fft(z, dim=1) * f)
        assert taper.allclose(taper.fft.ifft(z, dim=1, norm=norm), taper.fft.ifft(z, dim=1, norm="forward") * b)
    assert taper.fft.fft(z, n=4, dim=1).shape == (3, 4, 5) and taper.fft.rfft(x, n=10).shape == (4, 6, 6)
    assert taper.allclose(taper.fft.fft(z, n=4, dim=1), taper.fft.fft(z[:, :4], dim=1))
    assert taper.fft.fft(taper.arange(4)).dtype is taper.complex64


def test_shifts_and_frequencies():
    assert taper.fft.fftfreq(5, 0.5).tolist() == [0, 0.4000000059604645, 0.800000011920929, -0.800000011920929, -0.4000000059604645]
    assert taper.fft.rfftfreq(4).tolist() == [0, 0.25, 0.5]
    z = taper.arange(6)
    assert taper.fft.ifftshift(taper.fft.fftshift(z)).tolist() == z.tolist() and taper.fft.fftshift(z).tolist() == [3, 4, 5, 0, 1, 2]


def test_bad_calls():
    z = taper.ones(3, dtype=taper.complex64)
    raises(RuntimeError, lambda: taper.fft.rfft(z), "rfft expects a real input tensor, but got ComplexFloat")
    raises(RuntimeError, lambda: taper.fft.fft(z, n=0), "Invalid number of data points (0) specified")
    raises(RuntimeError, lambda: taper.fft.fft(z, norm="x"), "Invalid normalization mode")
    raises(IndexError, lambda: taper.fft.fft(z, dim=2), "Dimension out of range")
    raises(RuntimeError, lambda: taper.fft.fftn(z, dim=(0, 0)), "FFT dims must be unique")


def test_gradients_are_those_of_finite_differences():
    taper.manual_seed(2)
    check = taper.autograd.gradcheck
    x = taper.randn(2, 6, dtype=taper.float64, requires_grad=True)
    z = taper.randn(2, 5, dtype=taper.complex128, requires_grad=True)

    def parts(v):
        return taper.view_as_real(v) if v.is_complex() else v

    def of_real(t):  # a complex tensor of twice as many real ones
        return taper.view_as_complex(t.reshape(2, -1, 2))

    r = taper.view_as_real(z.detach()).reshape(2, 10).requires_grad_()
    for f in (lambda v: taper.fft.fft(v), lambda v: taper.fft.ifft(v, norm="ortho"), lambda v: taper.fft.irfft(v), lambda v: taper.fft.irfft(v, n=7),
              lambda v: taper.fft.hfft(v, n=9), lambda v: taper.fft.fftn(v), lambda v: taper.fft.irfftn(v, s=(2, 6)), lambda v: taper.fft.irfft(v, n=4)):
        assert check(lambda t: parts(f(of_real(t))), [r])
    for f in (taper.fft.fft, taper.fft.rfft, taper.fft.ihfft, lambda v: taper.fft.rfftn(v, norm="forward"), lambda v: taper.fft.rfft(v, n=9)):
        assert check(lambda t: parts(f(t)), [x])


def test_compiled_programs_with_transforms():
    taper.manual_seed(3)

    def low_pass(x):
        y = taper.fft.rfft(x)
        keep = taper.arange(y.size(-1)) < 4
        return taper.fft.irfft(taper.where(keep, y, 0), n=x.size(-1)).sin()

    x, y = (taper.arange(24.).reshape(2, 12).sin().requires_grad_() for _ in range(2))
    a, b = low_pass(x), taper.compile(low_pass, fullgraph=True)(y)
    a.square().sum().backward()
    b.square().sum().backward()
    assert taper.allclose(a, b, atol=1e-6) and taper.allclose(x.grad, y.grad, atol=1e-5)


def test_stft_and_back():
    taper.manual_seed(4)
    x = taper.randn(2, 200, dtype=taper.float64)
    w = taper.hann_window(32, dtype=taper.float64)
    for kw in (dict(), dict(normalized=True), dict(onesided=False), dict(hop_length=10), dict(win_length=24, window=w[:24])):
        kw = {"window": w, **kw}
        s = taper.stft(x, 32, return_complex=True, **kw)
        assert s.shape[1] == (32 if kw.get("onesided") is False else 17)
        back = taper.istft(s, 32, length=200, **kw)
        assert taper.allclose(back, x, atol=1e-9), kw
    s = taper.stft(x[0], 32, 8, window=w, center=False, return_complex=True)
    for t in (0, 5):
        assert close(s[:, t], dft((x[0, 8 * t:8 * t + 32] * w).tolist())[:17], 1e-9)
    assert taper.stft(x[0], 32, window=w, return_complex=False).shape[-1] == 2
    raises(RuntimeError, lambda: taper.stft(x, 32), "return_complex")
    raises(RuntimeError, lambda: taper.stft(x, 32, win_length=40, return_complex=True), "expected 0 < win_length <= n_fft")


def test_a_tensor_without_dimensions_has_no_transform():
    x = taper.tensor(1.0)
    for f in (lambda: taper.fft.fft(x), lambda: taper.fft.rfft(x), lambda: taper.fft.irfft(x), lambda: taper.ops.aten._fft_r2c(x, [-1], 0, False),
              lambda: taper.ops.aten._fft_c2c(x.to(taper.complex64), [0], 0, True), lambda: taper.ops.aten._fft_c2r(x.to(taper.complex64), [0], 0, 1)):
        try:
            f()
        except IndexError as e:
            assert "tensor has no dimensions" in str(e), e
        else:
            raise AssertionError("no error")
