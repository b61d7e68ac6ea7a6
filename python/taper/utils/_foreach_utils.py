"""Tensors by device and type."""


def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices=False):
    groups = {}
    for i, first in enumerate(tensorlistlist[0]):
        key = (first.device, first.dtype) if first is not None else (None, None)
        lists, index = groups.setdefault(key, ([[] for _ in tensorlistlist], []))
        for to, source in zip(lists, tensorlistlist):
            to.append(source[i] if source else None)
        index.append(i)
    return groups


def _device_has_foreach_support(device):
    return device.type == "cpu"


_has_foreach_support = lambda tensors, device: True  # noqa: E731
