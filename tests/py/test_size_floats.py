"""Floats made of sizes (n / 2, 1.0 / n, n ** -0.5, math.sqrt(n)) in graphs that serve all sizes; where the number itself is needed the size is guarded."""
import math

import taper
from taper._dynamo.utils import counters

F = taper.nn.functional
SIZES = (6, 7, 9, 12, 15)


def run(f, sizes=SIZES, backend="inductor", dtype=taper.float32):
    """Eager and compiled over several sizes; how many graphs that took."""
    taper._dynamo.reset()
    c = taper.compile(f, backend=backend)
    taper.manual_seed(0)
    for n in sizes:
        x = taper.randn(n, 2).to(dtype)
        want, got = f(x), c(x)
        if isinstance(want, taper.Tensor):
            assert got.dtype == want.dtype and got.shape == want.shape and taper.allclose(got, want, rtol=1e-5), (n, got, want)
        else:
            assert type(got[1]) is type(want[1]) and got[1] == want[1] and taper.allclose(got[0], want[0]), (n, got, want)
    assert not counters["graph_break"], counters
    return counters["stats"]["unique_graphs"]


def test_one_graph_for_all_sizes():
    for f in (lambda x: x * (x.shape[0] / 2),
              lambda x: (x.shape[0] / 2 + 1.5) - x,
              lambda x: x / (x.shape[0] * 0.5),
              lambda x: x * (1 / x.shape[0]),
              lambda x: x * (1.0 / x.shape[0]) ** 2,
              lambda x: x * x.shape[0] ** 0.5 + x.shape[0] ** -1,
              lambda x: x * math.sqrt(x.shape[0]) + math.sqrt(x.shape[0] / 3),
              lambda x: x + float(x.shape[0]) - -(x.shape[0] / 4),
              lambda x: x * 2.0 ** (-8.0 / x.shape[0]),
              lambda x: x > x.shape[0] / 10,
              lambda x: taper.arange(x.shape[0]) * (x.shape[0] / 3),
              lambda x: x.sum() * (x.shape[0] / 3),
              lambda x: x.clone().mul_(1 / x.shape[0]).add_(x.shape[0] * 0.1)):
        for backend in ("aot_eager", "inductor"):
            assert run(f, backend=backend) == 2, (backend, f.__code__.co_firstlineno)


def test_whole_numbers_stay_sizes():
    for f in (lambda x: x[:int(x.shape[0] / 2)],
              lambda x: x[:math.ceil(x.shape[0] / 2)] * 2,
              lambda x: x[:math.floor(x.shape[0] / 3)] * 2,
              lambda x: taper.zeros(int(x.shape[0] * 2.0), math.ceil(3.0 * x.shape[0])),
              lambda x: F.interpolate(x[None, None], scale_factor=2),
              lambda x: x[:divmod(x.shape[0], 2)[0]] + divmod(x.shape[0], 4)[1],
              lambda x: taper.zeros(x.shape[0] << 1, x.shape[0] >> 1, (x.shape[0] & 3) + 1, math.ceil(x.shape[0]))):
        assert run(f) == 2, f.__code__.co_firstlineno


def test_gradients():
    def f(x):
        return (x.sin() * (x.shape[0] ** -0.5)).sum() / math.sqrt(x.shape[0])
    taper._dynamo.reset()
    c = taper.compile(f)
    for n in SIZES:
        a, b = (taper.arange(n * 2.0).reshape(n, 2).requires_grad_() for _ in range(2))
        f(a).backward()
        c(b).backward()
        assert taper.allclose(a.grad, b.grad)
    assert counters["stats"]["unique_graphs"] == 2


def test_where_the_number_is_needed_the_size_is_guarded():
    class Keeps:
        scale = 0.0
    k = Keeps()

    def stores(x):
        k.scale = x.shape[0] / 2
        return x * 2, k.scale
    for f in (lambda x: x * 2 if x.shape[0] / 3 > 2.5 else x * 3,
              lambda x: x[:int(x.shape[0] * 0.7)],
              lambda x: x[:round(x.shape[0] / 2)],
              lambda x: taper.clamp(x, min=x.shape[0] / 100),
              lambda x: x * math.log(x.shape[0] / 2),
              lambda x: taper.full((2,), x.shape[0] / 2) * x[0],
              lambda x: x * max(x.shape[0] / 2, 4.5) * min(1.0, 3 / x.shape[0]),
              lambda x: x * ((x.shape[0] / 2) % 2) + (x.shape[0] / 2) // 2,
              lambda x: (x * 2, x.shape[0] / 2),
              lambda x: (x * 2, f"{x.shape[0] / 4:.2f} {x.shape[0] / 8}"),
              lambda x: (x * 2, "%.3f" % (x.shape[0] / 7)),
              lambda x: (x * 2, {x.shape[0] / 2: 1}),
              lambda x: (x * 2, (x.shape[0] / 2).is_integer()),
              lambda x: (x * 2, [isinstance(x.shape[0] / 2, float), type(x.shape[0] / 2) is float, bool(x.shape[0] / 2), abs(-(x.shape[0] / 2))]),
              lambda x: x * sum([x.shape[0] / 2, 1.0]) + x * taper.tensor([x.shape[0] / 2, 1.0]),
              stores):
        run(f)
    assert k.scale == SIZES[-1] / 2
    assert run(lambda x: x * (x.shape[0] / 3), dtype=taper.bfloat16) > 2  # rounding a factor first would show there


def test_division_by_a_number_that_may_be_zero():
    @taper.compile
    def f(x):
        return x * (1 / (x.shape[0] - 9.0))
    for n in (6, 7, 8):
        assert taper.allclose(f(taper.ones(n)), taper.full((n,), 1 / (n - 9.0)))
    try:
        f(taper.ones(9))
        assert False
    except ZeroDivisionError:
        pass


def test_long_expressions():
    def f(x):
        s = x.shape[0] / 2
        for _ in range(40):
            s = (s + s) / 2.5
        return x * s
    run(f)
