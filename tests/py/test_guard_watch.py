"""Guards of a module tree that did not change cost version checks only; every change is still seen."""
import taper
from taper import nn


class Four(nn.Module):
    def __init__(self, rest=None):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Parameter(taper.ones(4)) for _ in range(4))
        self.rest = rest

    def forward(self, x):
        x = x * self.a + self.b - self.c * self.d
        return x if self.rest is None else self.rest(x)


def compiled():
    m = Four(Four(Four(Four())))
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward
    c = taper.compile(m, backend=backend)
    x = taper.ones(2, 4)
    for _ in range(4):
        c(x)
    assert len(graphs) == 1
    return m, c, x, graphs


def changed(change, again=1):
    m, c, x, graphs = compiled()
    change(m)
    for _ in range(3):
        got, want = c(x), m(x)
        assert got.dtype == want.dtype and got.shape == want.shape and got.requires_grad == want.requires_grad
        assert got.tolist() == want.tolist()
    assert len(graphs) == 1 + again, len(graphs)


def inner(m):
    return m.rest.rest


def set_data(value):
    def change(m):
        inner(m).b.data = value
    return change


def test_requires_grad_of_a_parameter():
    changed(lambda m: inner(m).b.requires_grad_(False))


def test_shape_of_a_parameter():
    changed(set_data(taper.ones(1, 4)))


def test_dtype_of_a_parameter():
    changed(set_data(taper.ones(4, dtype=taper.float64)))


def test_strides_of_a_parameter():
    changed(set_data(taper.ones(4, 2)[:, 0]))


def test_values_do_not_matter():
    def change(m):
        with taper.no_grad():
            inner(m).b.mul_(3)
        inner(m).c.data = taper.full((4,), 5.0)
    changed(change, 0)


def test_a_change_there_and_back_keeps_the_graph():
    def change(m):
        inner(m).b.requires_grad_(False)
        inner(m).b.requires_grad_(True)
    changed(change, 0)


def test_two_changes_after_each_other():
    m, c, x, graphs = compiled()
    for k in range(3):
        inner(m).b.data = taper.ones(*([1] * (k + 1)), 4)
        assert c(x).tolist() == m(x).tolist() and c(x).shape == m(x).shape
    assert len(graphs) == 4


def test_another_parameter():
    def change(m):
        inner(m).b = nn.Parameter(taper.full((4,), 2.0))
    changed(change, 0)


def test_one_parameter_twice():
    def change(m):
        inner(m).b = m.a
    changed(change)


def test_the_input_is_a_parameter():
    m, c, x, graphs = compiled()
    p = inner(m).b
    assert c(p).tolist() == m(p).tolist() and len(graphs) == 2


def test_hooks_registered_or_put_there_by_hand():
    changed(lambda m: inner(m).register_forward_hook(lambda mod, a, out: out * 2))

    def change(m):
        inner(m)._forward_hooks[0] = lambda mod, a, out: out * 2
    changed(change)


def test_training_steps_keep_the_graph():
    m, c, x, graphs = compiled()
    for _ in range(3):
        c(x).sum().backward()
        with taper.no_grad():
            for p in m.parameters():
                p -= 0.1 * p.grad
                p.grad = None
    assert len(graphs) == 1
