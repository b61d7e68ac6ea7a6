"""One device: nothing is spread."""


def scatter(inputs, target_gpus, dim=0):
    return [inputs]


def gather(outputs, target_device, dim=0):
    return outputs[0]


def scatter_kwargs(inputs, kwargs, target_gpus, dim=0):
    return (tuple(inputs),), (dict(kwargs or {}),)
