"""autograd.Function in compiled code that needs no gradients: forward is part of the graph."""
import taper
from taper._dynamo.utils import counters


class Clip(taper.autograd.Function):
    @staticmethod
    def forward(ctx, x, lo, hi):
        ctx.save_for_backward(x)
        ctx.lo, ctx.hi = lo, hi
        assert not taper.is_grad_enabled() and ctx.saved_tensors[0] is x
        return x.clamp(lo, hi)

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * ((x > ctx.lo) & (x < ctx.hi)), None, None


class Two(taper.autograd.Function):
    @staticmethod
    def forward(a, b):
        return a * b, (a + b).detach()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, g, _):
        a, b = ctx.saved_tensors
        return g * b, g * a


class Add(taper.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.mark_dirty(x)
        return x.add_(n)

    @staticmethod
    def backward(ctx, g):
        return g, None


def f(x, w):
    p, q = Two.apply(Clip.apply(x * w, -0.3, 0.6), w)
    y = Add.apply(p + q, 2)
    return y * 2, y.requires_grad, taper.is_grad_enabled()


def test_forward_is_part_of_the_graph():
    x, w = taper.randn(6), taper.randn(6)
    for backend in ("eager", "aot_eager", "inductor"):
        taper._dynamo.reset()
        c = taper.compile(f, backend=backend, fullgraph=True)
        for grad in (False, True):
            w.requires_grad_(grad)
            with taper.set_grad_enabled(not grad):
                want, got = f(x, w), c(x, w)
            assert taper.allclose(want[0], got[0]) and want[1:] == got[1:] == (False, not grad)
    w.requires_grad_(False)


def test_a_parameter_that_is_no_argument():
    """forward runs without gradients whatever it reaches."""
    p = taper.randn(3, requires_grad=True)

    class Scale(taper.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * p

        @staticmethod
        def backward(ctx, g):
            return g
    c = taper.compile(lambda x: (Scale.apply(x), x * p), fullgraph=True)
    a, b = c(taper.ones(3))
    assert not a.requires_grad and b.requires_grad and taper.allclose(a, b)


def test_where_gradients_are_needed_they_are_the_functions_own():
    taper._dynamo.reset()
    c = taper.compile(f)
    got = []
    for fn in (f, c, c):
        x, w = taper.linspace(-1, 1, 6).requires_grad_(), taper.ones(6).requires_grad_()
        y = fn(x, w)[0]
        y.sum().backward()
        got.append((y.detach(), x.grad, w.grad))
    for g in got[1:]:
        assert all(taper.allclose(a, b) for a, b in zip(g, got[0])), got
    assert not counters["graph_break"], counters


def test_an_error_in_forward():
    class Bad(taper.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            raise ValueError("no")
    c = taper.compile(lambda x: Bad.apply(x * 2))
    for _ in range(2):
        try:
            c(taper.ones(2))
            assert False
        except ValueError as e:
            assert str(e) == "no"
        assert taper.is_grad_enabled()
