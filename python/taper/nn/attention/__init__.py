"""Which algorithm computes attention. There is one here, so a choice changes nothing; what the choice is can be asked."""
import contextlib as _contextlib
import enum as _enum


class SDPBackend(_enum.IntEnum):
    ERROR, MATH, FLASH_ATTENTION, EFFICIENT_ATTENTION, CUDNN_ATTENTION, OVERRIDEABLE = -1, 0, 1, 2, 3, 4


_allowed = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION]


def _cur_sdpa_kernel_backends(with_priority=False):
    return list(_allowed)


@_contextlib.contextmanager
def sdpa_kernel(backends, set_priority=False):
    """Inside, these algorithms are allowed; the one that is here gives the same values as all of them."""
    backends = [backends] if isinstance(backends, SDPBackend) else list(backends)
    if not backends or not all(isinstance(b, SDPBackend) for b in backends):
        raise AssertionError("sdpa_kernel takes one SDPBackend or a list of them")
    was = list(_allowed)
    _allowed[:] = backends
    try:
        yield
    finally:
        _allowed[:] = was


WARN_FOR_UNFUSED_KERNELS = False


def __getattr__(name):
    if name in ("flex_attention", "bias"):
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
