"""Modules that are made alike on all ranks."""
from . import distributed_c10d as _dist


def _sync_params_and_buffers(process_group, module_states, broadcast_bucket_size=0, src=0):
    """Tensors of every rank become those of rank src of the group."""
    for t in module_states:
        _dist.broadcast(t.detach(), group_src=src, group=process_group)


def _sync_module_states(module, process_group, broadcast_bucket_size=0, src=0, params_and_buffers_to_ignore=(), broadcast_buffers=True):
    """Parameters and buffers of every rank become those of rank src of the group."""
    ignored = set(params_and_buffers_to_ignore)
    tensors = [*module.named_parameters(), *(module.named_buffers() if broadcast_buffers else ())]
    _sync_params_and_buffers(process_group, [t for n, t in tensors if n not in ignored], broadcast_bucket_size, src)


def _verify_param_shape_across_processes(process_group, tensors, logger=None):
    """Raises on every rank where shapes are not the same everywhere."""
    g = _dist._check(process_group)
    mine = [tuple(t.shape) for t in tensors]
    shapes = [None] * g.size()
    _dist.all_gather_object(shapes, mine, group=g)
    for r, theirs in enumerate(shapes):
        if list(map(tuple, theirs)) != list(map(tuple, shapes[0])):
            raise RuntimeError(f"parameters have other shapes on rank {r} of the group than on rank 0: {theirs} and {shapes[0]}")
