"""One number for all dimensions."""
import collections.abc as _abc
from itertools import repeat as _repeat


def _ntuple(n, name="parse"):
    def parse(x):
        return tuple(x) if isinstance(x, _abc.Iterable) else tuple(_repeat(x, n))
    parse.__name__ = name
    return parse


_single, _pair, _triple, _quadruple = _ntuple(1, "_single"), _ntuple(2, "_pair"), _ntuple(3, "_triple"), _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t, n):
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size, defaults):
    if isinstance(out_size, int):
        return out_size
    return [v if v is not None else d for v, d in zip(out_size, defaults[-len(out_size):])]


def consume_prefix_in_state_dict_if_present(state_dict, prefix):
    """Keys lose the prefix, in place."""
    for key in [k for k in state_dict if k.startswith(prefix)]:
        state_dict[key[len(prefix):]] = state_dict.pop(key)
    meta = getattr(state_dict, "_metadata", None)
    for key in list(meta or ()):
        if key and key.startswith(prefix.replace(".", "")):
            meta[key[len(prefix):]] = meta.pop(key)
