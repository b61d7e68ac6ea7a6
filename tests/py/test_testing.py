"""taper.testing: what users test their compiled code with."""
import os
import subprocess
import sys
import unittest

import taper
from taper.testing import CompileCounter, CompileCounterWithBackend, TestCase, assert_close, same

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def test_compile_counter_counts_graphs_and_calls():
    taper._dynamo.reset()
    c = CompileCounter()
    f = taper.compile(lambda x: x.sin() + 1, backend=c)
    f(taper.ones(2)), f(taper.ones(2)), f(taper.ones(3))
    assert c.frame_count == 2 and c.op_count == 4 and len(c.graphs) == 2
    c.clear()
    assert c.frame_count == 0


def test_compile_counter_with_a_backend_runs_that_backend():
    for name in ("aot_eager", "inductor"):
        taper._dynamo.reset()
        c = CompileCounterWithBackend(name)
        x = taper.ones(2, requires_grad=True)
        y = taper.compile(lambda x: x.sin() * 2, backend=c)(x)
        assert type(y.grad_fn).__name__ == "CompiledFunctionBackward" or "Compiled" in y.grad_fn.name(), y.grad_fn
        assert c.frame_count == 1


def test_allclose_and_assert_close_on_nan_and_infinity():
    """torch.allclose(eager, compiled, atol=1e-4) in a test suite: correct on NaN and infinity."""
    a = taper.tensor([1.0, float("inf"), float("nan")])
    assert not taper.allclose(a, a) and taper.allclose(a, a, equal_nan=True)
    assert taper.allclose(taper.tensor([1.0, float("inf")]), taper.tensor([1.00001, float("inf")]), atol=1e-4)
    assert not taper.allclose(taper.tensor([float("inf")]), taper.tensor([-float("inf")]))
    assert not taper.allclose(taper.tensor([1.0]), taper.tensor([1.1]), atol=1e-4)
    assert_close(a, a, equal_nan=True)
    for x, y in ((a, a), (taper.ones(2), taper.ones(3)), (taper.ones(2), taper.ones(2, dtype=taper.float64))):
        try:
            assert_close(x, y)
        except AssertionError:
            continue
        raise AssertionError((x, y))
    assert same([a[:1]], [a[:1]]) and not same(taper.ones(2), taper.zeros(2), log_error=lambda *a: None)


class Leaves(TestCase):
    def test_it(self):
        taper._dynamo.config.cache_size_limit = 3
        taper._dynamo.config.reorderable_logging_functions.add(print)
        taper.compiler.set_stance("force_eager")
        taper.manual_seed(123)

    def test_compiles(self):
        self.assertCompiles(lambda x: x.sin() + 1, taper.ones(3))
        try:
            self.assertCompiles(lambda x: print("a") or x + 1, taper.ones(3))
        except Exception:
            return
        raise AssertionError("a graph break passed")


def test_testcase_leaves_nothing_behind():
    f = taper.compile(lambda x: x + 1, backend="eager")
    state = taper.random.get_rng_state()
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Leaves).run(result)
    assert result.testsRun == 2 and result.wasSuccessful(), result.failures + result.errors
    assert taper._dynamo.config.cache_size_limit == 8
    assert print not in taper._dynamo.config.reorderable_logging_functions
    assert taper.equal(state, taper.random.get_rng_state())
    taper._dynamo.reset()
    f(taper.ones(2))
    assert taper._dynamo.utils.counters["stats"]["unique_graphs"] == 1  # the stance is the default one again


def test_the_example_for_ci_passes():
    env = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"))
    p = subprocess.run([sys.executable, os.path.join(ROOT, "examples", "ci_test.py")], env=env, capture_output=True, text=True, timeout=60)
    assert p.returncode == 0 and "Ran 5 tests" in p.stderr, p.stderr
