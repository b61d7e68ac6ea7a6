"""Hooks on gradients in and around compiled functions: the values are eager's, and hooks without side effects are in the graph."""
import taper
from taper import nn
from taper._dynamo.utils import counters

BACKENDS = ("eager", "aot_eager", "inductor")


def setting():
    m = nn.Linear(3, 3)
    with taper.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(taper.arange(p.numel()).view(p.shape) * 0.1 + i)
    return m, (taper.arange(6).view(2, 3) * 0.3).requires_grad_()


def same(program, graphs=None, backends=BACKENDS):
    """program(compile) -> tensors; graphs: how many, where that is said."""
    want = program(lambda f: f)
    for backend in backends:
        taper._dynamo.reset()
        counters.clear()
        got = program(lambda f: taper.compile(f, backend=backend))
        assert len(want) == len(got)
        for a, b in zip(want, got):
            assert taper.allclose(a, b, atol=1e-5), (backend, a, b)
        assert graphs is None or counters["stats"]["unique_graphs"] == graphs, (backend, dict(counters["graph_break"]))


def test_intermediate():
    def program(cp):
        m, x = setting()

        def f(x):
            y = m(x)
            y.register_hook(lambda g: g * 2)
            z = y.sin()
            z.register_hook(lambda g: None)
            return z * y
        cp(f)(x).sum().backward()
        return x.grad, m.weight.grad
    same(program, graphs=1)


def test_a_named_hook_whose_handle_nobody_uses():
    def clip(g):
        return g.clamp(-0.1, 0.1)

    def program(cp):
        m, x = setting()

        def f(x):
            y = m(x)
            handle = y.register_hook(clip)
            return y.sin()
        cp(f)(x).sum().backward()
        return x.grad, m.weight.grad
    same(program, graphs=1)


def test_written_in_place_after():
    def program(cp):
        m, x = setting()

        def f(x):
            y = m(x)
            y.register_hook(lambda g: g * 2)
            y.add_(1).mul_(2)
            return y.sin()
        cp(f)(x).sum().backward()
        return x.grad, m.weight.grad
    same(program, graphs=1)


def test_used_before_the_hook_came():
    """The hook is given the gradient of all uses."""
    def program(cp):
        m, x = setting()

        def f(x):
            y = m(x)
            z = y.sin()
            y.register_hook(lambda g: g * g)
            return z * y
        cp(f)(x).sum().backward()
        return x.grad, m.weight.grad
    same(program)


def test_two_on_one_tensor():
    def program(cp):
        m, x = setting()

        def f(x):
            y = m(x)
            y.register_hook(lambda g: g * 2)
            y.register_hook(lambda g: g + 1)
            return y.sin()
        cp(f)(x).sum().backward()
        return x.grad, m.weight.grad
    same(program)


def test_removed_again():
    def program(cp):
        m, x = setting()

        def f(x):
            y = m(x)
            h = y.register_hook(lambda g: g * 2)
            z = y.sin()
            h.remove()
            return z
        cp(f)(x).sum().backward()
        return x.grad, m.weight.grad
    same(program)


def test_the_gradient_of_the_tensor_itself():
    """autograd.grad gives what the hook made of it, and later hooks see that, too."""
    def program(cp):
        m, x = setting()

        def f(x):
            y = m(x)
            y.register_hook(lambda g: g * 2)
            return y, y.sin()
        y, z = cp(f)(x)
        seen = []
        y.register_hook(seen.append)
        return taper.autograd.grad(z.sum(), [y, x], retain_graph=True) + (seen[0],)
    same(program)

    def inside(cp):
        m, x = setting()

        def f(x):
            y = m(x)
            y.register_hook(lambda g: g * 2)
            return taper.autograd.grad(y.sin().sum(), y)
        return cp(f)(x)
    same(inside)


def test_views():
    def program(cp):
        m, x = setting()

        def f(x):
            y = m(x)
            v = y[0]
            v.register_hook(lambda g: g * 2)
            return v.sin() + y.cos()
        cp(f)(x).sum().backward()
        return x.grad,
    same(program)


def test_backward_in_the_same_function():
    def program(cp):
        m, x = setting()

        def f(x):
            y = m(x)
            y.register_hook(lambda g: g * 2)
            loss = y.sin().sum()
            loss.backward()
            return loss.detach()
        return cp(f)(x), x.grad, m.weight.grad
    same(program, graphs=1)


def test_around_the_function():
    def program(cp):
        m, x = setting()
        c = cp(lambda x: m(x).sin())
        c(x).sum().backward()
        h = x.register_hook(lambda g: g * 3)
        m.weight.register_hook(lambda g: g * 5)
        y = c(x)
        y.register_hook(lambda g: g * 7)
        y.sum().backward()
        h.remove()
        c(x).sum().backward()
        return x.grad, m.weight.grad, m.bias.grad
    same(program, graphs=1)


def test_inputs_inside():
    def program(cp):
        m, x = setting()

        def f(x):
            x.register_hook(lambda g: g * 3)
            return m(x).sin()
        cp(f)(x).sum().backward()
        return x.grad, m.weight.grad
    same(program, graphs=1)


def test_after_gradients_are_accumulated():
    def program(cp):
        m, x = setting()
        seen = []
        opt = {p: taper.optim.SGD([p], lr=0.1) for p in m.parameters()}

        def hook(p):
            seen.append(p.grad.clone())
            opt[p].step()
            opt[p].zero_grad()
        for p in m.parameters():
            p.register_post_accumulate_grad_hook(hook)
        c = cp(lambda x: m(x).sin())
        for _ in range(3):
            c(x).sum().backward()
        return [m.weight.detach(), m.bias.detach(), x.grad, sum(s.sum() for s in seen)]
    same(program, graphs=1)

    def inside(cp):
        m, x = setting()
        seen = []

        def f(x):
            m.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
            return m(x).sin()
        cp(f)(x).sum().backward()
        return seen[0], m.weight.grad
    same(inside, graphs=1)


def test_modules():
    def program(cp, pre=False, given=True):
        m, x = setting()
        seen = []
        s = nn.Sequential(m, nn.Tanh())

        def full(mod, gi, go):
            seen.extend([gi[0].clone(), go[0].clone()])
            return (gi[0] * 2 + go[0],) if given else None
        m.register_full_backward_hook(full)
        if pre:
            m.register_full_backward_pre_hook(lambda mod, go: (go[0] * 3,))
        c = cp(s)
        for _ in range(2):
            c(x).sum().backward()
        return [x.grad, m.weight.grad] + seen
    same(program)
    same(lambda cp: program(cp, pre=True))
    same(lambda cp: program(cp, given=False))


def test_side_effects_happen_in_backward():
    class Note:
        n = 0
    o, log, table = Note(), [], {"n": 0}

    def count(g):
        o.n += 1
        log.append(g)
        table["n"] += 1

    class Noting(taper.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            count(g)
            return g * 2

    def by_hook(x):
        y = x.sin()
        y.register_hook(lambda g: count(g))
        return y.cos()
    for f in (by_hook, lambda x: Noting.apply(x.sin()).cos()):
        for backend in BACKENDS:
            taper._dynamo.reset()
            c = taper.compile(f, backend=backend)
            for _ in range(3):
                n = o.n, len(log), table["n"]
                x = taper.ones(3, requires_grad=True)
                y = c(x)
                assert (o.n, len(log), table["n"]) == n
                y.sum().backward()
                assert (o.n, len(log), table["n"]) == tuple(k + 1 for k in n)
                assert log[-1].tolist()


def test_nested_functions_must_not_append_to_lists_outside():
    seen = []

    def branch(a):
        seen.append(a * 1)
        return a * 2
    c = taper.compile(lambda x: taper.cond(x.sum() > 0, branch, lambda a: a * 3, (x,)))
    for n in (1, 2):
        assert c(taper.ones(3)).tolist() == [2, 2, 2] and len(seen) == n and seen[-1].tolist() == [1, 1, 1]
