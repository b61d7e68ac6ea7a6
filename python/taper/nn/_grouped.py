"""Products of groups of rows or columns with a matrix each, as mixtures of experts need them; graphs call it as a whole."""
import taper
from ..library import custom_op


def _ends(offs, n, groups):
    ends = offs.tolist()
    if len(ends) != groups or any(a > b for a, b in zip([0, *ends], ends)) or (ends and ends[-1] > n):
        raise RuntimeError(f"grouped_mm: offs must be {groups} ascending ends of groups among {n}, not {ends}")
    return list(zip([0, *ends], ends))


def _size(a, b, offs):
    if a.dim() == 3 and b.dim() == 3:
        return (a.shape[0], a.shape[1], b.shape[2])
    if a.dim() == 2 and b.dim() == 2:
        return (offs.shape[0], a.shape[0], b.shape[1])
    return (a.shape[-2], b.shape[-1])


@custom_op("taper::grouped_mm", mutates_args=(), schema="(Tensor a, Tensor b, Tensor offs) -> Tensor")
def _groups(a, b, offs):
    out = a.new_zeros(_size(a, b, offs))  # what is in no group stays zero
    if a.dim() == 2 and b.dim() == 3:
        for g, (i, k) in enumerate(_ends(offs, a.shape[0], b.shape[0])):
            out[i:k] = a[i:k] @ b[g]
    elif a.dim() == 3:
        for g, (i, k) in enumerate(_ends(offs, b.shape[1], a.shape[0])):
            out[:, i:k] = a[g] @ b[:, i:k]
    else:
        for g, (i, k) in enumerate(_ends(offs, a.shape[1], offs.shape[0])):
            out[g] = a[:, i:k] @ b[i:k]
    return out


@_groups.register_fake
def _(a, b, offs):
    return a.new_empty(_size(a, b, offs))


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad):
    a, b, offs = ctx.saved_tensors
    return _groups(grad, b.transpose(-1, -2), offs), _groups(a.transpose(-1, -2), grad, offs), None


_groups.register_autograd(_backward, setup_context=_keep)


def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """mat_a @ mat_b by groups: of rows of a 2D mat_a, of columns of a 2D mat_b, or of the dimension that two 2D ones share. offs[i] is the
    end of group i; 3D operands have a matrix for each group."""
    if mat_a.dim() not in (2, 3) or mat_b.dim() not in (2, 3):
        raise RuntimeError("grouped_mm: mat_a and mat_b must be 2D or 3D")
    if mat_a.dtype is not mat_b.dtype:
        raise RuntimeError(f"grouped_mm: expected both operands to have the same type, but got {mat_a.dtype} and {mat_b.dtype}")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError(f"grouped_mm: contraction dimension of mat_a ({mat_a.shape[-1]}) and mat_b ({mat_b.shape[-2]}) must match")
    if (offs is None) != (mat_a.dim() == 3 and mat_b.dim() == 3):
        raise RuntimeError("grouped_mm: offs is needed where an operand is 2D, and only there")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if offs is None:
        if mat_a.shape[0] != mat_b.shape[0]:
            raise RuntimeError(f"grouped_mm: {mat_a.shape[0]} and {mat_b.shape[0]} groups")
        out = taper.bmm(mat_a, mat_b)
    else:
        if offs.dim() != 1 or offs.dtype not in (taper.int32, taper.int64):
            raise RuntimeError("grouped_mm: offs must be a 1D tensor of int32")
        out = _groups(mat_a, mat_b, offs)
    return out if out_dtype is None else out.to(out_dtype)
