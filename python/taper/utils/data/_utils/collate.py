"""Samples become batches."""
import collections.abc
import contextlib
import copy

import taper

np_str_obj_array_pattern = None
default_collate_err_msg_format = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def default_convert(data):
    """Arrays in data become tensors; everything else stays."""
    if isinstance(data, taper.Tensor):
        return data
    if hasattr(data, "__array_interface__") and type(data).__module__ == "numpy":
        return data if data.dtype.kind in "SUO" else taper.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        new = {k: default_convert(v) for k, v in data.items()}
        with contextlib.suppress(TypeError):
            return type(data)(new)
        return new
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(v) for v in data))
    if isinstance(data, tuple):
        return [default_convert(v) for v in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        with contextlib.suppress(TypeError):
            return type(data)([default_convert(v) for v in data])
        return [default_convert(v) for v in data]
    return data


def collate_tensor_fn(batch, *, collate_fn_map=None):
    return taper.stack(batch, 0)


def collate_numpy_array_fn(batch, *, collate_fn_map=None):
    if batch[0].dtype.kind in "SUO":
        raise TypeError(default_collate_err_msg_format.format(batch[0].dtype))
    return collate([taper.as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch, *, collate_fn_map=None):
    return taper.as_tensor(batch)


def collate_float_fn(batch, *, collate_fn_map=None):
    return taper.tensor(batch, dtype=taper.float64)


def collate_int_fn(batch, *, collate_fn_map=None):
    return taper.tensor(batch)


def collate_str_fn(batch, *, collate_fn_map=None):
    return batch


default_collate_fn_map = {taper.Tensor: collate_tensor_fn, float: collate_float_fn, int: collate_int_fn, str: collate_str_fn, bytes: collate_str_fn}


def _numpy_rows():
    import sys
    np = sys.modules.get("numpy")
    if np is not None and np.ndarray not in default_collate_fn_map:
        default_collate_fn_map[np.ndarray] = collate_numpy_array_fn
        default_collate_fn_map[(np.bool_, np.number, np.object_)] = collate_numpy_scalar_fn


def collate(batch, *, collate_fn_map=None):
    """One batch of a list of samples, by the row of the map that fits the samples' type; containers are kept."""
    first = batch[0]
    cls = type(first)
    if collate_fn_map is not None:
        if cls in collate_fn_map:
            return collate_fn_map[cls](batch, collate_fn_map=collate_fn_map)
        for t, fn in collate_fn_map.items():
            if isinstance(first, t):
                return fn(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, collections.abc.Mapping):
        new = {k: collate([d[k] for d in batch], collate_fn_map=collate_fn_map) for k in first}
        if isinstance(first, collections.abc.MutableMapping):
            with contextlib.suppress(TypeError):
                kept = copy.copy(first)
                kept.update(new)
                return kept
        with contextlib.suppress(TypeError):
            return cls(new)
        return new
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return cls(*(collate(s, collate_fn_map=collate_fn_map) for s in zip(*batch)))
    if isinstance(first, collections.abc.Sequence):
        if any(len(b) != len(first) for b in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        new = [collate(list(s), collate_fn_map=collate_fn_map) for s in zip(*batch)]
        if isinstance(first, (tuple, list)):
            return new
        with contextlib.suppress(TypeError):
            return cls(new)
        return new
    raise TypeError(default_collate_err_msg_format.format(cls))


def default_collate(batch):
    """A list of samples becomes one batch: tensors are stacked, numbers become tensors, containers are kept."""
    _numpy_rows()
    return collate(batch, collate_fn_map=default_collate_fn_map)
