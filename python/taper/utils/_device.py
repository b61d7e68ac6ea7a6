"""The device that new tensors get inside `with device:`."""
import taper


def set_device(device):
    """Decorates a function: what it makes lies on device."""
    def wrap(fn):
        def inner(*args, **kwargs):
            with taper.device(device):
                return fn(*args, **kwargs)
        return inner
    return wrap
