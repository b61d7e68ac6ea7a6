"""requires_grad_() inside compiled functions: captured, with the gradients, leaves and flags of eager execution."""
import taper
import taper._dynamo
from taper._dynamo.utils import counters

BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")


def leaf_inside(x):
    y = x.detach().requires_grad_()
    (y * y * 3).sum().backward()
    return y.grad * 2


def leaf_with_grad_returned(x):
    y = x.detach().requires_grad_()
    (y * y * 3).sum().backward()
    return y


def leaf_returned(x):
    y = x.detach().requires_grad_()
    return (y * y * 3).sum(), y


def attribute_written(x):
    y = (x * 2).detach()
    y.requires_grad = True
    return (y * y * x).sum(), y


def leaf_nobody_sees(x):
    y = (x.detach() * 2).requires_grad_()
    return (y * y).sum()


def input_on(x):
    a = x * x
    x.requires_grad_()
    return (a * x).sum()


def input_on_alone(x):
    x.requires_grad_()


def input_off(x):
    a = (x * x).sum()
    x.requires_grad_(False)
    return a, x * 3


def input_on_and_off(x):
    x.requires_grad_(True)
    a = (x * x).sum()
    x.requires_grad_(requires_grad=False)
    return a


def input_off_and_on(x):
    a = (x * x).sum()
    x.requires_grad_(False)
    b = (x * 5).sum()
    x.requires_grad_(True)
    return a, b, (x * 7).sum()


def factory(x):
    w = taper.ones(3, requires_grad=True)
    return (w * x).sum(), w


def constructor(x):
    w = taper.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (w * x.detach()).sum().backward()
    return w, w.grad


def autograd_grad(x):
    y = x.detach().requires_grad_()
    g, = taper.autograd.grad((y * y * y).sum(), y)
    return g


def under_no_grad(x):
    with taper.no_grad():
        y = x * 2
        y.requires_grad_()
        z = y * 3
    return y, z, (y * x.detach()).sum()


def view_of_leaf_on_input(x):
    y = x.detach().requires_grad_()
    return y[1:], y, y.view(3, 1)


def view_of_leaf(x):
    y = (x.detach() * 2).requires_grad_()
    return y, y.view(3, 1), y[1:]


def backward_twice(x):
    y = x.detach().requires_grad_()
    (y * y).sum().backward()
    (y * 3).sum().backward()
    y.grad = y.grad * 2
    return y, y.grad


def small_training(x):
    w = taper.zeros(3).requires_grad_()
    for _ in range(3):
        ((w - x.detach()) * (w - x.detach())).sum().backward()
        with taper.no_grad():
            w -= 0.125 * w.grad
            w.grad = None
    return w


def same_memory_no_leaf(x):
    a = x.detach() * 2
    b = a.detach().requires_grad_()
    return a, b, (b * b).sum()


def asks(x):
    y = x.detach()
    before = (y.requires_grad, y.is_leaf)
    y.requires_grad_()
    return before, y.requires_grad, y.is_leaf, (y * 2).is_leaf


def not_a_leaf(x):
    y = x * 2
    try:
        y.requires_grad_(False)
    except RuntimeError as e:
        return str(e)


def not_a_float(x):
    try:
        taper.ones(3, dtype=taper.int64).requires_grad_()
    except RuntimeError as e:
        return str(e)


def not_a_bool(x):
    try:
        x.requires_grad_(3)
    except TypeError as e:
        return str(e)


def attribute_not_a_bool(x):
    try:
        x.requires_grad = 3
    except RuntimeError as e:
        return str(e)


CASES = [f for f in list(globals().values()) if callable(f) and getattr(f, "__module__", "") == __name__]


def show(v):
    if isinstance(v, taper.Tensor):
        return (v.detach().tolist(), v.requires_grad, v.is_leaf, v.grad_fn is not None,
                v.grad.tolist() if v.is_leaf and v.grad is not None else None)
    return [show(x) for x in v] if isinstance(v, (tuple, list)) else v


def observe(f, needs):
    """Everything a caller can see: results, flags, and gradients of what is differentiable afterwards."""
    x = taper.tensor([0.5, -1.0, 2.0], requires_grad=needs)
    r = f(x)
    seen = [show(r), show(x)]
    ts = [t for t in (r if isinstance(r, (tuple, list)) else [r]) if isinstance(t, taper.Tensor)]
    for t in ts:
        if t.requires_grad:
            try:
                (t * t).sum().backward(retain_graph=True)
            except RuntimeError as e:
                seen.append(str(e))
    return seen + [show(ts), show(x)]


def test_like_eager():
    for f in CASES:
        for needs in (False, True):
            want = observe(f, needs)
            for backend in BACKENDS:
                taper._dynamo.reset()
                counters.clear()
                c = taper.compile(f, backend=backend)
                for _ in range(2):
                    got = observe(c, needs)
                    assert got == want, (f.__name__, needs, backend, got, want)
                assert not counters["graph_break"], (f.__name__, dict(counters["graph_break"]))
                assert not counters["aot_fallback"], (f.__name__, dict(counters["aot_fallback"]))


def test_across_a_break():
    def f(x):
        y = x.detach().requires_grad_()
        z = (y * y).sum()
        print(end="")
        z.backward()
        return y
    want = observe(f, True)
    for backend in BACKENDS:
        taper._dynamo.reset()
        assert observe(taper.compile(f, backend=backend), True) == want


def test_the_flag_outlives_the_frame_and_is_guarded():
    taper._dynamo.reset()

    def f(m, x):
        for p in m.parameters():
            p.requires_grad_(False)
        return m(x).sum()
    m, x = taper.nn.Linear(3, 2), taper.ones(1, 3)
    c = taper.compile(f, backend="aot_eager")
    assert not c(m, x).requires_grad
    assert [p.requires_grad for p in m.parameters()] == [False, False]
    for p in m.parameters():
        p.requires_grad_()
    assert not c(m, x).requires_grad
    counters.clear()
    assert not c(m, x).requires_grad  # as the first call left them: another entry, then no more
    assert not c(m, x).requires_grad
    assert not counters["graph_break"]


def test_hidden_view_of_a_leaf_runs_eagerly_and_says_so():
    def f(x):
        return x.detach().requires_grad_()[1:]
    want = observe(f, True)
    taper._dynamo.reset()
    counters.clear()
    assert observe(taper.compile(f, backend="aot_eager"), True) == want
    assert "requires_grad_() made a leaf" in " ".join(counters["aot_fallback"])


def test_a_flag_taken_back_before_backward():
    x = taper.ones(3, requires_grad=True)
    a = (x * 2).sum()
    x.requires_grad_(False)
    a.backward()
    assert x.grad is None


def test_create_graph_says_why_it_cannot():
    taper._dynamo.reset()

    @taper.compile(backend="aot_eager")
    def f(x, y):
        y.requires_grad_()
        return (y * y * x).sum()
    x, y = taper.ones(3, requires_grad=True), taper.ones(3)
    loss = f(x, y)
    try:
        taper.autograd.grad(loss, x, create_graph=True)
        assert False
    except RuntimeError as e:
        assert "the graph says requires_grad_() of its inputs" in str(e), e


def test_create_graph_through_a_leaf_that_is_returned():
    """The graph runs again on the tape, where the leaf is the one that was returned."""
    def f(x, w):
        y = (x * 2).detach().requires_grad_()
        return (y * y * y * w).sum() + x.sum(), y
    got = []
    for fn in (f, taper.compile(f, backend="aot_eager"), taper.compile(f)):
        x, w = taper.tensor([1.0, 2.0], requires_grad=True), taper.tensor([3.0, 1.0], requires_grad=True)
        loss, y = fn(x, w)
        seen = []
        y.register_hook(lambda g: seen.append(g.tolist()))
        gy, gw, gx = taper.autograd.grad(loss, [y, w, x], create_graph=True)
        h = taper.autograd.grad((gy * w).sum(), [y, w], retain_graph=True)
        assert y.grad is None and y.is_leaf
        gw.sum().backward()
        got.append([t.tolist() for t in (gy, gw, gx, *h, y.grad)] + [seen])
    assert got[0] == got[1] == got[2], got


def test_create_graph_behind_a_break():
    def f(x, w):
        y = (x * 2).detach().requires_grad_()
        loss = (y * y * y * w).sum()
        taper._dynamo.graph_break()
        g, = taper.autograd.grad(loss, y, create_graph=True)
        return (g * g).sum()
    got = []
    for fn in (f, taper.compile(f, backend="aot_eager"), taper.compile(f)):
        x, w = taper.tensor([1.0, 2.0], requires_grad=True), taper.tensor([3.0, 1.0], requires_grad=True)
        loss = fn(x, w)
        loss.backward()
        got.append((loss.item(), x.grad, w.grad.tolist()))
    assert got[0] == got[1] == got[2], got


def test_create_graph_in_the_same_function():
    def f(x):
        y = x.detach().requires_grad_()
        g, = taper.autograd.grad((y * y * y).sum(), y, create_graph=True)
        h, = taper.autograd.grad(g.sum(), y)
        return g, h
    want = observe(f, True)
    for backend in BACKENDS:
        taper._dynamo.reset()
        assert observe(taper.compile(f, backend=backend), True) == want


def test_symbolic_sizes():
    def f(x):
        y = x.detach().requires_grad_()
        return (y * y * x).sum(), y
    for backend in BACKENDS:
        taper._dynamo.reset()
        c = taper.compile(f, backend=backend, dynamic=True)
        for n in (3, 5, 8):
            x = taper.arange(float(n)).requires_grad_()
            loss, y = c(x)
            loss.backward()
            assert y.grad.tolist() == (2 * x * x).tolist() and x.grad.tolist() == (x * x).tolist()


def test_accuracy_checks_obey_modes_and_leaves():
    """The references that a result is held against run with the same switches of grad mode, and make the same leaves."""
    def f(x):
        with taper.no_grad():
            y = x * x
        y = (y * 2).requires_grad_()
        return taper.relu(y) + x * 3
    with taper._dynamo.config.patch(repro_after="dynamo", repro_level=4):
        taper._dynamo.reset()
        x = taper.tensor([0.5, -1.0, 2.0], requires_grad=True)
        taper.compile(f, backend="aot_eager")(x).sum().backward()
        assert x.grad.tolist() == [3.0, 3.0, 3.0]
    taper._dynamo.reset()


def test_the_attribute_of_a_computed_tensor_is_not_set():
    def f(y):
        y.requires_grad = True

    for g in (f, taper.compile(f, backend="eager"), taper.compile(f)):
        y = taper.ones(2, requires_grad=True) * 1
        try:
            g(y)
        except RuntimeError as e:
            assert str(e).startswith("you can only change requires_grad flags of leaf variables."), e
        else:
            assert False, "requires_grad of a computed tensor was set"
        assert y.requires_grad_() is y  # the method takes it for said already
        with taper.no_grad():
            try:
                g(y)
            except RuntimeError:
                pass
            else:
                assert False, "requires_grad of a computed tensor was set under no_grad"
        g(taper.ones(2, requires_grad=True))  # of a leaf it may be set again


def test_views_of_leaves_made_inside():
    """A view of a leaf that the graph made is one behind it, too: writes are refused, gradients arrive at the leaf."""
    def write(a, make):
        a = make(a).requires_grad_()
        v = a[:]
        taper._dynamo.graph_break()
        v.add_(1)
        return a

    def use(a, make):
        a = make(a).requires_grad_()
        v, w = a[1:], a.view(2, 2)
        taper._dynamo.graph_break()
        (v * v).sum().backward()
        w.sum().backward()
        return a, v

    for make in (lambda a: a.detach(), lambda a: a.clone(), lambda a: a.detach()[0:4], lambda a: a * 2):
        for backend in (None, "eager", "aot_eager", "inductor"):
            taper._dynamo.reset()
            compiled = (lambda f: taper.compile(f, backend=backend)) if backend else (lambda f: f)
            try:
                compiled(write)(taper.arange(4.0), make)
                raise AssertionError("written")
            except RuntimeError as e:
                assert "a view of a leaf" in str(e), (backend, e)
            a, v = compiled(use)(taper.arange(4.0), make)
            assert a.grad.tolist() == [1.0] + (1 + 2 * a[1:]).tolist() and a.is_leaf and not v.is_leaf, backend


def test_views_of_a_detached_input_without_the_tape():
    for f in (lambda a: a.detach().split(1), lambda a: [a.detach()[:1], a[:1]], lambda a: [a.view(-1).detach().view(2, 1)]):
        for mode in (taper.no_grad, taper.inference_mode, taper.enable_grad):
            def program(a):
                with mode():
                    return list(f(a))
            def outside(compiled):
                a = taper.ones(2, requires_grad=True)
                with mode():
                    return [t.requires_grad for t in compiled(a)]
            want = outside(f), [t.requires_grad for t in program(taper.ones(2, requires_grad=True))]
            for backend in ("eager", "aot_eager", "inductor"):
                taper._dynamo.reset()
                got = outside(taper.compile(f, backend=backend)), [t.requires_grad for t in taper.compile(program, backend=backend)(taper.ones(2, requires_grad=True))]
                assert got == want, (mode, backend, got, want)
