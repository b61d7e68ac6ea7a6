"""autograd.Function whose results need gradients: forward and backward are parts of one graph."""
import taper
from taper._dynamo.utils import counters

BACKENDS = ("eager", "aot_eager", "inductor")


class Clip(taper.autograd.Function):
    @staticmethod
    def forward(ctx, x, lo, hi):
        ctx.save_for_backward(x)
        ctx.lo, ctx.hi = lo, hi
        assert not taper.is_grad_enabled()
        return x.clamp(lo, hi)

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * ((x > ctx.lo) & (x < ctx.hi)) * 3, None, None


class Exp(taper.autograd.Function):
    """keeps its result"""
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return g * y * 2


class Two(taper.autograd.Function):
    @staticmethod
    def forward(a, b):
        return a * b, a > b, (a - b).detach(), "text"

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx, g, m, h, text):
        a, b = ctx.saved_tensors
        assert text is None and not h.any() if not taper.compiler.is_compiling() else True
        ga = g * b * 5 + h if ctx.needs_input_grad[0] else None
        gb = g * a * 7 if ctx.needs_input_grad[1] else None
        return ga, gb


class Once(taper.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, flag):
        ctx.flag = flag
        ctx.w = w
        return x @ w

    @staticmethod
    @taper.autograd.function.once_differentiable
    def backward(ctx, g):
        if ctx.flag:
            return g @ ctx.w.t(), None, None
        return g @ ctx.w.t() * 2, g.sum(0).expand_as(ctx.w) * 1.0, None


class Straight(taper.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class Same(taper.autograd.Function):
    """hands its argument back"""
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x

    @staticmethod
    def backward(ctx, g):
        return -g * ctx.k, None


class View(taper.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.view(-1)

    @staticmethod
    def backward(ctx, g):
        return g.reshape(ctx.shape) * 2


class Scale(taper.autograd.Function):
    factor = 3.0

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * Scale.factor, x + 1

    @staticmethod
    def backward(ctx, g, h):
        r = g * Scale.factor if g is not None else 0
        return r if h is None else r + h


def leaves(*shapes):
    taper.manual_seed(3)
    return [taper.randn(s).requires_grad_() for s in shapes]


def same(f, *shapes, graphs=1, backends=BACKENDS, dynamic=None, second=False):
    def run(fn):
        xs = leaves(*shapes)
        out = fn(*xs)
        outs = out if isinstance(out, tuple) else (out,)
        ts = [o for o in outs if isinstance(o, taper.Tensor)]
        loss = sum((o * (i + 1.5)).sum() for i, o in enumerate(ts) if o.requires_grad)
        if second:
            gs = taper.autograd.grad(loss, xs, create_graph=True, allow_unused=True)
            loss = sum((g * g).sum() for g in gs if g is not None)
        loss.backward()
        return ts, [x.grad for x in xs], [o.requires_grad for o in ts], [o for o in outs if not isinstance(o, taper.Tensor)]
    want = run(f)
    for backend in backends:
        taper._dynamo.reset()
        counters.clear()
        c = taper.compile(f, backend=backend, fullgraph=graphs == 1, dynamic=dynamic)
        for _ in range(2):
            got = run(c)
            for a, b in zip(want[0] + want[1], got[0] + got[1]):
                assert (a is None) == (b is None), (backend, want[1], got[1])
                assert a is None or taper.allclose(a, b, atol=1e-5), (backend, a, b)
            assert want[2:] == got[2:], (backend, want[2:], got[2:])
        assert counters["stats"]["unique_graphs"] == graphs, (backend, counters["stats"], dict(counters["graph_break"]))


def test_saved_arguments_and_numbers():
    same(lambda x, w: Clip.apply(x * w, -0.3, 0.6) * 2, 6, 6)


def test_saved_result():
    same(lambda x: Exp.apply(x * 0.5).sin(), 6)


def test_second_derivative():
    same(lambda x: Exp.apply(x * 0.5).sin(), 6, second=True)
    same(lambda x, y: Two.apply(x.sin(), y)[0], 4, 4, second=True)


def test_setup_context_and_results_without_a_derivative():
    same(lambda a, b: Two.apply(a, b), 5, 5)
    same(lambda a, b: Two.apply(a, b.detach())[0], 5, 5)


def test_once_differentiable_attributes_and_no_gradient():
    same(lambda x, w: Once.apply(x, w, True), (3, 4), (4, 2))
    same(lambda x, w: Once.apply(x, w, False), (3, 4), (4, 2))


def test_straight_through():
    same(lambda x: Straight.apply(x * 3) + x, 5)


def test_the_argument_itself():
    def f(x):
        y = x * 2
        z = Same.apply(y, 4)
        return z, y, z is y
    same(f, 5)
    same(lambda x: Same.apply(x, 4), 5)


def test_view_of_the_argument():
    same(lambda x: View.apply(x * 1.5) * 2, (2, 3))
    same(lambda x: View.apply(x), (2, 3))


def test_results_that_get_no_gradient():
    same(lambda x: Scale.apply(x)[0], 4)
    same(lambda x: Scale.apply(x)[1], 4)
    same(lambda x: Scale.apply(x), 4)


def test_one_in_another():
    class Outer(taper.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = Exp.apply(x)
            ctx.save_for_backward(x, y)
            return y.sum()

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * Straight.apply(y) * x
    same(lambda x: Outer.apply(x * 2), 4)


def test_in_a_loop_with_a_module():
    lin = taper.nn.Linear(4, 4)

    def f(x):
        for i in range(3):
            x = Clip.apply(lin(x), -1.0 - i, 0.5) + Straight.apply(x)
        return x
    want, got = leaves((2, 4)), leaves((2, 4))
    f(want[0]).sum().backward()
    eager = [p.grad.clone() for p in lin.parameters()]
    lin.zero_grad()
    taper.compile(f, fullgraph=True)(got[0]).sum().backward()
    assert taper.allclose(want[0].grad, got[0].grad, atol=1e-5)
    assert all(taper.allclose(a, p.grad, atol=1e-5) for a, p in zip(eager, lin.parameters()))


def test_backward_in_the_same_function():
    def f(x, w):
        y = Exp.apply(Clip.apply(x * w, -0.3, 0.6))
        g, = taper.autograd.grad(y.sum(), x, create_graph=True)
        return (g * g).sum() + y.sum()
    same(f, 6, 6)

    def step(x, w):
        loss = Exp.apply(Clip.apply(x.detach() * w, -0.3, 0.6)).sum()
        loss.backward()
        return loss.detach()
    for backend in BACKENDS:
        taper._dynamo.reset()
        res = []
        for fn in (step, taper.compile(step, backend=backend, fullgraph=True)):
            x, w = leaves(6, 6)
            res.append((fn(x, w), w.grad))
        assert taper.allclose(res[0][0], res[1][0]) and taper.allclose(res[0][1], res[1][1])


def test_dynamic_sizes():
    def f(x):
        return Clip.apply(x * 2, -0.3, 0.6).sum() + View.apply(x + 1).sum() * x.shape[0]
    for backend in BACKENDS:
        taper._dynamo.reset()
        c = taper.compile(f, backend=backend, fullgraph=True, dynamic=True)
        for n in (3, 5, 8):
            res = []
            for fn in (f, c):
                x, = leaves((n, 2))
                y = fn(x)
                y.backward()
                res.append((y.detach(), x.grad))
            assert taper.allclose(res[0][0], res[1][0]) and taper.allclose(res[0][1], res[1][1])


def test_guard_on_what_backward_reads():
    c = taper.compile(lambda x: Scale.apply(x)[0], fullgraph=True)
    try:
        for Scale.factor in (3.0, 4.0):
            x, = leaves(3)
            c(x).sum().backward()
            assert taper.equal(x.grad, taper.full((3,), Scale.factor))
    finally:
        Scale.factor = 3.0


def test_written_in_place_later():
    """What was kept has another version: as eager says."""
    def f(x):
        y = x * 1
        z = Clip.apply(y, -0.3, 0.6)
        y.add_(1)
        return z
    x, = leaves(4)
    c = taper.compile(f, backend="eager")
    try:
        c(x).sum().backward()
    except RuntimeError as e:
        assert "modified by an inplace" in str(e)
    else:
        raise AssertionError("no error")


def test_backward_that_cannot_be_traced_breaks_once():
    log = []

    class Noisy(taper.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            log.append(float(x.sum()))
            return g * 2
    f = lambda x: Noisy.apply(x.sin()).cos()
    want, got = leaves(4), leaves(4)
    f(want[0]).sum().backward()
    c = taper.compile(f, backend="aot_eager")
    c(got[0]).sum().backward()
    assert taper.allclose(want[0].grad, got[0].grad, atol=1e-6) and len(log) == 2 and abs(log[0] - log[1]) < 1e-6


def test_dirty_arguments():
    class Add(taper.autograd.Function):
        @staticmethod
        def forward(ctx, x, n):
            ctx.mark_dirty(x)
            return x.add_(n)

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    class Mul(taper.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.mark_dirty(x)
            ctx.save_for_backward(w)
            return x.mul_(w), w * 3

        @staticmethod
        def backward(ctx, g, h):
            w, = ctx.saved_tensors
            return g * w, g + h

    def itself(x):
        y = x * 3
        z = Add.apply(y, 2)
        return z * y, z is y

    def through_another(x):
        y = taper.zeros_like(x) + 2
        z, w = Mul.apply(y, x * 1)
        y.add_(1)
        return y * 3 + w, z is y, y.requires_grad

    def twice(x):
        y = x.clone()
        Add.apply(y, 1)
        Add.apply(y, 2)
        return y.sin(), y.requires_grad
    for f in (itself, through_another, twice):
        same(f, 4)

    def seen_by_a_view(x):
        y = x * 3
        v = y[:2]
        z = Add.apply(y, 2)
        return z.sum() + v.sum(), z is y

    def of_a_view(x):
        y = x * 3
        Add.apply(y[:2], 2)
        return y * 2, y.requires_grad
    for f in (seen_by_a_view, of_a_view):
        same(f, 4, graphs=3, backends=("aot_eager",))


def test_graph_as_the_users_backend_gets_it():
    seen = []

    def backend(gm, ex):
        seen.append(gm.code if hasattr(gm, "code") else "")
        return gm.forward
    taper._dynamo.reset()
    c = taper.compile(lambda x: Exp.apply(x * 2), backend=backend, fullgraph=True)
    x, = leaves(3)
    c(x).sum().backward()
    y, = leaves(3)
    Exp.apply(y * 2).sum().backward()
    assert taper.allclose(x.grad, y.grad) and len(seen) == 1

    def by_nodes(gm, ex):
        return taper.fx.Interpreter(gm).run
    taper._dynamo.reset()
    x, = leaves(3)
    taper.compile(lambda x: Exp.apply(x * 2), backend=by_nodes, fullgraph=True)(x).sum().backward()
    assert taper.allclose(x.grad, y.grad)


def test_no_grad_and_inference():
    x, = leaves(4)
    c = taper.compile(lambda x: Exp.apply(x), fullgraph=True)
    with taper.no_grad():
        assert not c(x).requires_grad
    assert c(x).requires_grad and not c(x).is_leaf
    assert not c(x.detach()).requires_grad


def test_backward_through_calls_that_only_later_stages_differentiate():
    """Nothing of the gradient is lost: backward() runs natively there."""
    def f(x, w):
        y = taper.cond(x.sum() > 0, lambda a: a * 2, lambda a: a * 3, (w,))
        loss = (y * y).sum()
        loss.backward()
        return loss.detach()

    def g(x, w):
        z = w * 2
        y = taper.cond(x.sum() > 0, lambda a: a * 2, lambda a: a * 3, (z,))
        return taper.autograd.grad((y * y).sum(), z)[0]
    for fn in (f, g):
        taper._dynamo.reset()
        res = []
        for h in (fn, taper.compile(fn)):
            x, w = leaves(6, 6)
            out = h(x.detach(), w)
            res.append((out, w.grad))
        assert taper.allclose(res[0][0], res[1][0])
        assert fn is g or taper.allclose(res[0][1], res[1][1])
