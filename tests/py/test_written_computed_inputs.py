"""Compiled functions that write to computed inputs: the write is on the tape, also of what the inputs are views of."""
import taper
import taper._dynamo
import taper.nn.functional as F
from same_results import check, close
from taper._dynamo.utils import counters


def whole(x, w):
    x.mul_(w)
    return x * 2


def old_value_needed(x, w):
    x.sin_().mul_(w)
    return x.sum()


def part(x, w):
    x[0] += w[1]
    return x * 2


def through_view(x, w):
    b = x + 1
    x.view(6).copy_(taper.tensor([6.0]))
    return b, x + 2


def view_taken_first(x, w):
    v = x.t()
    x.mul_(2)
    v.add_(w.t())
    return v * v


def returned(x, w):
    return x.add_(w)


def nothing_else(x, w):
    x.sin_().add_(w)


def twice(x, w):
    x.mul_(2)
    y = x.exp()
    x.add_(y * w)
    return x.sum() + y.sum()


def cut_off(x, w):
    x.copy_(w)
    return x * x


def without_tape(x, w):
    with taper.no_grad():
        x.mul_(2)
    return x.sum() * w


def partly_without_tape(x, w):
    with taper.no_grad():
        x.mul_(2)
    x.add_(w)
    return x.sum()


def activation(x, w):
    return F.silu(x + w, inplace=True) + F.silu(x, inplace=True)


PROGRAMS = [whole, old_value_needed, part, through_view, view_taken_first, returned, nothing_else, twice, cut_off, without_tape,
            partly_without_tape, activation]
BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")


def leaf(*sizes):
    n = 1
    for s in sizes:
        n *= s
    return (taper.arange(float(n)).view(sizes) / 8 + 0.25).requires_grad_()


INPUTS = {
    "computed": lambda: (leaf(2, 3) * 1, leaf(2, 3)),
    "turned": lambda: ((leaf(3, 2) * 1).t().contiguous().view(2, 3), leaf(2, 3)),
    "view": lambda: ((leaf(6) * 1).view(2, 3), leaf(2, 3)),
    "slice": lambda: ((leaf(4, 3) * 1)[1:3], leaf(2, 3)),
    "gets its first history": lambda: (leaf(2, 3).detach().clone(), leaf(2, 3)),
    "view that gets its first history": lambda: (leaf(8).detach().clone()[1:7].view(2, 3), leaf(2, 3)),
}


def test_like_eager():
    for f in PROGRAMS:
        for name, make in INPUTS.items():
            check(f, make, BACKENDS, (f.__name__, name))


def test_bases_and_other_views_follow():
    for f in PROGRAMS:
        def outside(x, w):
            base = x * 1
            other = base[1]
            now(base[:2], w)
            return base * 3, other

        def observe():
            x, w = leaf(3, 3), leaf(2, 3)
            a, b = outside(x, w)
            ((a * a).sum() + (b * b).sum()).backward()
            there = w.grad if w.grad is not None else taper.zeros(2, 3)  # compiled: of a result that is not used
            return a.tolist(), b.tolist(), x.grad.tolist(), there.tolist()

        now = f
        want = observe() if f is not through_view else None
        for backend in BACKENDS if want else ():
            taper._dynamo.reset()
            now = taper.compile(f, backend=backend)
            assert close(want, observe(), 1e-5), (f.__name__, backend)


def test_no_break_and_no_fallback():
    for f in PROGRAMS:
        taper._dynamo.reset()
        counters.clear()
        x, w = leaf(2, 3) * 1, leaf(2, 3)
        taper.compile(f, fullgraph=True)(x, w)
        assert not counters["aot_fallback"] and not counters["graph_break"], f.__name__


def test_behind_a_break():
    def f(x, w):
        y = x @ w
        taper._dynamo.graph_break()
        y = F.silu(y, inplace=True)
        taper._dynamo.graph_break()
        y = F.relu(y - 0.5, inplace=True)
        return y * 2

    check(f, lambda: (leaf(2, 3).detach(), leaf(3, 3)), BACKENDS)


def test_leaves_refuse_it():
    for backend in BACKENDS:
        taper._dynamo.reset()
        c = taper.compile(whole, backend=backend)
        w = leaf(2, 3)
        c(leaf(2, 3) * 1, w)  # the entry is for computed inputs
        for x in (leaf(2, 3), leaf(6).view(2, 3), (leaf(4, 3) * 1).chunk(2)[0]):
            was = x.tolist()
            try:
                c(x, w)
                raise AssertionError("written")
            except RuntimeError as e:
                assert "in-place operation" in str(e) or "modified inplace" in str(e), e
            assert x.tolist() == was
        c(leaf(2, 3) * 1, w)


def test_a_handler_sees_the_refusal():
    def f(x):
        try:
            x.mul_(2)
        except RuntimeError:
            return x * 3
        return x * 5

    for backend in BACKENDS:
        taper._dynamo.reset()
        c = taper.compile(f, backend=backend)
        x = leaf(2)
        assert c(x).tolist() == (x * 3).tolist()
        assert c(x * 1).tolist() == (x * 10).tolist()
        assert c(x).tolist() == (x * 3).tolist()
