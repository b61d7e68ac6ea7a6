"""Compiled functions and modules called inside other compiled functions are inlined: one graph, the outer one's backend."""
import taper
from taper import nn
from taper._dynamo.utils import counters


def test_a_compiled_module_inside_a_compiled_module():
    taper.manual_seed(0)
    inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    fast, double = taper.compile(inner), taper.compile(lambda x: x.sin() * 2)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = fast

        def forward(self, x):
            return double(self.inner(x)) + 1
    m = Outer()
    x = taper.randn(2, 3, requires_grad=True)
    want = (inner(x).sin() * 2 + 1)
    g = taper.autograd.grad(want.sum(), [x, *inner.parameters()])
    taper._dynamo.reset()
    c = taper.compile(m, fullgraph=True)
    got = c(x)
    assert taper.allclose(got, want)
    for a, b in zip(taper.autograd.grad(got.sum(), [x, *inner.parameters()]), g):
        assert taper.allclose(a, b)
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"], counters
    assert list(c.state_dict())[0] == "_orig_mod.inner._orig_mod.0.weight"


def test_what_the_inner_module_is_like_is_guarded():
    taper._dynamo.reset()
    m = taper.compile(nn.Dropout(0.5))
    f = taper.compile(lambda x: m(x) * 2, fullgraph=True)
    x = taper.ones(100)
    assert set(f(x).tolist()) == {0.0, 4.0}
    m.eval()
    assert set(f(x).tolist()) == {2.0}
    m.train()
    assert set(f(x).tolist()) == {0.0, 4.0}


def test_a_step_that_calls_a_compiled_model():
    taper._dynamo.reset()
    taper.manual_seed(0)
    net = nn.Linear(4, 1)
    model, opt = taper.compile(net), taper.optim.SGD(net.parameters(), lr=0.1)

    @taper.compile(fullgraph=True)
    def step(x, y):
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss
    x, y = taper.randn(8, 4), taper.randn(8, 1)
    losses = [step(x, y).item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1], losses
