"""Inputs that a compiled function writes and whose values, old or new, its backward needs."""
import taper
import taper._dynamo
from taper._dynamo.backends.common import aot_autograd
from taper._dynamo.utils import counters


def new_value(x, w):
    x.mul_(2)
    return (x * x * w).sum()


def through_detach(x, w):
    y = x.detach()
    y.mul_(2)
    return (y * y * w).sum()


def returned_too(x, w):
    x.mul_(2)
    return ((x + 1) * w).sum(), x


def old_value(x, w):
    y = x.clone()
    x.mul_(2)
    return (y * w * w).sum() + (x * w).sum()


def old_value_turned(x, w):
    y = x.t().clone()
    x.add_(1)
    return (y @ w).sum() + (x * w).sum()


def part_written(x, w):
    y = x + 0
    x[0] = 7
    return (y * w * x).sum()


def running_mean(x, w):
    with taper.no_grad():
        x.mul_(0.5).add_(w.detach(), alpha=0.5)
    return ((w - x) * (w - x)).sum()


def two_results(x, w):
    a = (x * w).exp().sum() if x.requires_grad else (x.clone() * w).sum()
    x.sub_(1)
    return a, (x * w * w).sum()


PROGRAMS = [new_value, through_detach, returned_too, old_value, old_value_turned, part_written, running_mean, two_results]


def observe(f, layout):
    x = taper.arange(9.0).view(3, 3) / 4
    x = x.t().contiguous().t() if layout == "turned" else x
    w = (taper.arange(9.0).view(3, 3) / 8 - 0.5).requires_grad_()
    r = f(x, w)
    for t in r if isinstance(r, tuple) else (r,):
        if t.requires_grad:
            t.backward(retain_graph=True)
    return [v.detach().tolist() for v in (r if isinstance(r, tuple) else (r,))], x.tolist(), w.grad.tolist()


def close(a, b):
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    return abs(a - b) <= 1e-5 * max(1, abs(b))


def test_gradients_like_eager():
    own = aot_autograd(fw_compiler=lambda g, inputs: g.forward)
    for f in PROGRAMS:
        for layout in ("plain", "turned"):
            want = observe(f, layout)
            for backend in ("aot_eager", "aot_eager_decomp_partition", "inductor", own):
                for dynamic in (False, True):
                    taper._dynamo.reset()
                    counters.clear()
                    c = taper.compile(f, backend=backend, dynamic=dynamic)
                    for _ in range(2):
                        got = observe(c, layout)
                        assert close(got, want), (f.__name__, layout, backend, dynamic, got, want)
                    assert not counters["aot_fallback"], (f.__name__, dict(counters["aot_fallback"]))


def test_a_leaf_on_written_memory():
    def f(x):
        y = x.detach().requires_grad_()
        with taper.no_grad():
            y.mul_(2)
        return y, (y * y).sum()
    for backend in (None, "aot_eager", "inductor"):
        taper._dynamo.reset()
        y, loss = (taper.compile(f, backend=backend) if backend else f)(taper.tensor([0.5, -1.0, 2.0]))
        loss.backward()
        assert y.grad.tolist() == [2.0, -4.0, 8.0]


def steps(x):
    return [s for n, s in zip(x.shape, x.stride()) if n > 1]  # the others reach no memory


def test_inputs_with_gaps_are_written_in_part():
    """A value that was written as a whole lies densely; later writes into parts of it, and views of it, count in that form."""
    def part(a):
        a.add_(1)
        a[0] += 0.5

    def several(a):
        a.unbind(0)[0].add_(1)
        a.add_(1)
        a.unbind(0)[-1].add_(1)
        a.split(1)[0].mul_(2)
        a.chunk(2, 1)[0].mul_(2)
        a.diagonal().add_(3)
        a.unfold(0, 1, 1)[0].mul_(2)

    def views_first(a):
        v, w, u = a[0:1], a.t()[0], a.unbind(0)[0]
        a.mul_(2)
        v.add_(1)
        w.add_(u.sum())
        u.mul_(3)
        return v, w, u, a + 1

    def inside(a):
        b = a * 2
        b.add_(1)
        b = b[:, ::2]
        b.mul_(2)
        b[0] += 1
        b.unbind(0)[0].add_(1)
        return b + 1

    for sizes, strides in (((1, 2), (1, 2)), ((2, 3), (8, 2)), ((2, 3), (1, 4)), ((2, 1), (3, 3)), ((2, 3), (3, 1)), ((3, 2), (1, 3))):
        for f in (part, several, views_first, inside):
            make = lambda: taper.arange(50, dtype=taper.float32).as_strided(sizes, strides, 1)
            a = make()
            want = f(a)
            for dynamic in (None, True):
                for backend in ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor"):
                    taper._dynamo.reset()
                    b = make()
                    got = taper.compile(f, backend=backend, dynamic=dynamic)(b)
                    pairs = zip([a] + list(want if isinstance(want, tuple) else [want] * (want is not None)), [b] + list(got if isinstance(got, tuple) else [got] * (got is not None)))
                    assert all(steps(x) == steps(y) and taper.equal(x, y) for x, y in pairs), (f.__name__, sizes, strides, backend, dynamic)


def test_an_input_kept_for_its_sizes_may_be_written_later():
    def f(a):
        s = a.sum()
        taper._dynamo.graph_break()
        a.mul_(2)
        return s

    for backend in ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor"):
        taper._dynamo.reset()
        c = taper.compile(f, backend=backend, dynamic=True)
        for n in (5, 7):
            x = taper.ones(2, n, requires_grad=True)
            c(x * 1).backward()
            assert x.grad.tolist() == [[1.0] * n] * 2, backend


def test_writes_by_data_and_by_the_tensor():
    """A write by Tensor.data does not count as a version, one by the tensor does, also where one graph has both."""
    def both(b):
        b.data.mul_(2)
        b.sub_(0.5)

    def data_alone(b):
        b.data.mul_(2)
        return b + 1

    def data_of_view(b):
        b[0].data.mul_(2)
        return b + 1

    for f, written in ((both, True), (data_alone, False), (data_of_view, False)):
        for backend in (None, "eager", "aot_eager", "inductor"):
            taper._dynamo.reset()
            b = taper.arange(3.0)
            (taper.compile(f, backend=backend) if backend else f)(b)
            assert (b._version > 0) == written, (f.__name__, backend)
