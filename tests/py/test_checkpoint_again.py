"""taper.utils.checkpoint: intermediates are made again in backward, whoever needs the gradient; compiled, the call is part of the graph."""
import taper
from taper import nn
from taper.utils.checkpoint import checkpoint


def net():
    taper.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.4), nn.Linear(8, 3))


def gradients(fn, grad_input):
    m = net()
    x = taper.arange(12.0).reshape(4, 3).requires_grad_(grad_input)
    taper.manual_seed(7)
    fn(m, x).sin().sum().backward()
    return [x.grad] + [p.grad for p in m.parameters()]


def same(a, b):
    return len(a) == len(b) and all(x is y or taper.allclose(x, y) for x, y in zip(a, b))


def test_gradients_are_those_of_the_plain_call():
    """Also where no argument needs one, but the module's parameters do."""
    for grad_input in (False, True):
        want = gradients(lambda m, x: m(x), grad_input)
        assert all(g is not None for g in want[1:])
        for kw in ({}, {"use_reentrant": False}, {"use_reentrant": False, "preserve_rng_state": True, "debug": True}):
            assert same(gradients(lambda m, x: checkpoint(m, x, **kw), grad_input), want), (grad_input, kw)
    assert same(gradients(lambda m, x: checkpoint(m, x, use_reentrant=True), True), want)


def test_the_function_is_called_again_in_backward_and_nothing_is_kept():
    calls = []

    def f(x, *, k):
        calls.append(k)
        return (x * k).sin().exp()
    x = taper.randn(5, requires_grad=True)
    y = checkpoint(f, x, k=2, use_reentrant=False)
    g, = taper.autograd.grad(y.sum(), x, retain_graph=True)
    assert calls == [2, 2]
    h, = taper.autograd.grad(y.sum(), x)
    assert calls == [2, 2, 2] and taper.equal(g, h)
    want, = taper.autograd.grad(f(x, k=2).sum(), x)
    assert taper.allclose(g, want)
    with taper.no_grad():
        assert taper.equal(checkpoint(f, x, k=2), y)


def test_a_function_that_does_something_else_the_second_time():
    times = []

    def f(x):
        times.append(0)
        return x.sin() if len(times) == 1 else x.sin().cos()
    x = taper.randn(3, requires_grad=True)
    try:
        checkpoint(f, x).sum().backward()
        assert False
    except RuntimeError as e:
        assert "A different number of tensors was saved" in str(e) and "during forward: 1" in str(e), e


def test_autocast_is_what_it_was():
    m, x = nn.Linear(4, 4), taper.randn(2, 4)
    with taper.autocast("cpu", dtype=taper.bfloat16):
        a, b = m(x), checkpoint(m, x)
    assert a.dtype == b.dtype == taper.bfloat16
    ga, gb = taper.autograd.grad(a.float().sum(), m.weight), taper.autograd.grad(b.float().sum(), m.weight)
    assert taper.equal(ga[0], gb[0])


def test_inside_a_compiled_function_it_is_part_of_the_graph():
    def f(m, x):
        return checkpoint(lambda z: m(z) * 2, checkpoint(m, x, use_reentrant=False))
    for grad_input in (False, True):
        c = taper.compile(f, backend="aot_eager", fullgraph=True)
        assert same(gradients(c, grad_input), gradients(f, grad_input))
