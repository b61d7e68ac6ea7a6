"""Creation and random numbers: shapes, types, ranges, repeatability, errors."""
import taper


def raises(cls, fn, text=""):
    try:
        fn()
    except cls as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"{cls.__name__} was expected")


def test_filled():
    assert taper.full([2], 3).dtype == taper.int64 and taper.full([2], 3.0).dtype == taper.float32
    assert taper.zeros(2, 2).tolist() == [[0, 0], [0, 0]] and taper.ones_like(taper.zeros(2)).tolist() == [1, 1]
    x = taper.zeros(2, 3, dtype=taper.int32)
    assert x.new_full([2], 7).tolist() == [7, 7] and x.new_zeros([1]).dtype == taper.int32
    assert taper.full_like(x, 2.7).tolist() == [[2] * 3] * 2
    assert x.transpose(0, 1).fill_(4).tolist() == [[4, 4]] * 3 and x.zero_().tolist() == [[0] * 3] * 2
    raises(RuntimeError, lambda: taper.full([1], 300, dtype=taper.uint8), "cannot be converted to type uint8_t without overflow")


def test_empty_strides():
    assert taper.empty_strided([2, 3], [1, 2]).stride() == (1, 2)
    assert taper.empty(2, 3, 4, 5, memory_format=taper.channels_last).stride() == (60, 1, 15, 3)
    assert taper.empty_like(taper.zeros(2, 3).transpose(0, 1)).stride() == (1, 3)
    raises(RuntimeError, lambda: taper.empty_strided([2], [1, 2]), "dimensionality of sizes (1) must match dimensionality of strides (2)")


def test_ranges():
    assert taper.arange(4).tolist() == [0, 1, 2, 3] and taper.arange(4).dtype == taper.int64
    assert taper.arange(1, 2, 0.25).tolist() == [1, 1.25, 1.5, 1.75] and taper.arange(5, 0, -2).tolist() == [5, 3, 1]
    assert taper.arange(3.0).dtype == taper.float32 and taper.arange(0, 5, 2, dtype=taper.float64).tolist() == [0, 2, 4]
    assert taper.linspace(0, 1, 5).tolist() == [0, 0.25, 0.5, 0.75, 1] and taper.linspace(2, 3, 1).tolist() == [2]
    assert taper.logspace(0, 3, 4, base=2).tolist() == [1, 2, 4, 8]
    raises(RuntimeError, lambda: taper.arange(5, 1), "upper bound and lower bound inconsistent with step sign")
    raises(RuntimeError, lambda: taper.arange(0, 1, 0), "step must be nonzero")


def test_matrices():
    assert taper.eye(2).tolist() == [[1, 0], [0, 1]] and taper.eye(1, 3, dtype=taper.bool).tolist() == [[True, False, False]]
    assert taper.tril_indices(3, 3, -1).tolist() == [[1, 2, 2], [0, 0, 1]]
    assert taper.triu_indices(2, 3, 1).tolist() == [[0, 0, 1], [1, 2, 2]]


def seeded(fn):
    g = taper.Generator()
    g.manual_seed(7)
    return fn(g)


def test_random_is_repeatable_and_well_spread():
    n = 100000
    for fn in (lambda g: taper.rand(n, generator=g), lambda g: taper.randn(n, generator=g, dtype=taper.float64),
               lambda g: taper.randint(-3, 9, [n], generator=g), lambda g: taper.empty(n).exponential_(2.0, generator=g)):
        a, b = seeded(fn), seeded(fn)
        assert (a == b).all().item()
    u = taper.rand(n)
    assert 0 <= u.min().item() and u.max().item() < 1 and abs(u.mean().item() - 0.5) < 0.01
    z = taper.randn(n)
    assert abs(z.mean().item()) < 0.02 and abs(z.std().item() - 1) < 0.02 and z.abs().max().item() < 6
    k = taper.randint(5, [n])
    assert k.min().item() == 0 and k.max().item() == 4 and k.dtype == taper.int64
    e = taper.empty(n).exponential_(4.0)
    assert abs(e.mean().item() - 0.25) < 0.01 and e.min().item() >= 0
    assert abs(taper.full([n], 0.3).bernoulli().mean().item() - 0.3) < 0.01
    assert abs(taper.empty(n).bernoulli_(0.7).mean().item() - 0.7) < 0.01
    assert abs(taper.empty(n).uniform_(2, 4).mean().item() - 3) < 0.02
    assert abs(taper.empty(n).normal_(5, 0.5).std().item() - 0.5) < 0.01
    assert abs(taper.empty(n).geometric_(0.5).mean().item() - 2) < 0.05


def test_numbers_are_drawn_in_the_order_of_memory():
    g = seeded(lambda g: taper.zeros(50, 40).uniform_(generator=g))
    h = seeded(lambda g: taper.zeros(50, 40).transpose(0, 1).uniform_(generator=g))
    assert (g == h.t()).all().item()


def test_permutation_and_multinomial():
    p = taper.randperm(1000)
    assert sorted(p.tolist()) == list(range(1000)) and p.tolist() != list(range(1000))
    w = taper.arange(4).mul(1.0)
    s = taper.multinomial(w, 6000, replacement=True)
    c = [s.eq(i).sum().item() for i in range(4)]
    assert c[0] == 0 and 800 < c[1] < 1200 and 2700 < c[3] < 3300
    assert sorted(taper.multinomial(w, 3).tolist()) == [1, 2, 3]


def test_random_errors():
    x = taper.zeros(3)
    raises(RuntimeError, lambda: x.uniform_(2, 1), "uniform_ expects to return a [from, to) range, but found from=2 > to=1")
    raises(RuntimeError, lambda: x.normal_(0, -1), "normal expects std >= 0.0, but found std -1")
    raises(RuntimeError, lambda: taper.randint(3, 3, [2]), "from=3 >= to=3")
    raises(NotImplementedError, lambda: taper.rand(2, dtype=taper.int64), "not implemented for 'Long'")
    raises(RuntimeError, lambda: taper.multinomial(taper.zeros(3), 1), "sum of probabilities <= 0")
    raises(RuntimeError, lambda: x.bernoulli_(2), "expects p to be in [0, 1], but got p=2")


def test_like_a_tensor_without_data():
    """A tensor on "meta" lends its size and type: what is made like it elsewhere has memory (transformers fills buffers that way)."""
    m = taper.empty(2, 3, device="meta")
    for made in (taper.zeros_like(m, device="cpu"), taper.full_like(m, 0.0, device="cpu"), m.new_zeros(2, 3, device="cpu"), m.new_full((2, 3), 0.0, device="cpu"),
                 taper.empty_like(m, device="cpu").zero_(), m.new_empty((2, 3), device="cpu").zero_(), taper.rand_like(m, device="cpu").mul_(0)):
        assert made.device.type == "cpu" and made.tolist() == [[0.0] * 3] * 2, made
    assert taper.zeros_like(m).device.type == "meta" and taper.zeros_like(taper.ones(2), device="meta").device.type == "meta"
    assert taper.ones_like(m, device="cpu", dtype=taper.complex64).tolist() == [[1 + 0j] * 3] * 2
    b = taper.compile(lambda x: taper.zeros_like(m, device="cpu") + x)(taper.ones(2, 3))
    assert b.tolist() == [[1.0] * 3] * 2
