"""Saving and loading (docs/checkpoints.md): which names files may use, and what tools ask about files."""
import contextlib as _contextlib
import enum as _enum

from ._files import load, save  # noqa: F401

__all__ = ["save", "load", "add_safe_globals", "clear_safe_globals", "get_safe_globals", "safe_globals", "set_default_mmap_options", "skip_data",
           "LoadEndianness", "get_default_load_endianness", "set_default_load_endianness"]
MAP_LOCATION = FILE_LIKE = object
_safe = []


def add_safe_globals(safe_globals):
    """These classes and functions may be in files that load() reads with weights_only=True."""
    _safe.extend(g for g in safe_globals if g not in _safe)


def clear_safe_globals():
    _safe.clear()


def get_safe_globals():
    return list(_safe)


class safe_globals(_contextlib.AbstractContextManager):
    def __init__(self, safe_globals):
        self.more = safe_globals

    def __enter__(self):
        self.was = list(_safe)
        add_safe_globals(self.more)

    def __exit__(self, *exc):
        _safe[:] = self.was


class LoadEndianness(_enum.Enum):
    NATIVE, LITTLE, BIG = 1, 2, 3


def get_default_load_endianness():
    return None


def set_default_load_endianness(endianness):
    """Files are little-endian."""


def set_default_mmap_options(flags):
    """Mapped files are private copies: writes do not reach them."""


@_contextlib.contextmanager
def skip_data(materialize_fake_tensors=False):
    yield


def check_module_version_greater_or_equal(module, req_version_tuple, error_if_malformed=True):
    return True


def register_package(priority, tagger, deserializer):
    """Tensors lie on the CPU."""


def default_restore_location(storage, location):
    return storage


def location_tag(storage):
    return "cpu"


def get_unsafe_globals_in_checkpoint(f):
    """The names in a file that load() refuses with weights_only=True."""
    from ._files import unsafe_names
    return unsafe_names(f)


class config:
    class save:
        use_pinned_memory_for_d2h, storage_alignment = False, 64

    class load:
        mmap, endianness, mmap_flags, calculate_storage_offsets = False, None, None, False


DEFAULT_PROTOCOL = 2
