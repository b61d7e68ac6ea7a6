"""A call that leaves a function early, before any tensor work, does not decide how later calls run."""
import taper
from taper._dynamo.utils import counters


def test_a_first_call_without_tensor_work_is_not_the_last_that_is_looked_at():
    @taper.compile
    def f(x, scale=None):
        if scale is None:
            return x
        return taper.sin(x) * scale
    taper._dynamo.reset()
    x = taper.randn(3)
    assert f(x) is x
    want = taper.sin(x) * 2.0
    for _ in range(3):
        assert taper.allclose(f(x, 2.0), want)
    assert counters["stats"]["unique_graphs"] == 1, counters
    assert f(x) is x and taper.allclose(f(x, 2.0), want)
    assert counters["stats"]["unique_graphs"] == 1, counters


def test_a_function_that_never_works_on_tensors_is_looked_at_ever_less():
    tries = []

    @taper.compile
    def f(x, n):
        if taper.compiler.is_compiling():
            taper._dynamo.comptime.comptime(lambda ctx: tries.append(n))
        return n + 1
    taper._dynamo.reset()
    x = taper.randn(3)
    assert [f(x, i) for i in range(200)] == list(range(1, 201))
    assert 2 <= len(tries) <= 12, tries
