"""There is no generator on a GPU."""
from . import (get_rng_state, get_rng_state_all, initial_seed, manual_seed, manual_seed_all, seed, seed_all,  # noqa: F401
               set_rng_state, set_rng_state_all)
