"""Random number state."""
import contextlib as _contextlib
from ._settings import get_rng_state, initial_seed, manual_seed, seed, set_rng_state  # noqa: F401
from ._C import default_generator  # noqa: F401


@_contextlib.contextmanager
def fork_rng(devices=None, enabled=True, **kwargs):
    """What happens inside leaves the default generator as it was."""
    state = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if enabled:
            set_rng_state(state)
