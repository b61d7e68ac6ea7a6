"""Lazy modules inside compiled functions: they learn their sizes while the function is traced, which stays one graph."""
import taper
from taper import nn
from taper._dynamo.utils import counters


def run(make, x, backend=None, dynamic=None):
    taper.manual_seed(7)
    m = make()
    c = m if backend is None else taper.compile(m, backend=backend, fullgraph=True, dynamic=dynamic)
    y = c(x)
    z = c(x)
    z.sum().backward()
    return [y.detach(), z.detach(), taper.rand(3)] + [p.grad for p in m.parameters()], [type(k).__name__ for k in m.modules()]


def same(make, x):
    want = run(make, x)
    for backend in ("eager", "aot_eager", "inductor"):
        for dynamic in (None, True):
            taper._dynamo.reset()
            counters.clear()
            got = run(make, x, backend, dynamic)
            assert want[1] == got[1] and len(want[0]) == len(got[0])
            assert all(taper.allclose(a, b, atol=1e-4) for a, b in zip(want[0], got[0]))  # also the random numbers that follow
            assert counters["stats"]["unique_graphs"] == 1, counters


def test_linear():
    same(lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2)), taper.linspace(-1, 1, 6).view(2, 3))


def test_convolution_and_norm():
    same(lambda: nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU()), taper.linspace(-1, 1, 150).view(2, 3, 5, 5))


def test_in_a_function_behind_other_work():
    taper.manual_seed(1)
    a, b = nn.LazyLinear(4), nn.Linear(3, 4)
    x = taper.randn(2, 3)
    y = taper.compile(lambda x: a(x.sin()).cos(), fullgraph=True)(x)
    assert type(a) is nn.Linear and a.weight.shape == b.weight.shape
    assert taper.allclose(y, nn.functional.linear(x.sin(), a.weight, a.bias).cos(), atol=1e-6)


def test_a_class_of_the_users():
    class Scale(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.UninitializedParameter()

        def initialize_parameters(self, x, *, by):
            self.w.materialize(x.shape[1:])
            with taper.no_grad():
                self.w.fill_(by)

        def forward(self, x, *, by):
            return x * self.w
    m = Scale()
    y = taper.compile(lambda x: m(x + 1, by=3.0), fullgraph=True)(taper.ones(2, 4))
    assert y.tolist() == [[6.0] * 4] * 2 and m.w.shape == (4,)


def test_an_input_that_does_not_fit():
    for compiled in (False, True):
        m = nn.Sequential(nn.LazyConv2d(4, 3))
        try:
            (taper.compile(m) if compiled else m)(taper.ones(3))
            assert False
        except RuntimeError as e:
            assert "Expected 3D" in str(e)
        assert m[0].has_uninitialized_params()
