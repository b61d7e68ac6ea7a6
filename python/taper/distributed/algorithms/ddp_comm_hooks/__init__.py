"""How gradients travel: there is one process."""
