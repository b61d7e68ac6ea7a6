"""For tests of compiled code: count what is compiled, start each test from nothing."""
import contextlib as _contextlib
import unittest

from .. import _C, _dynamo
from .._dynamo.utils import same  # noqa: F401


class CompileCounter:
    """A backend that runs graphs as they are and counts them: frame_count graphs, op_count calls."""

    def __init__(self):
        self.clear()

    def __call__(self, gm, example_inputs):
        self.frame_count += 1
        self.op_count += sum(n.op.startswith("call") for n in gm.graph.nodes)
        self.graphs.append(gm)
        return gm.forward

    def clear(self):
        self.frame_count = self.op_count = 0
        self.graphs = []


class CompileCounterWithBackend(CompileCounter):
    """The same in front of another backend."""

    def __init__(self, backend):
        super().__init__()
        self.backend = backend

    def __call__(self, gm, example_inputs):
        super().__call__(gm, example_inputs)
        return _dynamo.lookup_backend(self.backend)(gm, example_inputs)


class TestCase(unittest.TestCase):
    """A test that leaves nothing behind: caches, counters, settings, stance and random state are as before."""

    def setUp(self):
        super().setUp()
        from .. import _C, random
        self.__settings = {k: (set(v) if isinstance(v, set) else v) for k, v in _dynamo.config._settings.items()}
        self.__stance = _C._capture_stance(0, None)
        self.__rng = random.get_rng_state()
        random.manual_seed(0)
        _dynamo.reset()

    def tearDown(self):
        from .. import _C, random
        _dynamo.reset()
        _dynamo.config._settings.update(self.__settings)
        _C._capture_stance(*self.__stance)
        random.set_rng_state(self.__rng)
        super().tearDown()

    def assertClose(self, actual, expected, **kwargs):
        from . import assert_close
        assert_close(actual, expected, **kwargs)

    def assertCompiles(self, fn, *args, graphs=1, backend="inductor", grad=False, **kwargs):
        """fn(*args) compiled agrees with fn(*args) plain, and takes this many graphs. Returns the counter."""
        from . import assert_close
        counter = CompileCounterWithBackend(backend)
        compiled = _dynamo.optimize(counter, nopython=graphs == 1)(fn)
        want, got = fn(*args, **kwargs), compiled(*args, **kwargs)
        assert_close(got, want, rtol=1e-4, atol=1e-4)
        self.assertEqual(counter.frame_count, graphs, f"{counter.frame_count} graphs were compiled, not {graphs}")
        return counter


@_contextlib.contextmanager
def counted_draws(on=True):
    """Inside, eager operators draw the numbers that compiled code draws: from the counter instead of PyTorch's sequence."""
    was = _C._counted_draws(on)
    try:
        yield
    finally:
        _C._counted_draws(was)
