"""Errors of narrow matrix products against float64, for docs/numerics.md.

    [TAPER_UNITS=none|avx512|amx] python3 bench/narrow.py

Sums: factors that bfloat16 holds exactly, so that the error is that of adding up; largest |error| over the sum of |a| |b|, in
units of 2^-24. Results: relative root mean square error of the rounded result. Then int8 against float32 weights.
"""
import taper

taper.manual_seed(0)
M, N = 96, 96
print(f"{'k':>6s} {'sums, float32':>14s} {'sums, bf16':>11s} {'bf16 result':>12s} {'f16 result':>11s} {'medium':>9s} {'int8':>9s}")
for k in (64, 512, 4096):
    a, b = (taper.randn(*s).to(taper.bfloat16).float() for s in ((M, k), (k, N)))
    exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()

    def worst(y):
        return ((y.double() - exact).abs() / size).max().item() * 2 ** 24

    def rms(y, want):
        return ((y.double() - want).pow(2).mean() / want.pow(2).mean()).sqrt().item()

    plain = worst(a @ b)
    taper.set_float32_matmul_precision("medium")
    rough = worst(a @ b)
    c, d = taper.randn(M, k), taper.randn(k, N)
    medium = rms(c @ d, c.double() @ d.double())
    taper.set_float32_matmul_precision("highest")
    half = rms(a.to(taper.bfloat16) @ b.to(taper.bfloat16), exact)
    f, g = c.to(taper.float16), d.to(taper.float16)
    f16 = rms(f @ g, f.double() @ g.double())
    layer = taper.nn.Linear(k, N, bias=False)
    small = taper.quantize_dynamic(layer)
    with taper.no_grad():
        int8 = rms(small(c), c.double() @ layer.weight.double().t())
    print(f"{k:6d} {plain:14.2f} {rough:11.2f} {half:12.2e} {f16:11.2e} {medium:9.2e} {int8:9.2e}")
