"""One seed, one sequence: eager draws are PyTorch's, over sizes, types, layouts and distributions; so is the generator's state."""
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed")
import taper
import numpy

SIZES = [(0,), (), (1,), (7,), (15,), (16,), (17,), (40,), (3, 5), (4, 4), (2, 3, 4, 5), (700,), (33, 65)]
FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTS = ["uint8", "int8", "int16", "int32", "int64"]
CPU_MKL = "GenuineIntel" in open("/proc/cpuinfo").read()  # there PyTorch draws bernoulli_(p) and exponential_() from another generator


def same(what, f, exact=True):
    """f(lib) gives the same tensor, and leaves the generator at the same place."""
    out = []
    for lib in (torch, taper):
        lib.manual_seed(1234)
        r = f(lib)
        rest = lib.rand(3).tolist()
        out.append((list(r.shape), r.double().tolist() if r.dtype != lib.bool else r.tolist(), str(r.dtype).split(".")[1], rest))
    a, b = out
    assert a[0] == b[0] and a[2] == b[2], f"{what}: {a[0]} {a[2]} in PyTorch, {b[0]} {b[2]} here"
    if exact:
        assert a[1] == b[1], f"{what}: {str(a[1])[:200]}\n  here {str(b[1])[:200]}"
    else:
        assert numpy.allclose(a[1], b[1], rtol=1e-6, atol=0), f"{what}: {str(a[1])[:200]}\n  here {str(b[1])[:200]}"
    assert a[3] == b[3], f"{what}: the generator stands elsewhere afterwards"


def test_uniform_and_normal():
    for size in SIZES:
        for dt in FLOATS:
            D = lambda lib: getattr(lib, dt)  # noqa: E731
            what = f"{size} {dt}"
            same("rand " + what, lambda lib: lib.rand(size, dtype=D(lib)))
            same("randn " + what, lambda lib: lib.randn(size, dtype=D(lib)))
            same("uniform_ " + what, lambda lib: lib.empty(size, dtype=D(lib)).uniform_(-0.3, 1.7))
            same("normal_ " + what, lambda lib: lib.empty(size, dtype=D(lib)).normal_(0.25, 3))
            same("normal " + what, lambda lib: lib.normal(0.25, 3.0, size, dtype=D(lib)))
            same("rand_like " + what, lambda lib: lib.rand_like(lib.empty(size, dtype=D(lib))))
            same("randn_like " + what, lambda lib: lib.randn_like(lib.empty(size, dtype=D(lib))))


def test_other_distributions():
    for size in SIZES:
        for dt in FLOATS:
            E = lambda lib: lib.empty(size, dtype=getattr(lib, dt))  # noqa: E731
            what = f"{size} {dt}"
            if not CPU_MKL:
                same("exponential_ " + what, lambda lib: E(lib).exponential_(1.5))
                same("bernoulli_ " + what, lambda lib: E(lib).bernoulli_(0.3))
            same("cauchy_ " + what, lambda lib: E(lib).cauchy_(1, 2))
            same("log_normal_ " + what, lambda lib: E(lib).log_normal_(0.5, 0.25))
            same("geometric_ " + what, lambda lib: E(lib).geometric_(0.3))
            same("bernoulli " + what, lambda lib: lib.bernoulli(lib.full(size, 0.3, dtype=getattr(lib, dt))))
    for dt in INTS + ["bool"]:
        for p in ("float32", "float64", "float16"):
            same(f"bernoulli_ {dt} by {p}", lambda lib: lib.empty(40, dtype=getattr(lib, dt)).bernoulli_(lib.full((40,), 0.3, dtype=getattr(lib, p))))
    for dt in FLOATS:
        for p in FLOATS:
            same(f"bernoulli_ {dt} by {p}", lambda lib: lib.empty(40, dtype=getattr(lib, dt)).bernoulli_(lib.full((40,), 0.3, dtype=getattr(lib, p))))


def test_integers():
    for size in SIZES:
        for lo, hi in ((0, 2), (-3, 1000), (0, (1 << 28) - 1), (0, 1 << 28), (5, (1 << 32) + 7), (-(1 << 62), 1 << 62), (-(1 << 63), (1 << 63) - 1)):
            same(f"randint {lo} {hi} {size}", lambda lib: lib.randint(lo, hi, size))
        for dt in INTS + FLOATS + ["bool"]:
            same(f"random_ {dt} {size}", lambda lib: lib.empty(size, dtype=getattr(lib, dt)).random_())
            same(f"random_(2) {dt} {size}", lambda lib: lib.empty(size, dtype=getattr(lib, dt)).random_(2))
        same(f"random_(5, None) {size}", lambda lib: lib.empty(size, dtype=lib.int64).random_(5, None))
        same(f"randint_like {size}", lambda lib: lib.randint_like(lib.empty(size), 3, 90))
    for n in (0, 1, 2, 10, 1000):
        for dt in ("int64", "int32", "float32"):
            same(f"randperm {n} {dt}", lambda lib: lib.randperm(n, dtype=getattr(lib, dt)))


LAYOUTS = [("channels_last", lambda lib, dt: lib.empty(2, 3, 4, 5, dtype=dt).contiguous(memory_format=lib.channels_last)),
           ("transposed", lambda lib, dt: lib.empty(6, 7, dtype=dt).t()), ("every other", lambda lib, dt: lib.empty(10, 7, dtype=dt)[::2]),
           ("permuted", lambda lib, dt: lib.empty(3, 4, 5, dtype=dt).permute(1, 2, 0)), ("column", lambda lib, dt: lib.empty(20, 3, dtype=dt)[:, 1]),
           ("permuted slice", lambda lib, dt: lib.empty(6, 4, 5, dtype=dt)[::2].permute(2, 0, 1))]


def test_layouts():
    for name, make in LAYOUTS:
        for dt in ("float32", "float64", "float16"):
            D = lambda lib: make(lib, getattr(lib, dt))  # noqa: E731
            same(f"uniform_ {name} {dt}", lambda lib: D(lib).uniform_())
            same(f"normal_ {name} {dt}", lambda lib: D(lib).normal_(1, 2))
            same(f"random_ {name} {dt}", lambda lib: D(lib).random_(0, 50))
            same(f"cauchy_ {name} {dt}", lambda lib: D(lib).cauchy_())
            same(f"bernoulli_ p {name} {dt}", lambda lib: D(lib).bernoulli_((lib.arange(D(lib).numel()) / D(lib).numel()).view(D(lib).shape)))
            same(f"rand_like {name} {dt}", lambda lib: lib.rand_like(D(lib)))
            if not CPU_MKL:
                same(f"bernoulli_ {name} {dt}", lambda lib: D(lib).bernoulli_(0.3))
                same(f"dropout {name} {dt}", lambda lib: lib.nn.functional.dropout(D(lib).fill_(1.5), 0.1))


def test_normal_of_tensors():
    for size in ((5,), (40,)):
        m = lambda lib: lib.arange(size[0]) / size[0]  # noqa: E731
        same("tensor, tensor", lambda lib: lib.normal(m(lib), m(lib) + 1))
        same("tensor, float", lambda lib: lib.normal(m(lib), 0.3))
        same("float, tensor", lambda lib: lib.normal(0.3, m(lib) + 1))
        same("broadcast", lambda lib: lib.normal(m(lib).view(-1, 1), m(lib) + 1))


def test_multinomial():
    if CPU_MKL:
        return
    for dt in FLOATS[:2]:
        w = lambda lib: lib.tensor([[0.1, 0.5, 2.0, 0.2], [1.0, 0, 3, 4]], dtype=getattr(lib, dt))  # noqa: E731
        same("one", lambda lib: lib.multinomial(w(lib), 1))
        same("several", lambda lib: lib.multinomial(w(lib), 3))
        same("with replacement", lambda lib: lib.multinomial(w(lib), 50, replacement=True))
        same("one line", lambda lib: lib.multinomial(w(lib)[0], 10, True))


def test_dropout_and_init():
    F = lambda lib: lib.nn.functional  # noqa: E731
    x = lambda lib, dt="float32": (lib.arange(2 * 6 * 5 * 5) / 150 - 1).to(getattr(lib, dt)).view(2, 6, 5, 5)  # noqa: E731
    if not CPU_MKL:
        for dt in FLOATS:
            for p in (0.1, 0.5, 0.9):
                same(f"dropout {p} {dt}", lambda lib: F(lib).dropout(x(lib, dt), p))
        for name in ("dropout1d", "dropout2d", "alpha_dropout", "feature_alpha_dropout"):
            same(name, lambda lib: getattr(F(lib), name)(x(lib)[0] if name == "dropout1d" else x(lib), 0.3, training=True), exact="alpha" not in name)
    for shape in ((3, 4), (20, 30), (8, 3, 3, 3)):
        for name, args in (("uniform_", (-1, 2)), ("normal_", (1, 2)), ("xavier_uniform_", ()), ("xavier_normal_", ()), ("kaiming_uniform_", (5 ** 0.5,)),
                           ("kaiming_normal_", ()), ("sparse_", (0.3,))):
            if name == "sparse_" and len(shape) > 2:
                continue
            same(f"init.{name} {shape}", lambda lib: getattr(lib.nn.init, name)(lib.empty(shape), *args))
        for how in (dict(std=0.02), dict(std=1.0, a=-0.5, b=1), dict(std=1.0, a=2, b=3)):
            same(f"init.trunc_normal_ {shape} {how}", lambda lib: lib.nn.init.trunc_normal_(lib.empty(shape), **how), exact=False)
    for name, args in (("Linear", (5, 7)), ("Conv2d", (3, 8, 3)), ("Embedding", (11, 6)), ("LSTM", (4, 6, 2)), ("MultiheadAttention", (8, 2)),
                       ("TransformerEncoderLayer", (8, 2, 16)), ("Bilinear", (3, 4, 5)), ("ConvTranspose1d", (3, 4, 3)), ("EmbeddingBag", (11, 6))):
        same(f"nn.{name}", lambda lib: lib.cat([p.detach().flatten() for p in getattr(lib.nn, name)(*args).parameters()]))


def test_generators_and_state():
    g, h = torch.Generator(), taper.Generator()
    assert g.initial_seed() == h.initial_seed()
    assert torch.rand(5, generator=g).tolist() == taper.rand(5, generator=h).tolist()
    g.manual_seed(-7), h.manual_seed(-7)
    assert torch.randn(5, generator=g).tolist() == taper.randn(5, generator=h).tolist()
    assert g.get_state().tolist() == h.get_state().tolist()  # and half of a pair of normal numbers is in it
    state = g.get_state()
    want = torch.randn(7, generator=g).tolist()
    h.set_state(taper.tensor(state.tolist(), dtype=taper.uint8))
    assert taper.randn(7, generator=h).tolist() == want
    torch.manual_seed(3), taper.manual_seed(3)
    torch.rand(1000), taper.rand(1000)
    assert torch.get_rng_state().tolist() == taper.get_rng_state().tolist()


def test_data_loader():
    def order(lib):
        data = lib.utils.data.TensorDataset(lib.arange(20))
        loader = lib.utils.data.DataLoader(data, batch_size=3, shuffle=True)
        return lib.cat([b for _ in range(2) for b, in loader] + [b for r in lib.utils.data.random_split(data, [15, 5]) for b in [lib.tensor(list(r.indices))]])
    same("DataLoader", order)
