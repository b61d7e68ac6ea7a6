"""Tests of compiled code for a project's CI: compiled agrees with eager, in one graph, compiled once.

    python examples/ci_test.py
"""
import unittest

import taper
from taper import nn
from taper.testing import CompileCounter, TestCase


class SimpleModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = nn.Linear(10, 20)
        self.linear2 = nn.Linear(20, 5)

    def forward(self, x):
        return self.linear2(taper.relu(self.linear1(x)))


class TestModel(TestCase):
    def test_compiled_agrees_with_eager(self):
        model, x = SimpleModel(), taper.randn(4, 10)
        with taper.no_grad():
            eager, compiled = model(x), taper.compile(model)(x)
        self.assertTrue(taper.allclose(eager, compiled, atol=1e-4))

    def test_gradients_agree(self):
        model, x = SimpleModel(), taper.randn(4, 10)
        model(x).square().mean().backward()
        want = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        taper.compile(model)(x).square().mean().backward()
        for p, g in zip(model.parameters(), want):
            self.assertClose(p.grad, g, rtol=1e-4, atol=1e-5)

    def test_one_graph(self):
        """fullgraph=True fails loudly where the model stops being one graph; deploy without it."""
        model = SimpleModel()
        taper.compile(model, fullgraph=True)(taper.randn(4, 10))

    def test_other_batch_sizes_compile_once_more_and_no_further(self):
        model, counter = SimpleModel(), CompileCounter()
        compiled = taper.compile(model, backend=counter)
        for n in (4, 5, 6, 7, 8):
            compiled(taper.randn(n, 10))
        self.assertEqual(counter.frame_count, 2)  # the first size, then any size

    def test_training_keeps_in_step(self):
        """What a single batch does not show: statistics that are carried from step to step."""
        taper.manual_seed(0)
        a = nn.Sequential(nn.Linear(10, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        b = nn.Sequential(nn.Linear(10, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        b.load_state_dict(a.state_dict())
        fast = taper.compile(b)
        for step in range(5):
            x = taper.randn(16, 10)
            self.assertClose(fast(x), a(x), rtol=1e-3, atol=1e-4)
            self.assertClose(b[1].running_mean, a[1].running_mean, rtol=1e-4, atol=1e-5)
            self.assertClose(b[1].running_var, a[1].running_var, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
