"""Gradients taken inside a compiled function (taper.func, autograd.grad, backward) whose results are differentiated again outside."""
import taper
from taper import nn

BACKENDS = ("eager", "aot_eager", "inductor")


def close(a, b, at=""):
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b), at
        for i, (x, y) in enumerate(zip(a, b)):
            close(x, y, f"{at}[{i}]")
    elif a is None or b is None:
        assert a is b, (at, a, b)
    else:
        assert taper.allclose(a, b, rtol=1e-4, atol=1e-5), (at, a, b)


def leaves(n=3, size=(4,)):
    taper.manual_seed(5)
    return [taper.randn(size).requires_grad_() for _ in range(n)]


def check(f, make=leaves, fullgraph=True, outer=True, **kw):
    """The results of f and, differentiated once more, their gradients: eager and compiled; one graph each time."""
    def run(fn):
        x = make(**kw)
        out = fn(*x)
        outs = out if isinstance(out, (tuple, list)) else [out]
        wanted = [o.requires_grad for o in outs]
        total = [(o * o).sum() for o in outs if o.requires_grad]
        assert bool(total) == outer, wanted
        if total:
            sum(total).backward()
        return [o.detach() for o in outs], wanted, [t.grad for t in x]
    want = run(f)
    for b in BACKENDS:
        taper._dynamo.reset()
        c = taper.compile(f, backend=b, fullgraph=fullgraph)
        for _ in range(2):
            got = run(c)
            assert got[1] == want[1], (b, got[1], want[1])
            close(got[0], want[0], f"{b} result")
            close(got[2], want[2], f"{b} gradient")


def test_func_grad_inside():
    check(lambda x, w, b: (taper.func.grad(lambda y: taper.sin(y * w).sum())(x) * b).sum())
    check(lambda x, w, b: taper.func.grad_and_value(lambda y: (taper.tanh(y * w) * b).sum())(x))
    check(lambda x, w, b: taper.func.grad(lambda y, z: (y * z * w).exp().sum(), argnums=(0, 1))(x, b))


def test_func_grad_of_what_needs_no_gradient():
    """Only the closure's tensors want an outer gradient; the place itself does not."""
    def make():
        x, w, b = leaves()
        return [x.detach(), w, b]
    check(lambda x, w, b: (taper.func.grad(lambda y: taper.sin(y * w).sum())(x) * b).sum(), make)
    check(lambda x, w, b: taper.func.grad(lambda y: taper.sin(y * 2).sum())(x), make, outer=False)


def test_second_derivatives_inside():
    def f(x, w, b):
        inner = taper.func.grad(lambda y: (taper.sin(y) * w).sum())
        return taper.func.grad(lambda y: (inner(y) * b).sum())(x)
    check(f)
    check(lambda x, w, b: taper.func.jacrev(lambda y: taper.sin(y * w))(x) @ b)
    check(lambda x, w, b: taper.func.hessian(lambda y: (taper.sin(y) * w).sum())(x) @ b)
    check(lambda x, w, b: taper.func.jvp(lambda y: taper.sin(y * w), (x,), (b,))[1])
    check(lambda x, w, b: taper.func.vjp(lambda y: taper.sin(y * w), x)[1](b)[0])


def test_autograd_grad_inside():
    def penalty(x, w, b):
        y = x * 2
        g, = taper.autograd.grad((taper.sin(y * w) * b).sum(), y, create_graph=True)
        return ((g.norm() - 1) ** 2) + y.sum()
    check(penalty)

    def leaf(x, w, b):
        y = (x.detach() * 2).requires_grad_()
        g, = taper.autograd.grad((taper.sin(y * w) * b).sum(), y, create_graph=True)
        return (g * g).sum()
    check(leaf)


def test_a_gradient_without_graph_is_a_constant():
    """create_graph=False: what is made of such a gradient is differentiated, the gradient itself is not."""
    def f(x, w, b):
        y = x * 2
        g, = taper.autograd.grad((y * w).sin().sum(), y)
        return (g * b * x).sum(), g
    check(f)

    def kept(x, w, b):
        l = (x * w).sin().sum()
        g, = taper.autograd.grad(l, x, retain_graph=True)
        return l * (g * b).sum()
    check(kept)


def test_backward_inside_and_results_that_are_differentiated():
    def f(x, w, b):
        (w * w).sin().sum().backward()
        return (x * b).sum() * 3
    check(f)

    def kept(x, w, b):
        l = (x * w * b).sin().sum()
        l.backward(retain_graph=True)
        return l
    check(kept)

    def created(x, w, b):
        (x * w * b).sin().sum().backward(create_graph=True)
        return (x.grad * b).sum()
    want = None
    for fn in (created, taper.compile(created, fullgraph=True)):
        x, w, b = leaves()
        out = fn(x, w, b)
        g = taper.autograd.grad(out, (x, w, b))
        want = want or (out, g)
        close(want, (out, g))


def test_one_step_of_an_inner_loop():
    """A few steps of descent with functional_call inside, differentiated with respect to where they began."""
    taper.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    x, y, qx, qy = (taper.randn(5, n) for n in (3, 1, 3, 1))

    def meta(net, x, y, qx, qy):
        p = dict(net.named_parameters())
        for _ in range(2):
            g = taper.func.grad(lambda p: ((taper.func.functional_call(net, p, (x,)) - y) ** 2).mean())(p)
            p = {k: v - 0.1 * g[k] for k, v in p.items()}
        return ((taper.func.functional_call(net, p, (qx,)) - qy) ** 2).mean()
    want = None
    for fn in (meta, taper.compile(meta, backend="aot_eager"), taper.compile(meta)):
        net.zero_grad()
        l = fn(net, x, y, qx, qy)
        l.backward()
        got = l.detach(), [p.grad for p in net.parameters()]
        want = want or got
        close(got, want)


def test_under_no_grad():
    def f(x, w, b):
        with taper.no_grad():
            g = taper.func.grad(lambda y: taper.sin(y * w).sum())(x)
        return (g * b).sum()
    check(f)
    g = taper.func.grad(lambda y: taper.sin(y * y).sum())
    x = taper.randn(4, requires_grad=True)
    with taper.no_grad():
        close(taper.compile(g)(x), g(x))


def test_the_outer_gradient_is_differentiated_too():
    """create_graph=True through a compiled function that made a leaf for itself."""
    def f(x, w):
        return (taper.func.grad(lambda y: taper.sin(y * w).sum())(x) * w).sum()
    want = None
    for fn in (f, taper.compile(f, fullgraph=True)):
        x, w, _ = leaves()
        g, = taper.autograd.grad(fn(x.detach(), w), w, create_graph=True)
        h, = taper.autograd.grad(g.sum(), w)
        want = want or (g.detach(), h)
        close((g.detach(), h), want)


def plain_loss(p, x):
    """A function of the file: what wraps() reads of it is no reason to break."""
    return (taper.tanh(p * x) ** 2).sum()


def test_functions_from_outside():
    check(lambda x, w, b: taper.func.grad(plain_loss)(x, w) * b)
    check(lambda x, w, b: taper.func.jacrev(taper.func.grad(plain_loss))(x, w) @ b)
    check(lambda x, w, b: taper.func.vmap(taper.func.grad(plain_loss), in_dims=(None, 0))(x, taper.stack([w, b])))


def test_random_numbers_in_vmap():
    def noisy(x):
        return taper.func.vmap(lambda a: a + taper.rand(2))(x)
    for fn in (noisy, taper.compile(noisy)):
        try:
            fn(taper.ones(3, 2))
            assert False
        except RuntimeError as e:
            assert "called random operation while in randomness error mode" in str(e), e
    f = taper.compile(lambda x: taper.func.vmap(lambda a: a + taper.rand(2), randomness="different")(x), fullgraph=True)
    y = f(taper.ones(3, 2))
    assert not taper.equal(y[0], y[1])
    drops = taper.compile(lambda x: taper.func.vmap(lambda a: a * 2)(x + taper.rand(3, 2)), fullgraph=True)
    assert drops(taper.ones(3, 2)).shape == (3, 2)


def test_saved_tensors_hooks_are_guarded():
    """An entry whose backward is in the graph keeps nothing that hooks could see: it is for calls without them."""
    def f(b):
        (b * b * b).backward()

    for backend in ("eager", "aot_eager", "inductor"):
        taper._dynamo.reset()
        c = taper.compile(f, backend=backend)
        for hooks in (False, True, False, True):
            seen, b = [], taper.tensor(0.5, requires_grad=True)
            if hooks:
                with taper.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
                    c(b)
            else:
                c(b)
            assert b.grad.item() == 0.75 and bool(seen) == hooks, (backend, hooks, len(seen))
            assert all(type(t).__name__ == "Tensor" and t.numel() == 1 and t.tolist() is not None for t in seen)


def test_inputs_written_beside_an_inner_gradient_keep_their_history():
    inner = (lambda a: taper.func.grad(lambda q: q.sin().sum())(a), lambda a: taper.func.jvp(taper.sin, (a,), (a,))[1])

    def whole(take):
        def f(a, b):
            take(a)
            b.mul_(2)
            return b
        return f

    def view(take):
        def f(a, b):
            take(a)
            b.view(-1)[0].mul_(2)
            return a
        return f

    def late(take):
        def f(a, b):
            b.mul_(2)
            take(a)
            return None
        return f

    def plain(take):
        def f(a, b):
            a.copy_(b * 2)
            take(taper.ones(2))
            return a
        return f
    for make in (whole, view, late, plain):
        for take in inner:
            seen = []
            for backend in (None, "eager", "aot_eager", "inductor"):
                leaf = taper.ones(2, requires_grad=True)
                a, b = taper.zeros(2), leaf * 1
                f = make(take)
                (taper.compile(f, backend=backend) if backend else f)(a, b)
                (b.sum() + a.sum()).backward()
                seen.append((leaf.grad.tolist(), a.requires_grad))
            assert all(s == seen[0] for s in seen), (make, seen)
