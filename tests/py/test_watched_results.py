"""Results of a compiled function that other results are made of: their gradients are asked for, kept, and changed by hooks as in eager mode."""
import taper
from taper import nn

F = nn.functional
BACKENDS = ("aot_eager", "inductor")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 3, 3), nn.Linear(12, 2)

    def forward(self, x):
        h = taper.relu(self.conv(x))
        return h, self.out(h.flatten(1)), x.sum()


def same(a, b):
    return len(a) == len(b) and all(x is y or (x is not None and y is not None and taper.allclose(x, y, atol=1e-6)) for x, y in zip(a, b))


def check(look, make=Net):
    taper.manual_seed(1)
    m = make()
    x = taper.randn(2, 1, 4, 4)
    want = look(m, m, x)
    assert all(w is not None for w in want)
    for b in BACKENDS:
        m.zero_grad()
        got = look(m, taper.compile(m, backend=b, fullgraph=True), x)
        assert same(got, want), (b, got, want)


def test_a_gradient_with_respect_to_an_inner_result():
    def look(m, f, x):
        h, o, _ = f(x)
        return taper.autograd.grad(o[:, 1].sum() + h.sum(), h)
    check(look)

    def both(m, f, x):
        h, o, _ = f(x)
        return taper.autograd.grad(o[:, 1].sin().sum(), [h, m.conv.weight, o])
    check(both)

    def twice(m, f, x):
        h, o, _ = f(x)
        a = taper.autograd.grad(o.sum(), h, retain_graph=True)
        return a + taper.autograd.grad(o.sum(), h)
    check(twice)


def test_a_gradient_that_is_kept():
    def look(m, f, x):
        h, o, _ = f(x)
        h.retain_grad()
        o[:, 0].sum().backward()
        return [h.grad] + [p.grad for p in m.parameters()]
    check(look)


def test_hooks_change_what_flows_on():
    def look(m, f, x):
        seen = []
        h, o, _ = f(x)
        h.register_hook(lambda g: seen.append(g) or g * 2)
        o.register_hook(lambda g: g + 1)
        (o.sum() + h.sum()).backward()
        assert len(seen) == 1
        return seen + [p.grad for p in m.parameters()]
    check(look)


def test_second_derivatives_through_an_inner_result():
    def look(m, f, x):
        h, o, _ = f(x)
        g, = taper.autograd.grad(o.sin().sum(), h, create_graph=True)
        return [g.detach()] + list(taper.autograd.grad((g * h).sum(), [m.out.weight, m.conv.weight]))
    check(look)


def test_random_numbers_are_those_of_the_first_run():
    class Drop(Net):
        def forward(self, x):
            h = F.dropout(self.conv(x), 0.5)
            return h, self.out(F.dropout(h, 0.5).flatten(1))

    m = taper.compile(Drop())
    x = taper.randn(2, 1, 4, 4)
    h, o = m(x)
    w = m.out.weight.sum(0).reshape(3, 2, 2)
    g, = taper.autograd.grad(o.sum(), h, retain_graph=True)
    kept = (g / (2 * w)).round()
    assert set(kept.flatten().abs().tolist()) == {0.0, 1.0}
    want = F.linear((h * kept * 2).flatten(1), m.out.weight, m.out.bias)
    assert taper.allclose(want, o, atol=1e-5)


def test_results_that_do_not_meet_run_the_compiled_backward():
    import os
    import subprocess
    import sys
    code = ("import taper\nf = taper.compile(lambda x: (x.sin(), x.cos()))\nx = taper.ones(3, requires_grad=True)\na, b = f(x)\na.retain_grad()\n"
            "(a + b).sum().backward()\nassert taper.equal(a.grad, taper.ones(3))\n")
    out = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TAPER_LOGS": "aot"}, capture_output=True, text=True)
    assert out.returncode == 0 and "Backward graph" in out.stderr and "runs again" not in out.stderr, out.stderr


def test_a_graph_that_writes_to_its_inputs_says_that_it_cannot_run_again():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn, self.out = nn.BatchNorm1d(3), nn.Linear(3, 1)

        def forward(self, x):
            h = self.bn(x)
            return h, self.out(h)
    m = taper.compile(Norm())
    h, o = m(taper.randn(4, 3))
    try:
        taper.autograd.grad(o.sum(), h)
        assert False
    except RuntimeError as e:
        assert "a result that other results are made of" in str(e) and "writes to its inputs" in str(e), e
    h, o = m(taper.randn(4, 3))
    o.sum().backward()
    assert m.bn.weight.grad is not None


def test_hooks_of_inputs_run_once_when_the_graph_runs_again():
    f = taper.compile(lambda x: (x * x * x).sum())
    x = taper.ones(2, requires_grad=True)
    x.register_hook(lambda g: g * 2)
    y = x * 1
    y.register_hook(lambda g: g * 2)
    for t in (x, y):
        g, = taper.autograd.grad(f(t), t, create_graph=True)
        assert g.tolist() == [6.0, 6.0], g
        h, = taper.autograd.grad(g.sum(), x)
        assert h.tolist() == ([24.0, 24.0] if t is x else [48.0, 48.0]), h


def test_views_of_inputs_that_results_are_made_of():
    """The compiled backward bypasses them: that is refused, not answered with None."""
    def f(a):
        c = a.view(-1)
        return c, (c * c).sum(), (a * a).sum(), c.detach()
    for backend in BACKENDS:
        a = taper.ones(2, 2, requires_grad=True)
        c, made, other, cut = taper.compile(f, backend=backend)(a)
        for ask in (lambda: taper.autograd.grad(made, c, allow_unused=True), lambda: c.register_hook(lambda g: g * 2), c.retain_grad):
            try:
                ask()
                made.backward(retain_graph=True)
            except RuntimeError as e:
                assert "bypasses the view" in str(e), e
            else:
                raise AssertionError(backend)
        a.grad = None
        c, made, other, cut = taper.compile(f, backend=backend)(a)
        c.retain_grad()
        (other + c.sum() * 3).backward()
        assert c.grad.tolist() == [3] * 4 and a.grad.tolist() == [[5, 5], [5, 5]]
