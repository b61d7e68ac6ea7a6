"""Wrappers that spread a module over processes. With one process they hand the call through, and keep the names that
programs rely on: `.module`, and state dicts whose keys begin with `module.`."""
import contextlib

from ..modules.module import Module


class DistributedDataParallel(Module):
    """Compile the module that goes in, not the wrapper: gradients belong to the wrapper."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=True, process_group=None,
                 bucket_cap_mb=None, find_unused_parameters=False, gradient_as_bucket_view=False, static_graph=False):
        from ... import distributed
        super().__init__()
        distributed.get_world_size()  # there must be a group
        if not any(p.requires_grad for p in module.parameters()):
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.")
        self.module = module
        self.require_backward_grad_sync = True

    @contextlib.contextmanager
    def no_sync(self):
        was, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = was

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)


class DataParallel(Module):
    """One device: the module itself."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        self.module, self.device_ids, self.dim = module, [], dim

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*inputs, **(module_kwargs or {}))


from .scatter_gather import gather, scatter  # noqa: E402,F401


def replicate(network, devices, detach=False):
    return [network]


def parallel_apply(modules, inputs, kwargs_tup=None, devices=None):
    kw = kwargs_tup or [{}] * len(modules)
    return [m(*(i if isinstance(i, tuple) else (i,)), **k) for m, i, k in zip(modules, inputs, kw)]
