"""Wrappers that spread a module over processes (DistributedDataParallel) or over the devices of one (DataParallel, which hands
the call through). Both keep the names that programs rely on: `.module`, and state dicts whose keys begin with `module.`."""
from ..modules.module import Module


class DataParallel(Module):
    """One device: the module itself.

    >>> nn.DataParallel(nn.Linear(3, 4))(taper.ones(2, 3)).shape
    taper.Size([2, 4])
    """

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


def __getattr__(name):
    if name == "DistributedDataParallel":  # later: taper.distributed needs the rest of the package
        from .distributed import DistributedDataParallel
        return DistributedDataParallel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
