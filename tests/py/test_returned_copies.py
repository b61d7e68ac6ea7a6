"""A copy that is returned goes where it is all that becomes of a value; nobody may see that."""
import taper


def memory(t):
    return t.untyped_storage().data_ptr()


def run(f, *args):
    want, got = f(*args), taper.compile(f)(*args)
    for w, g in zip(want, got):
        assert taper.allclose(w, g) and w.stride() == g.stride(), (w, g, w.stride(), g.stride())
        assert g._base is None
    return got


def test_copies_of_inputs_stay():
    x = taper.randn(4, 6)
    a, b = run(lambda x: (x.clone(), x.t().t().clone()), x)
    assert len({memory(a), memory(b), memory(x)}) == 3


def test_copies_of_values_that_others_see_stay():
    x = taper.randn(4, 6)
    a, b = run(lambda x: (lambda y: (y, y.clone()))(x.exp()), x)
    assert memory(a) != memory(b)
    a, b = run(lambda x: (lambda y: (y.clone(), y.clone()))(x @ x.t()), x)
    assert memory(a) != memory(b)


def test_turned_twice():
    x = taper.randn(4, 6)
    run(lambda x: ((x @ x.t()).t().t().clone(), x.exp().t().clone(), x.sin()[1:].clone()), x)


def test_turned_once():
    x = taper.randn(4, 4)
    run(lambda x: ((x @ x).t().contiguous(), x.exp().movedim(0, -1).clone(memory_format=taper.contiguous_format), x.sin().flip(0).t().contiguous()), x)
    run(lambda x: ((x * 2).permute(1, 0, 2).contiguous(),), taper.randn(3, 3, 2))


def test_what_backward_reads_is_not_given_away():
    x = taper.randn(5, requires_grad=True)
    for f in (lambda x: x.exp().clone(), lambda x: x.tanh().view(5, 1).view(5).clone()):
        grads = []
        for g in (f, taper.compile(f)):
            y = g(x)
            with taper.no_grad():
                y.add_(1)  # a copy may be written
            y.sum().backward()
            grads.append(x.grad)
            x.grad = None
        assert taper.allclose(*grads)
