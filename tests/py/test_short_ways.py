"""Short ways of eager kernels give what the long ways give: remainders, powers and error functions in double, products of
floats, 16-bit arithmetic, counts, random integers, rows of every length."""
import math
import taper


def f64(v):
    return taper.tensor(v, dtype=taper.float64)


def ulps(got, want):
    return max(abs(g - w) / math.ulp(w) for g, w in zip(got, want) if math.isfinite(w) and w)


def test_pow_float64():
    """Powers are within 2 units in the last place of libm's, for exponents that make tiny and huge results too."""
    x = [math.exp(-3 + 6 * i / 997) for i in range(998)]
    y = [-200 + 400 * ((i * 619) % 998) / 997 for i in range(998)]
    assert ulps(taper.pow(f64(x), f64(y)).tolist(), [math.pow(a, b) for a, b in zip(x, y)]) <= 2
    n = [-a for a in x]
    k = [float(int(b)) for b in y]
    assert ulps(taper.pow(f64(n), f64(k)).tolist(), [math.pow(a, b) for a, b in zip(n, k)]) <= 2
    assert all(v != v for v in taper.pow(f64([-2.0] * 20), 0.5).tolist())
    assert taper.pow(f64([0.0, math.inf, 1.0, 2.0]), f64([-1.0, 2.0, math.nan, 0.0])).tolist() == [math.inf, math.inf, 1.0, 1.0]


def test_pow_of_one_number_is_python_s():
    for k in range(1, 400):
        assert taper.pow(f64(0.999), f64(float(k))).item() == 0.999**k and (f64([0.9]) ** k).item() == 0.9**k


def test_remainders():
    """Remainders are exact, also by infinity, by numbers far smaller, and of infinities, in both float types."""
    x = [(-1) ** i * math.exp((i % 89) - 30) for i in range(700)]
    y = [(-1) ** (i // 2) * math.exp((i * 7 % 31) - 15) for i in range(700)]
    for dt in (taper.float32, taper.float64):
        a, b = taper.tensor(x, dtype=dt), taper.tensor(y, dtype=dt)
        xs, ys = a.tolist(), b.tolist()
        want = [math.fmod(p, q) for p, q in zip(xs, ys)]
        assert taper.fmod(a, b).tolist() == want, dt
        # one remainder that is not a multiple of what the sum can hold is rounded, as in PyTorch
        up = taper.tensor([m + q if m and (m < 0) != (q < 0) else m for m, q in zip(want, ys)], dtype=dt)
        assert taper.remainder(a, b).tolist() == up.tolist(), dt
        one = taper.tensor([1.0, -5.0, 0.0], dtype=dt)
        assert taper.fmod(one, math.inf).tolist() == [1.0, -5.0, 0.0]
        assert taper.remainder(one, math.inf).tolist() == [1.0, math.inf, 0.0]
        assert taper.floor_divide(one, math.inf).tolist() == [0.0, -1.0, 0.0]
        assert all(v != v for v in taper.fmod(taper.tensor([math.inf, 1.0], dtype=dt), taper.tensor([2.0, 0.0], dtype=dt)).tolist())
    q = [math.floor(p / r) for p, r in zip([7.0, -7.0, 7.5, -0.5] * 20, [2.0, 2.0, -2.0, 3.0] * 20)]
    assert taper.floor_divide(f64([7.0, -7.0, 7.5, -0.5] * 20), f64([2.0, 2.0, -2.0, 3.0] * 20)).tolist() == q


def test_error_functions_float64():
    x = [-6 + 12 * i / 1200 for i in range(1201)]
    assert ulps(taper.erf(f64(x)).tolist(), [math.erf(v) for v in x]) <= 3
    x = [0.01 + 26 * i / 1200 for i in range(1201)]
    assert ulps(taper.erfc(f64(x)).tolist(), [math.erfc(v) for v in x]) <= 8
    back = taper.erfinv(taper.erf(f64([v / 10 for v in range(-30, 31)]))).tolist()
    assert max(abs(b - v / 10) for b, v in zip(back, range(-30, 31))) < 1e-11
    assert ulps(taper.log1p(f64([v * 1e-3 for v in range(-999, 5000)])).tolist(), [math.log1p(v * 1e-3) for v in range(-999, 5000)]) <= 2
    assert ulps(taper.hypot(f64([3e200, 1e-200, 0.0, 5.0]), f64([4e200, 1e-200, 0.0, 12.0])).tolist(),
                [math.hypot(*p) for p in ((3e200, 4e200), (1e-200, 1e-200), (0, 0), (5, 12))]) <= 1


def test_nextafter():
    for dt, inf in ((taper.float32, math.inf), (taper.float64, math.inf)):
        x = taper.tensor([1.0, -1.0, 0.0, -0.0, 2.0, math.nan, inf], dtype=dt)
        up, down = taper.nextafter(x, taper.tensor(inf, dtype=dt)), taper.nextafter(x, taper.tensor(-inf, dtype=dt))
        e = taper.finfo(dt).eps
        assert up.tolist()[:2] == [1 + e, -1 + e / 2] and down.tolist()[:2] == [1 - e / 2, -1 - e]
        assert up[2] > 0 and down[2] < 0 and up[3] > 0 and up[4] == 2 + 2 * e
        assert up[5].isnan() and up[6] == inf and down[6] == taper.finfo(dt).max


def test_product_of_floats():
    """No pair of factors overflows or vanishes on the way when the product itself is an ordinary number."""
    for n in (8, 128, 1024, 4992):
        for big in (1e10, 1e25, 1e38):
            run = min(n // 2, 32) # large factors and small ones in turns
            v = ([big] * run + [1 / big] * run) * (n // (2 * run))
            if n > 8 or big < 1e30:
                assert abs(taper.tensor(v).prod().item() - 1) < 1e-3, (n, big)
        ones = taper.ones(3, n)
        ones[1, n // 2] = 0
        ones[2, n - 1] = math.nan
        p = ones.prod(1)
        assert p[0] == 1 and p[1] == 0 and p[2].isnan(), n


def test_rows_of_every_length():
    for n in list(range(1, 70)) + [100, 255, 256, 257, 300]:
        a = (taper.arange(3 * n).reshape(3, n) % 13 - 6).float()
        rows = a.tolist()
        assert a.sum(1).tolist() == [sum(r) for r in rows], n
        assert a.amax(1).tolist() == [max(r) for r in rows] and a.amin(1).tolist() == [min(r) for r in rows], n
        assert (a * 0 + 2)[:, : min(n, 100)].prod(1).tolist() == [2.0 ** min(n, 100)] * 3, n
        a[1, n - 1] = math.nan
        assert a.amax(1)[1].isnan() and a.sum(1)[1].isnan() and not a.nansum(1)[1].isnan(), n


def test_half_arithmetic():
    """Converted in registers or through blocks: the same numbers."""
    for dt in (taper.float16, taper.bfloat16):
        x = taper.tensor([(i * 37 % 101 - 50) / 7 for i in range(1003)] + [math.inf, math.nan, -0.0, 6e4]).to(dt)
        y = taper.tensor([(i * 53 % 97 - 48) / 9 + 0.01 for i in range(1003)] + [1.0, 1.0, 2.0, 6e4]).to(dt)
        for op in (taper.add, taper.sub, taper.mul, taper.div):
            whole = op(x, y)
            parts = op(x[::2], y[::2])
            wide = op(x.float(), y.float()).to(dt)
            assert str(whole.tolist()) == str(wide.tolist()), (op, dt)
            assert str(whole[::2].tolist()) == str(parts.tolist()), (op, dt)


def test_one_number_on_either_side():
    x = taper.arange(2000).reshape(40, 50).float() + 1
    col = taper.arange(40).float().view(40, 1) - 20
    for op in (taper.add, taper.sub, taper.mul, taper.div):
        assert taper.equal(op(x, col), op(x, col.expand(40, 50).contiguous()))
        assert taper.equal(op(col, x), op(col.expand(40, 50).contiguous(), x))
        assert taper.equal(op(x, taper.tensor(3.0)), op(x, taper.full_like(x, 3)))


def test_counts_and_random_integers():
    taper.manual_seed(3)
    for lo, hi in ((0, 10), (-5, 1000), (0, 2**32), (-(2**62), 2**62)):
        i = taper.randint(lo, hi, (20000,))
        assert i.min() >= lo and i.max() < hi
        assert abs((i.double().mean().item() - (lo + hi - 1) / 2) / (hi - lo)) < 0.02
    i = taper.randint(0, 300, (20001,))
    c = taper.bincount(i)
    want = [0] * 300
    for v in i.tolist():
        want[v] += 1
    assert c.tolist() == want[: len(c)]
    a = taper.randint(0, 7, (1000,), dtype=taper.uint8)
    taper.manual_seed(5)
    whole = taper.randint(0, 100, (50000,))
    threads = taper.get_num_threads()
    taper.set_num_threads(1)
    taper.manual_seed(5)
    assert taper.equal(whole, taper.randint(0, 100, (50000,)))
    taper.set_num_threads(threads)
    assert a.dtype == taper.uint8 and a.max() <= 6
