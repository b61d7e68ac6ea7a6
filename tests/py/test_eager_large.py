"""Kernels that take another way above a size: the same answers as the obvious ones, for any number of threads."""
import bisect
import taper

N = 70001  # more than two chunks of a mask, and an odd end


def on_threads(f):
    was, got = taper.get_num_threads(), []
    for n in (1, 2):
        taper.set_num_threads(n)
        got.append(f())
    taper.set_num_threads(was)
    assert got[0] == got[1]
    return got[0]


def data(n=N):
    taper.manual_seed(7)
    return taper.randint(-500, 500, (n,))


def test_masks_select_in_order():
    x = data()
    v = x.tolist()
    want = [a for a in v if a > 100]
    for dt in (taper.int64, taper.float32, taper.int16, taper.int8):
        y = (x % 100).to(dt)
        assert on_threads(lambda: y[x > 100].tolist()) == [a % 100 for a in v if a > 100]
    assert on_threads(lambda: taper.masked_select(x, x > 100).tolist()) == want
    assert on_threads(lambda: taper.nonzero(x > 100).flatten().tolist()) == [i for i, a in enumerate(v) if a > 100]
    m = x[:70000].view(7, 100, 100) > 300
    got = on_threads(lambda: taper.nonzero(m).tolist())
    assert got == [[i // 10000, i // 100 % 100, i % 100] for i in range(70000) if v[i] > 300]
    rows = x[:70000].view(7000, 10)
    assert rows[rows[:, 0] > 450].tolist() == [v[i:i + 10] for i in range(0, 70000, 10) if v[i] > 450]
    assert x[taper.zeros(N, dtype=taper.bool)].shape == (0,)
    assert taper.zeros(4, 0)[taper.tensor([True, False, True, True])].shape == (3, 0)


def test_masked_scatter_takes_in_order():
    x, m = data(), data() > 0
    n = int(m.sum())
    src = taper.arange(n)
    k, want = 0, []
    for a, b in zip(x.tolist(), m.tolist()):
        want.append(k if b else a)
        k += b
    assert on_threads(lambda: x.masked_scatter(m, src).tolist()) == want
    try:
        x.masked_scatter(m, src[1:])
        assert False
    except RuntimeError as e:
        assert "Number of elements of source" in str(e)


def test_sorts_are_stable_in_every_type():
    x = data(20001)
    for dt in (taper.int64, taper.int32, taper.int16, taper.float32, taper.float64, taper.float16):
        y = x.to(dt)
        v = y.tolist()
        for down in (False, True):
            s, i = taper.sort(y, descending=down, stable=True)
            want = sorted(range(len(v)), key=lambda k: -v[k] if down else v[k])
            assert i.tolist() == want, (dt, down)
            assert s.tolist() == [v[k] for k in want]
    wide = taper.tensor([2 ** 62, -2 ** 62, 0, 5, -1] * 500)  # keys and positions do not fit one word
    v = wide.tolist()
    assert taper.sort(wide, stable=True)[1].tolist() == sorted(range(len(v)), key=lambda k: v[k])
    lines = x[:20000].view(200, 100)
    assert taper.sort(lines, 1)[0].tolist() == [sorted(r) for r in lines.tolist()]
    nan = taper.tensor([float("nan"), 1.0, -0.0, 0.0, float("-inf"), float("nan")] * 20)
    i = taper.sort(nan, stable=True)[1].tolist()
    assert i[:20] == list(range(4, 120, 6)) and sorted(i[-40:]) == sorted(list(range(0, 120, 6)) + list(range(5, 120, 6)))
    assert taper.unique(x).tolist() == sorted(set(x.tolist()))
    assert taper.kthvalue(x, 77)[0].item() == sorted(x.tolist())[76]


def test_searches_find_both_sides():
    x = data(5000)
    edges = sorted(data(301).tolist())
    for dt in (taper.int64, taper.float32, taper.float64):
        for n in (0, 1, 2, 300, 301):
            b, v = taper.tensor(edges[:n], dtype=dt), x.to(dt)
            assert on_threads(lambda: taper.bucketize(v, b).tolist()) == [bisect.bisect_left(edges, a, 0, n) for a in x.tolist()]
            assert taper.searchsorted(b, v, right=True, out_int32=True).tolist() == [
                bisect.bisect_right(edges, a, 0, n) for a in x.tolist()]
    order = taper.tensor([2, 0, 1])
    assert taper.searchsorted(taper.tensor([5.0, 9.0, 1.0]), taper.tensor([4.0, 6.0]), sorter=order).tolist() == [1, 2]
    lines = taper.tensor([[1, 3], [10, 30]])
    assert taper.searchsorted(lines, taper.tensor([[2, 4], [2, 40]])).tolist() == [[1, 2], [0, 2]]
    assert taper.bucketize(taper.tensor(float("nan")), taper.tensor([1.0, 2.0])).item() == 2


def test_repeated_elements_and_ramps():
    x = data(3000)
    for k in (2, 3, 4, 7):
        for dt in (taper.int64, taper.int32, taper.int16, taper.int8):
            y = (x % 100).to(dt)
            assert on_threads(lambda: y.repeat_interleave(k).tolist()) == [a % 100 for a in x.tolist() for _ in range(k)]
    t = x.view(30, 100).t()
    assert t.repeat_interleave(2, 1).tolist() == [[a for a in r for _ in range(2)] for r in t.tolist()]
    assert on_threads(lambda: taper.arange(5, 100000, 3).tolist()) == list(range(5, 100000, 3))
    assert taper.arange(0, 3000, dtype=taper.int16).tolist() == list(range(3000))
    f = on_threads(lambda: taper.linspace(-1, 1, 40001, dtype=taper.float64).tolist())
    assert f[0] == -1 and f[-1] == 1 and f[20000] == 0 and all(abs(f[i] + f[-1 - i]) < 1e-15 for i in range(0, 20000, 97))
    assert on_threads(lambda: taper.zeros(300000).sum().item()) == 0


def test_out_is_written_by_the_kernel_when_it_may():
    a = taper.arange(12.0).view(3, 4)
    o = taper.empty(3, 4)
    p, v = o.data_ptr(), o._version
    assert taper.mul(a, 2, out=o) is o
    assert o.data_ptr() == p and o._version == v + 1 and o.tolist() == (a * 2).tolist()
    taper.add(o, o, out=o)  # reads what it writes, element by element
    assert o.tolist() == (a * 4).tolist()
    s = taper.arange(9.0).view(3, 3)
    want = (s @ s).tolist()
    taper.mm(s, s, out=s)  # reads all of it: not in place
    assert s.tolist() == want
    b = taper.zeros(3, 4)
    taper.sum(a, 1, out=b[:, 1])  # strided, inside a larger one
    assert b.tolist() == [[0, 6, 0, 0], [0, 22, 0, 0], [0, 38, 0, 0]]
    c = taper.zeros(2, 3)
    taper.cumsum(taper.ones(3), 0, out=c[1])
    assert c.tolist() == [[0, 0, 0], [1, 2, 3]]
    w = taper.ones(3, requires_grad=True)
    try:
        taper.mul(w, 2, out=taper.empty(3))
    except RuntimeError as e:
        assert "out" in str(e)
    t = taper.empty(4, 3).t()
    assert taper.exp(a, out=t).tolist() == a.exp().tolist() and t.stride() == (1, 3)
    e = taper.empty(0)
    taper.where(a > 5, a, 0.0, out=e)  # takes the size of the result
    assert e.shape == (3, 4)


def test_scatters_share_other_dimensions():
    x = data(60000)
    for shape, dim in (((300, 200), 0), ((300, 200), 1), ((20, 30, 100), 1), ((60000,), 0)):
        t, src = taper.zeros(shape, dtype=taper.int64), x.view(shape)
        index = (src % shape[dim]).abs()
        step = 1
        for n in shape[dim + 1:]:
            step *= n
        want = [0] * 60000
        for i, (v, k) in enumerate(zip(x.tolist(), index.flatten().tolist())):
            want[i + (k - i // step % shape[dim]) * step] += v
        assert on_threads(lambda: t.scatter_add(dim, index, src).flatten().tolist()) == want
    try:
        taper.zeros(300, 200).scatter(1, taper.full((300, 200), 200), 1.0)
        assert False
    except RuntimeError as e:
        assert "out of bounds for dimension 1 with size 200" in str(e)
    r = (x[:500] % 40).abs()
    rows = x[500:10500].view(500, 20)
    want = [[0] * 20 for _ in range(40)]
    for k, row in zip(r.tolist(), rows.tolist()):
        want[k] = [a + b for a, b in zip(want[k], row)]
    assert on_threads(lambda: taper.zeros(40, 20, dtype=taper.int64).index_add(0, r, rows).tolist()) == want
    hot = taper.nn.functional.one_hot(r.view(50, 10), 41)
    assert hot.shape == (50, 10, 41) and hot.sum().item() == 500 and hot.argmax(-1).flatten().tolist() == r.tolist()


def test_rows_by_index_do_not_depend_on_threads():
    taper.manual_seed(3)
    was = taper.get_num_threads()
    for places, shape in ((4000, (9000, 8)), (50, (2000, 33)), (64, (700, 3, 20)), (5, (9000, 8)), (300, (300, 600))):
        at = taper.randint(0, places, shape[:1])
        rows, to = taper.randn(shape), taper.randn(places, *shape[1:])
        want, exact = None, to.double().clone()
        for i, k in enumerate(at.tolist()):
            exact[k] += rows[i]
        for n in (1, 2, 3, 8, 16):
            taper.set_num_threads(n)
            got = [to.index_add(0, at, rows), to.index_copy(0, at, rows), to.index_reduce(0, at, rows, "amax"), to.clone()]
            got[3][at] = rows
            want = want or got
            assert all(taper.equal(a, b) for a, b in zip(got, want)), (places, shape, n)
        taper.set_num_threads(was)
        assert taper.allclose(want[0].double(), exact, atol=1e-3), (places, shape)


def test_products_and_norms_beyond_the_short_way():
    taper.manual_seed(1)
    near = 1 + taper.randn(600, 40) * 1e-2
    for scale in (1.0, 1e30, 1e-30):  # a large and a small factor cancel only if neither was lost on the way
        y = near.clone()
        y[3::8] *= scale
        y[4::8] /= scale
        for dim in (0, 1):
            a, b = y.prod(dim), y.double().prod(dim)
            ok = ((a.double() - b).abs() <= 1e-5 * b.abs()) | ((b.abs() > 3e38) & (a.abs() > 3e38)) | (b.abs() < 1e-37)
            assert ok.all(), (scale, dim)
        wide, b = y * taper.ones(40), y.double().norm(2, 0)
        assert ((wide.norm(2, 0).double() - b).abs() <= 1e-5 * b).all(), scale
    assert taper.tensor([2.0] * 300 + [0.0]).prod().item() == 0
    assert taper.full((5000,), 1e-30).norm().item() > 7e-29


def test_running_extremes_keep_the_last_place():
    x = data(3000) % 90
    x[2500] = 200
    for dt in (taper.int64, taper.float32):
        values, places = taper.cummax(x.to(dt), 0)
        best, at, want_v, want_i = None, 0, [], []
        for i, v in enumerate(x.tolist()):
            if best is None or v >= best:
                best, at = v, i
            want_v.append(best)
            want_i.append(at)
        assert values.tolist() == want_v and places.tolist() == want_i
    y = x.to(taper.float32)
    y[700] = float("nan")
    v, i = taper.cummin(y, 0)
    assert v[699].item() == v[699].item() and v[700].item() != v[700].item() and i[2999].item() == 700


def test_whole_numbers_divide_down():
    x = data(5000) * 10 ** 9
    d = (data(5000) % 13) * 2 + 27
    d[::3] *= -1
    want = [a // b for a, b in zip(x.tolist(), d.tolist())]
    assert taper.floor_divide(x, d).tolist() == want
    x[17] = 2 ** 60 + 1  # beyond what double holds: the other way
    x[18] = -2 ** 60
    want[17:19] = [(2 ** 60 + 1) // d[17].item(), -2 ** 60 // d[18].item()]
    assert taper.floor_divide(x, d).tolist() == want
    try:
        taper.floor_divide(x, d * 0)
        assert False
    except RuntimeError as e:
        assert "ZeroDivisionError" in str(e)


def test_scatter_reduce_starts_from_the_ends_of_every_type():
    for dt in (taper.int64, taper.int32, taper.int16, taper.int8, taper.uint8, taper.float32):
        x, i = taper.tensor([7, 5, 3], dtype=dt), taper.tensor([0, 0, 2])
        src = taper.tensor([4, 9, 6], dtype=dt)
        assert taper.scatter_reduce(x, 0, i, src, "amin", include_self=False).tolist() == [4, 5, 6]
        assert taper.scatter_reduce(x, 0, i, src, "amax", include_self=False).tolist() == [9, 5, 6]
