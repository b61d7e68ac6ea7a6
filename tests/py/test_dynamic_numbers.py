"""Numbers that a trace only knows as symbols: sizes that become factors, ints that choose what is computed. A compiled
function that serves several of them gives each its own answer."""
import math

import taper
taper._C._counted_draws(True)  # eager operators draw what kernels draw
import taper._dynamo as dynamo
from taper import nn
from taper.nn import functional as F


def near(a, b, what=None):
    if isinstance(a, (tuple, list)):
        for x, y in zip(a, b):
            near(x, y, what)
    else:
        assert a.shape == b.shape and taper.allclose(a, b, 1e-4, 1e-5, equal_nan=True), (what, a, b)


def each(f, cases, grad=False):
    for backend in ("aot_eager", "inductor"):
        dynamo.reset()
        g = taper.compile(f, backend=backend, dynamic=True, fullgraph=True)
        for args in cases:
            if not grad:
                near(f(*args), g(*args), (backend, args))
                continue
            got = []
            for h in (f, g):
                a = [v.detach().clone().requires_grad_() if isinstance(v, taper.Tensor) and v.is_floating_point() else v for v in args]
                h(*a).square().sum().backward()
                got.append([v.grad for v in a if isinstance(v, taper.Tensor) and v.is_floating_point()])
            near(*got, (backend, args))


def test_sizes_as_factors():
    taper.manual_seed(0)
    each(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [[taper.randn(2, 3, n, e) for _ in range(3)] for n, e in ((4, 8), (5, 16), (7, 3))])
    each(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.3), [[taper.randn(n, c), taper.randint(0, c, [n])] for n, c in ((4, 8), (5, 3), (9, 17))])
    each(lambda x, t: F.cross_entropy(x, t.softmax(1), label_smoothing=0.3), [[taper.randn(n, c), taper.randn(n, c)] for n, c in ((4, 8), (5, 3), (9, 17))])
    each(lambda x: taper.linalg.matrix_rank(x).float(), [[taper.randn(n, m)] for n, m in ((4, 8), (5, 3))])
    each(lambda t, x: F.affine_grid(t, [2, 3, x.shape[0], x.shape[1]], align_corners=False), [[taper.randn(2, 2, 3), taper.zeros(n, m)] for n, m in ((4, 8), (5, 3))])
    each(lambda t, x: F.affine_grid(t, [2, 3, x.shape[0], x.shape[1]], align_corners=True), [[taper.randn(2, 2, 3), taper.zeros(n, m)] for n, m in ((4, 8), (5, 3))])
    each(lambda x: (x.mean(0), x.var(1), x.std(), x / x.shape[0], x * x.shape[1] - x.numel()), [[taper.randn(n, m)] for n, m in ((4, 8), (5, 3), (17, 33))])


def test_running_statistics_with_any_batch():
    for backend in ("aot_eager", "inductor"):
        taper.manual_seed(0)
        a, b = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
        dynamo.reset()
        g = taper.compile(b, backend=backend, dynamic=True)
        for n in (4, 7, 2, 33):
            x = taper.randn(n, 3)
            near(a(x), g(x))
            near([a.running_mean, a.running_var], [b.running_mean, b.running_var], (backend, n))


def test_ints_that_choose():
    x = taper.randn(3, 3).abs() + 0.5
    each(lambda x, n: taper.linalg.matrix_power(x, n), [[x, n] for n in (2, 3, 5)])
    each(lambda x, n: (x.norm(n), taper.linalg.vector_norm(x, n, 1)), [[x, n] for n in (2, 3, 4)])
    each(lambda x, n: taper.var(x, 0, correction=n), [[x, n] for n in (2, 1, 0)])
    each(lambda x, n: taper.addmm(x, x, x, beta=n, alpha=n), [[x, n] for n in (2, 3, 4)])
    each(lambda x, n: F.max_pool1d(x[None], n).sum(-1), [[x, n] for n in (2, 3)])
    each(lambda x, n: F.pixel_shuffle(x, n), [[taper.randn(1, 36, 2, 2), n] for n in (2, 3, 6)])
    each(lambda x, n: (x.clamp(max=n) + n, taper.full([3], n), taper.full_like(x, n) * x, x.masked_fill(x > 1, n), taper.arange(n) + x.sum()),
         [[x, n] for n in (2, 3, 4)])


def test_gradients_by_such_ints():
    x = taper.randn(3, 3).abs() + 0.5
    for f in (lambda x, n: x.pow(n), lambda x, n: x.clamp(max=n) * n, lambda x, n: n / x, lambda x, n: F.leaky_relu(1 - x, n),
              lambda x, n: x.add(x, alpha=n), lambda x, n: x.norm(n, dim=1), lambda x, n: F.elu(-x, n), lambda x, n: taper.lerp(x, x * 2, n)):
        each(f, [[x, n] for n in (2, 3, 1, 4)], grad=True)


def test_storage_offsets_of_inputs():
    """as_strided with an offset counts from the start of the storage, wherever the input begins."""
    w = taper.arange(40.)
    for f in (lambda x: x.as_strided([2, 2], [3, 1], 1) + 0, lambda x: x.as_strided([2, 2], [3, 1]) * 2, lambda x: x.as_strided([2, 2], [3, 1], 0)):
        for backend in ("eager", "aot_eager", "inductor"):
            dynamo.reset()
            g = taper.compile(f, backend=backend)
            for x in (w[:20], w[1:21], w[4:24], w[1::2]):
                near(f(x), g(x), backend)


def test_writes_into_expanded_inputs():
    for f in (lambda x: x.fill_(3), lambda x: x.zero_()):
        for backend in ("aot_eager", "inductor"):
            dynamo.reset()
            a, b = taper.ones(1, 4), taper.ones(1, 4)
            near(f(a.expand(3, 4)), taper.compile(f, backend=backend)(b.expand(3, 4)))
            near(a, b)


def test_softmax_of_nothing():
    for shape, dim in (((0, 4), 0), ((2, 0), 1), ((2, 0, 3), 1)):
        for f in (taper.softmax, taper.log_softmax):
            x = taper.zeros(*shape)
            near(f(x, dim), taper.compile(f, fullgraph=True)(x, dim))
    near(F.cross_entropy(taper.zeros(2, 0), taper.zeros(2, 0)), taper.tensor(-0.0))


def test_random_numbers_nobody_reads():
    """What is drawn and not used still moves the generator on."""
    def plain(x):
        taper.rand_like(x)
        return taper.rand_like(x)

    def graded(x):
        a = taper.nn.functional.dropout(x, 0.5)  # noqa: F841
        return taper.nn.functional.dropout(x * 2, 0.5), taper.randint(0, 9, [3])
    for f, x in ((plain, taper.zeros(3)), (graded, taper.ones(7, requires_grad=True))):
        for backend in ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor"):
            dynamo.reset()
            taper.manual_seed(0)
            want = f(x)
            taper.manual_seed(0)
            near(want, taper.compile(f, backend=backend)(x), backend)


def test_sizes_that_are_one_by_computation():
    def f(x, y):
        return taper.maximum(y.sin(), x[:x.shape[0] // 3].flip([1]))
    each(f, [[taper.randn(3, 5), taper.randn(3, 5)], [taper.randn(3, 7), taper.randn(3, 7)]])


def test_writes_through_views_of_turned_tensors():
    """Gradients through a write into part of a tensor that lies the other way round, sizes fixed and not."""
    def a(x):
        v = x.clone()
        v.unsqueeze(0)[0].sub_(1)
        return v * v

    def b(x):
        v = x * 2
        v.select(0, 0).sub_(1)
        v[:, 1:].mul_(v[:, :-1].clone())
        return v.unsqueeze(0).sin()
    for f in (a, b):
        for shape in ((3, 7, 2), (4, 5, 3)):
            x = taper.randn(*shape).permute([2, 1, 0])
            for backend in ("aot_eager", "inductor"):
                for dynamic in (False, True):
                    dynamo.reset()
                    grads = []
                    for g in (f, taper.compile(f, backend=backend, dynamic=dynamic)):
                        y = x.detach().requires_grad_()
                        g(y).square().sum().backward()
                        grads.append(y.grad)
                    near(*grads, (backend, dynamic))


def test_views_of_written_inputs_that_are_not_dense():
    def f(x):
        x.copy_(x * 2)
        v = F.pad(x[None], [1, 1], mode="reflect")
        x.t().add_(1)
        return v, x[0] + 1, x.transpose(0, 1).sum(0)
    for backend in ("aot_eager", "inductor"):
        for dynamic in (False, True):
            dynamo.reset()
            a, b = taper.arange(60.).view(3, 20)[:, 1::2], taper.arange(60.).view(3, 20)[:, 1::2]
            near(f(a), taper.compile(f, backend=backend, dynamic=dynamic)(b))
            near(a, b)


def test_bytes_read_as_another_type():
    for dtype in (taper.int32, taper.int16, taper.float64):
        x = taper.randn(3, 4)
        for f in (lambda x: x.view(dtype), lambda x: x[1:].view(dtype), lambda x: x.view(dtype) + 1):
            for backend in ("aot_eager", "inductor"):
                dynamo.reset()
                want, got = f(x), taper.compile(f, backend=backend)(x)
                assert want.dtype == got.dtype and want.tolist() == got.tolist(), (dtype, backend)


def test_random_numbers_are_drawn_in_order():
    """A value that an early draw needs could be computed with one that needs a later draw: then it is not."""
    def f(x):
        a = taper.bernoulli(taper.full_like(x, 0.5))
        b = taper.randn([])
        return x.clamp(0, 2) * (taper.randint(0, 3, x.shape) - 1), a, b
    x = taper.randn(8, 2)
    for only in (slice(0, 1), slice(0, 3)):
        g = lambda x: f(x)[only]  # noqa: E731
        for backend in ("aot_eager", "inductor"):
            dynamo.reset()
            taper.manual_seed(0)
            want = g(x)
            taper.manual_seed(0)
            near(want, taper.compile(g, backend=backend)(x), backend)


def test_a_slice_whose_place_and_step_are_symbols():
    def f(x, lo, hi, step):
        return (-x)[lo:hi:step] * 2

    x = taper.randn(9, 3)
    g = taper.compile(f, dynamic=True)
    for numbers in ((1, 7, 2), (2, 9, 3), (3, 8, 4)):
        assert taper.equal(g(x, *numbers), f(x, *numbers)), numbers


def test_numbers_in_derivatives_follow_the_sizes():
    """Guards are made before derivatives are taken: a rule that fixed a number then would be right for the first size alone."""
    cases = {
        "base of pow": lambda x, n: n ** x, "xlogy": lambda x, n: taper.xlogy(x + 1, n), "xlogy from": lambda x, n: taper.xlogy(n, x + 1),
        "xlog1py": lambda x, n: taper.special.xlog1py(x + 1, n), "alpha": lambda x, n: taper.add(x, x * 2, alpha=n), "rsub": lambda x, n: n - x * x,
        "addcmul": lambda x, n: taper.addcmul(x, x, x, value=n), "addcdiv": lambda x, n: taper.addcdiv(x, x, x + 1, value=n),
        "lerp": lambda x, n: taper.lerp(x, x * 2, n), "leaky": lambda x, n: F.leaky_relu(-x, n), "elu": lambda x, n: F.elu(-x, n),
        "clamp": lambda x, n: taper.clamp(x * 10, 1, n), "threshold": lambda x, n: F.threshold(x * 5, n, 0.5), "softplus": lambda x, n: F.softplus(x, n),
        "remainder": lambda x, n: taper.remainder(x * 10, n), "divided": lambda x, n: n / (x + 1), "sum": lambda x, n: (x * n).sum(),
        "addmm": lambda x, n: taper.addmm(taper.ones(3, 3), x[:3, :3], x[:3, :3], beta=n, alpha=n), "pow": lambda x, n: (x + 1) ** n,
    }
    for f in cases.values():
        each(lambda x: f(x, x.shape[0]), [[taper.linspace(0.1, 1, n * 4).reshape(n, 4)] for n in (3, 5, 7)], grad=True)


def test_modules_do_not_make_one_another_dynamic():
    """All modules are called through one function of the library; what sizes one has seen is nothing to another."""
    class First(taper.nn.Module):
        def forward(self, x):
            return (x * 2).sum()

    class Second(taper.nn.Module):
        def forward(self, x):
            return (x * 3).sum()
    seen = []

    def backend(gm, inputs):
        seen.append("s0" in gm.print_readable(print_output=False))
        return gm.forward
    dynamo.reset()
    for cls, size in ((First, (8, 5)), (Second, (2, 7)), (First, (4, 6))):  # one's own sizes that changed are symbols
        taper.compile(cls(), backend=backend)(taper.ones(*size))
    assert seen == [False, False, True], seen


def test_a_dimension_that_is_one_in_the_example():
    """The stride of a size that happens to be 1 at first says nothing of the graph, and is right for other sizes."""
    def f(a):
        a[::2] *= 2
        return a[::2].clone(), a + 1
    for backend in ("eager", "aot_eager", "inductor"):
        dynamo.reset()
        c = taper.compile(f, backend=backend, dynamic=True)
        for n in (2, 3, 7, 1, 2, 8):
            x, y = taper.arange(float(n)), taper.arange(float(n))
            for p, q in zip(c(x), f(y)):
                assert taper.equal(x, y) and taper.equal(p, q) and (n < 3 or p.stride() == q.stride()), (backend, n, p, q)


FLOATS = [2.5, 3.5, 4.25, -0.1, 7.75]


def graphs_for(f, values):
    """How many graphs serve all of them; every call gives what plain execution gives."""
    from taper._dynamo.testing import CompileCounter
    taper._dynamo.reset()
    counter = CompileCounter()
    c = taper.compile(f, backend=counter)
    with taper._dynamo.config.patch(specialize_float=False):
        for v in values:
            x = taper.arange(3.0) + 1
            want = f(x.clone(), v) if not isinstance(v, dict) else f(x.clone(), dict(v))
            assert repr(c(x, v)) == repr(want), v
    return counter.frame_count


def test_a_float_that_changes_becomes_an_input():
    assert graphs_for(lambda x, n: x * n, FLOATS) == 2
    assert graphs_for(lambda x, n: (x * n, n, n * 2 + 1, -n), FLOATS) == 2
    assert graphs_for(lambda x, n: x.mul_(n).add_(n) - (1 - n) * x, FLOATS) == 2
    assert graphs_for(lambda x, n: x * n["scale"], [{"scale": v} for v in FLOATS]) == 2
    assert graphs_for(lambda x, n: x * n[0] + n[1], [[v, v + 1] for v in FLOATS]) == 2
    assert graphs_for(lambda x, n: (x > n, n >= x), FLOATS) == 2


def test_a_float_that_is_asked_for_its_value_stays_a_constant():
    assert graphs_for(lambda x, n: x * n if n > 1 else x - n, FLOATS) == 5
    assert graphs_for(lambda x, n: taper.nn.functional.leaky_relu(x, n), FLOATS) == 5
    assert graphs_for(lambda x, n: x + len(f"{n:.1f}"), FLOATS) == 5


def test_floats_that_are_no_numbers_and_other_types():
    assert graphs_for(lambda x, n: x * n, [1.0, 2.0, math.inf, math.nan, -0.0, 0.0, 1e300]) == 2
    assert graphs_for(lambda x, n: x * n, [1.0, 2.0, 3, 4, True, 5.0]) == 4


def test_floats_with_gradients_and_breaks():
    def grad(x, n):
        x = x.detach().requires_grad_()
        (x * n).sum().backward()
        return x.grad

    def broken(x, n):
        y = x * n
        taper._dynamo.graph_break()
        return y + n
    assert graphs_for(grad, FLOATS) == 2
    assert graphs_for(broken, FLOATS) == 4


def test_numbers_in_objects_and_keyword_arguments():
    class Plain:
        pass

    class Net(taper.nn.Module):
        def forward(self, x):
            return x * self.k

    def several(owner, call):
        from taper._dynamo.testing import CompileCounter
        taper._dynamo.reset()
        counter = CompileCounter()
        c = taper.compile(call, backend=counter)
        for owner.k in range(2, 8):
            assert c(taper.ones(2)).tolist() == [owner.k] * 2
        return counter.frame_count
    o, m = Plain(), Net()
    assert several(o, lambda x: x * o.k) == 2
    assert several(m, lambda x: m(x)) == 6  # a module's numbers are settings

    def named(x, **options):
        return x * options["n"]
    from taper._dynamo.testing import CompileCounter
    taper._dynamo.reset()
    counter = CompileCounter()
    c = taper.compile(named, backend=counter)
    for n in range(2, 8):
        assert c(taper.ones(2), n=n).tolist() == [n, n]
    assert counter.frame_count == 2
