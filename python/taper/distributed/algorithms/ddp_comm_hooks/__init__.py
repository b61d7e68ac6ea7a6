"""How gradients travel: hooks for DistributedDataParallel.register_comm_hook."""
