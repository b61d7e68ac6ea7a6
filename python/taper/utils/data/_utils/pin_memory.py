"""There is no device to pin memory for: batches stay what they are."""


def pin_memory(data, device=None):
    return data
