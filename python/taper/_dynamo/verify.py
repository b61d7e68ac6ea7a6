"""config.verify_correctness: each graph, compiled, is held against the graph as it was captured."""
from .. import _C
from .utils import same


def _copy(x):
    if not isinstance(x, _C.Tensor):
        return x
    return x.detach().clone().requires_grad_(x.requires_grad) if x.is_floating_point() else x.detach().clone()


def check(capsule, compiled, inputs, backend):
    """Raises RuntimeError where the compiled graph gives other results (tolerance 1e-4)."""
    from .. import random
    name = backend if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__)
    state = random.get_rng_state()
    try:
        want = _C._graph_runner(capsule)(*[_copy(x) for x in inputs])
        random.set_rng_state(state)
        got = compiled(*[_copy(x) for x in inputs])
    finally:
        random.set_rng_state(state)
    if not same(want, got, tol=1e-4, equal_nan=True):
        raise RuntimeError(f"incorrect results of backend {name}: the compiled graph differs from the captured one")
    return True
