"""There is no generator on an XPU."""
from . import get_rng_state, get_rng_state_all, manual_seed, manual_seed_all, set_rng_state, set_rng_state_all  # noqa: F401
