"""How a joint graph is cut into forward and backward. aot_autograd(partition_fn=) takes one of these; the cut itself is
made by the autograd stage."""


def default_partition(*args, **kwargs):
    """Save what backward reads, recompute nothing."""
    raise RuntimeError("default_partition is passed as partition_fn=, not called")


def min_cut_rematerialization_partition(*args, **kwargs):
    """Keep the fewest bytes: cheap values are computed again in backward."""
    raise RuntimeError("min_cut_rematerialization_partition is passed as partition_fn=, not called")
