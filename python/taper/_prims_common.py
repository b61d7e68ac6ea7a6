"""Facts about tensors."""


def is_contiguous_or_false(a):
    return a.is_contiguous()


def is_contiguous(a):
    return a.is_contiguous()


def alert_not_deterministic(caller):
    """Operators are deterministic here."""


def make_contiguous_strides_for(shape, row_major=True):
    out, n = [], 1
    for s in reversed(tuple(shape)):
        out.append(n)
        n *= max(int(s), 1)
    return tuple(reversed(out))


def suggest_memory_format(x):
    from . import channels_last, contiguous_format
    return channels_last if x.dim() == 4 and x.is_contiguous(memory_format=channels_last) and not x.is_contiguous() else contiguous_format


def is_float_dtype(dtype):
    return dtype.is_floating_point


def is_integer_dtype(dtype):
    return not dtype.is_floating_point and not dtype.is_complex


def canonicalize_dim(rank, idx, wrap_scalar=True):
    rank = 1 if rank == 0 and wrap_scalar else rank
    if not -rank <= idx < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {idx})")
    return idx % rank


def canonicalize_dims(rank, indices, wrap_scalar=True):
    return canonicalize_dim(rank, indices, wrap_scalar) if isinstance(indices, int) else tuple(canonicalize_dim(rank, i, wrap_scalar) for i in indices)


TensorLike = object
