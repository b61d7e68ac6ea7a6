"""Sparse tensors in coordinates (COO) and compressed rows or columns (CSR, CSC): a subclass of Tensor over index and value tensors.

A sparse tensor holds its indices and values as dense tensors, and its calls are calls on those: gradients flow through the values by the
ordinary tape. Below them is a tensor without bytes, which every kernel refuses, so a call that is not written here fails by name."""
import math
from builtins import any as _any, sum as _total  # functions here have these names

import taper as _t

from .. import _C
from .._never import never_captured

Tensor = _C.Tensor
_f = vars(_t)
_COMPRESSED = (_C.sparse_csr, _C.sparse_csc)


def _refuse(what):
    raise NotImplementedError(f"{what}: not supported for sparse tensors; to_dense() makes a dense one")


def _make(layout, parts, values, size, coalesced=False, leaf=False):
    t = _C._make_sparse(SparseTensor, tuple(int(n) for n in size), values.dtype, values.device)
    t.__dict__.update(_lay=layout, _parts=parts, _val=values, _one=coalesced or layout is not _C.sparse_coo or values.shape[0] < 2, _leaf=leaf)
    return t


def _coo(indices, values, size, coalesced=False):
    return _make(_C.sparse_coo, (indices,), values, size, coalesced)


def _like(s, values, coalesced=None):
    """Other values at the same indices."""
    return _make(s._lay, s._parts, values, s.shape, s._one if coalesced is None else coalesced)


def is_sparse(x):
    return isinstance(x, SparseTensor)


def _flat(indices, sizes):
    """One number for each element: its position among the sparse dimensions."""
    r = _f["zeros"]([indices.shape[1]], dtype=_C.int64, device=indices.device)
    for d, n in enumerate(sizes):
        r = r * n + indices[d]
    return r


def _unflat(keys, sizes):
    rows = []
    for n in reversed(sizes):
        rows.append(keys % n if n else keys)
        keys = _f["div"](keys, max(n, 1), rounding_mode="floor")
    return _f["stack"](rows[::-1]) if rows else keys.new_zeros((0, keys.shape[0]))


def _sums(values, at, n):
    """values summed where at, the row each belongs to, is the same: n rows."""
    if values.dtype is _C.bool:
        return _sums(values.to(_C.int64), at, n) != 0
    return _f["zeros"]([n, *values.shape[1:]], dtype=values.dtype, device=values.device).index_add(0, at, values)


def _pos(dim, rank):
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    return dim % max(rank, 1)


# --- making -------------------------------------------------------------------------------------------------------------
def _numbers(x, dtype=None, device=None):
    if isinstance(x, Tensor):
        return x if dtype is None and device is None else x.to(dtype=dtype or x.dtype, device=device or x.device)
    return _C.tensor(x, dtype=dtype, device=device)


def _started(t, requires_grad):
    return t.requires_grad_() if requires_grad else t


def _checked_index(rows, size):
    for d, (row, n) in enumerate(zip(rows, size)):
        if row.numel() and int(row.min()) < 0:
            raise RuntimeError(f"found negative index {int(row.min())} for dim {d}")
        if row.numel() and int(row.max()) >= n:
            raise RuntimeError(f"size is inconsistent with indices: for dim {d}, size is {n} but found index {int(row.max())}")


def sparse_coo_tensor(indices, values=None, size=None, *, dtype=None, device=None, pin_memory=False, requires_grad=False, check_invariants=None,
                      is_coalesced=None):
    """A sparse tensor from coordinates (sparse_dim, nnz) and values (nnz, ...); coordinates may repeat, their values are added.

    >>> taper.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [9., 0., 0.]])
    """
    if values is None:  # only a size
        size = tuple(indices if size is None else size)
        return _started(_coo(_f["zeros"]([len(size), 0], dtype=_C.int64, device=device), _f["zeros"]([0], dtype=dtype, device=device), size, True), requires_grad)
    values = _numbers(values, dtype, device)
    indices = _numbers(indices, _C.int64, device)
    if is_sparse(indices) or is_sparse(values):
        _refuse("sparse_coo_tensor(): indices or values that are sparse themselves")
    if indices.dim() == 1:
        indices = indices.unsqueeze(0)
    if values.dim() == 0:
        values = values.expand(1) if indices.shape[1] == 1 else values
    if indices.dim() != 2 or values.dim() == 0:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    if values.shape[0] != indices.shape[1]:
        raise RuntimeError(f"indices and values must have same nnz, but got nnz from indices: {indices.shape[1]}, nnz from values: {values.shape[0]}")
    if size is None:
        size = [int(row.max()) + 1 if row.numel() else 0 for row in indices] + list(values.shape[1:])
    size = tuple(int(n) for n in size)
    if len(size) != indices.shape[0] + values.dim() - 1:
        raise RuntimeError(f"number of dimensions must be sparse_dim ({indices.shape[0]}) + dense_dim ({values.dim() - 1}), but got {len(size)}")
    if tuple(values.shape[1:]) != size[indices.shape[0]:]:
        raise RuntimeError(f"values has incorrect size, expected {[values.shape[0], *size[indices.shape[0]:]]}, got {list(values.shape)}")
    _checked_index(indices, size)
    if requires_grad:
        values = values.detach()
    return _started(_coo(indices.detach(), values, size, bool(is_coalesced)), requires_grad)


_sparse_coo_tensor_unsafe = sparse_coo_tensor


def _compressed(layout, compressed, plain, values, size, dtype, device, requires_grad):
    values, compressed, plain = _numbers(values, dtype, device), _numbers(compressed, None, device), _numbers(plain, None, device)
    kind = str(layout).split(".")[-1]
    if compressed.dim() != 1 or values.dim() != 1:
        _refuse(f"{kind}_tensor(): batches and dense dimensions")
    row = layout is _C.sparse_csr
    if size is None:
        other = int(plain.max()) + 1 if plain.numel() else 0
        size = (compressed.numel() - 1, other) if row else (other, compressed.numel() - 1)
    size = tuple(int(n) for n in size)
    if len(size) != 2:
        _refuse(f"{kind}_tensor(): batches and dense dimensions")
    n, m = size if row else size[::-1]
    a, b = ("crow", "col") if row else ("ccol", "row")
    if compressed.numel() != n + 1:
        raise RuntimeError(f"{a}_indices.shape[-1] must be equal to the number of compressed dimensions + 1 ({n + 1}), but got {compressed.numel()}")
    if plain.numel() != values.shape[0] or int(compressed[0]) != 0 or int(compressed[-1]) != plain.numel():
        raise RuntimeError(f"`{a}_indices[..., 0] == 0` and `{a}_indices[..., -1] == nnz` are not satisfied, or {b}_indices and values differ in length.")
    if n and bool((compressed[1:] < compressed[:-1]).any()):
        raise RuntimeError(f"`{a}_indices` must not decrease.")
    if plain.numel() and not 0 <= int(plain.min()) <= int(plain.max()) < m:
        raise RuntimeError(f"`0 <= {b}_indices < {m}` is not satisfied.")
    if requires_grad:
        values = values.detach()
    return _started(_make(layout, (compressed.detach(), plain.detach()), values, size), requires_grad)


def sparse_csr_tensor(crow_indices, col_indices, values, size=None, *, dtype=None, device=None, pin_memory=False, requires_grad=False, check_invariants=None):
    """A sparse matrix from where each row begins, the columns and the values.

    >>> taper.sparse_csr_tensor([0, 1, 2], [2, 0], [3.0, 4.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    return _compressed(_C.sparse_csr, crow_indices, col_indices, values, size, dtype, device, requires_grad)


def sparse_csc_tensor(ccol_indices, row_indices, values, size=None, *, dtype=None, device=None, pin_memory=False, requires_grad=False, check_invariants=None):
    """A sparse matrix from where each column begins, the rows and the values.

    >>> taper.sparse_csc_tensor([0, 1, 1, 2], [1, 0], [4.0, 3.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    return _compressed(_C.sparse_csc, ccol_indices, row_indices, values, size, dtype, device, requires_grad)


def sparse_compressed_tensor(compressed_indices, plain_indices, values, size=None, *, dtype=None, layout=None, device=None, pin_memory=False,
                             requires_grad=False, check_invariants=None):
    """sparse_csr_tensor or sparse_csc_tensor, as the layout says.

    >>> taper.sparse_compressed_tensor([0, 1, 2], [0, 1], [3.0, 4.0], layout=taper.sparse_csr).to_dense()
    tensor([[3., 0.],
            [0., 4.]])
    """
    if layout not in _COMPRESSED:
        _refuse(f"sparse_compressed_tensor(): layout {layout}")
    return _compressed(layout, compressed_indices, plain_indices, values, size, dtype, device, requires_grad)


# --- conversions --------------------------------------------------------------------------------------------------------
def to_dense(s, dtype=None, *, masked_grad=None):
    """The same numbers as a dense tensor."""
    if not is_sparse(s):
        return s if dtype is None else s.to(dtype)
    if dtype is not None:
        raise RuntimeError("dtype argument is not supported by sparse_to_dense")
    s = _as_coo(s)
    ns = s.sparse_dim()
    return _sums(s._val, _flat(s._parts[0], s.shape[:ns]), math.prod(s.shape[:ns])).reshape(s.shape)


def _as_coo(s):
    if s._lay is _C.sparse_coo:
        return s
    c, p = (x.to(_C.int64) for x in s._parts)
    row = _f["repeat_interleave"](_f["arange"](c.numel() - 1, device=c.device), c[1:] - c[:-1])
    r = _coo(_f["stack"]([row, p] if s._lay is _C.sparse_csr else [p, row]), s._val, s.shape)
    r._one = _ordered(r)
    return r


def _as_compressed(s, layout, index=_C.int64):
    """A sparse matrix in the layout; elements of one row or column are sorted."""
    if s._lay is layout:
        return s
    s = coalesce(_as_coo(s))
    if len(s.shape) != 2 or s._val.dim() != 1:
        _refuse(f"{layout} of a tensor that is no plain matrix")
    outer, inner = (0, 1) if layout is _C.sparse_csr else (1, 0)
    i, v = s._parts[0], s._val
    order = _f["argsort"](i[outer] * max(s.shape[inner], 1) + i[inner])
    count = _sums(_f["ones_like"](i[outer]), i[outer], s.shape[outer])
    start = _f["cat"]([count.new_zeros(1), count.cumsum(0)])
    return _make(layout, (start.to(index), i[inner][order].to(index)), v[order], s.shape)


def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    """A sparse tensor of the elements that are not zero."""
    if sparse_dim is not None and not isinstance(sparse_dim, int):
        layout, sparse_dim = sparse_dim, None
    if blocksize is not None or dense_dim or layout in (_C.sparse_bsr, _C.sparse_bsc):
        _refuse("to_sparse(): blocks and dense dimensions")
    if is_sparse(self):
        return _as_coo(self) if layout in (None, _C.sparse_coo) else _as_compressed(self, layout)
    ns = self.dim() if sparse_dim is None else sparse_dim
    if not 0 <= ns <= self.dim() or (ns == 0 and self.dim()):
        raise RuntimeError(f"sparse_dim must be in range (0, {self.dim()}], but got {sparse_dim}")
    size, kept = self.shape, self.shape[ns:]
    rows = self.reshape(math.prod(size[:ns]), *kept)
    there = rows.detach() != 0
    keys = (there.reshape(rows.shape[0], -1).any(1) if kept else there).nonzero().reshape(-1)
    s = _coo(_unflat(keys, size[:ns]), rows.index_select(0, keys), size, True)
    return s if layout in (None, _C.sparse_coo) else _as_compressed(s, layout)


def to_sparse_csr(self, dense_dim=None):
    return to_sparse(self, layout=_C.sparse_csr, dense_dim=dense_dim)


def to_sparse_csc(self, dense_dim=None):
    return to_sparse(self, layout=_C.sparse_csc, dense_dim=dense_dim)


def to_sparse_coo(self):
    return to_sparse(self)


def coalesce(s):
    """Each coordinate once, in order."""
    if not is_sparse(s) or s._lay is not _C.sparse_coo:
        raise RuntimeError(f"coalesce expected sparse coordinate tensor layout but got {_name_of(s)}")
    if s._one:
        return s
    ns = s.sparse_dim()
    keys, at = _f["unique"](_flat(s._parts[0], s.shape[:ns]), return_inverse=True)
    return _coo(_unflat(keys, s.shape[:ns]), _sums(s._val, at, keys.numel()), s.shape, True)


def _name_of(s):
    return {"strided": "Strided", "sparse_coo": "Sparse", "sparse_csr": "SparseCsr", "sparse_csc": "SparseCsc"}[str(s.layout).split(".")[-1]]


def sparse_mask(self, mask):
    """The elements of self where mask has elements."""
    if not is_sparse(mask):
        raise RuntimeError("sparse_mask(): the mask must be sparse")
    if tuple(self.shape) != tuple(mask.shape):
        raise RuntimeError(f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size {list(mask.shape)}")
    m, dense = _as_coo(mask), to_dense(self)
    ns = m.sparse_dim()
    rows = dense.reshape(math.prod(dense.shape[:ns]), *dense.shape[ns:])
    return _make(mask._lay, mask._parts, rows.index_select(0, _flat(m._parts[0], m.shape[:ns])), mask.shape, mask._one)


# --- arithmetic ---------------------------------------------------------------------------------------------------------
def _back(s, layout):
    return s if layout is _C.sparse_coo else _as_compressed(s, layout)


def _same_shape(a, b, what):
    if tuple(a.shape) != tuple(b.shape):
        raise RuntimeError(f"{what}: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != {list(b.shape)}")


def _into_dense(d, s, alpha):
    """What index_add needs to add a sparse tensor to a dense one."""
    _same_shape(d, s, "add")
    s = _as_coo(s)
    ns = s.sparse_dim()
    shape = (math.prod(d.shape[:ns]), *d.shape[ns:])
    return shape, _flat(s._parts[0], s.shape[:ns]), s._val.to(d.dtype), alpha


def _ordered(s):
    """Is each coordinate there once, in order? Also where nobody has said so."""
    if not s._one:
        k = _flat(s._parts[0], s.shape[:s.sparse_dim()])
        return bool((k[1:] > k[:-1]).all())
    return True


def add(a, b, *, alpha=1):
    if not is_sparse(a):
        if not isinstance(a, Tensor):
            raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
        to = _C.result_type(a, b)
        shape, at, values, alpha = _into_dense(a.to(to), b, alpha)
        return a.to(to).reshape(shape).index_add(0, at, values, alpha=alpha).reshape(a.shape)
    if not is_sparse(b):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    _same_shape(a, b, "add")
    x, y = _as_coo(a), _as_coo(b)
    if x.sparse_dim() != y.sparse_dim():
        raise RuntimeError("add: expected 'self' and 'other' to have the same number of sparse dimensions")
    to, ordered = _C.result_type(a, b), _ordered(x) and _ordered(y)
    values = _f["cat"]([x._val.to(to), y._val.to(to) * alpha if alpha != 1 else y._val.to(to)])
    r = _coo(_f["cat"]([x._parts[0], y._parts[0]], 1), values, a.shape)
    if ordered:
        r = coalesce(r)
        r = _like(r, r._val, x._one and y._one)
    return _back(r, a._lay)


def sub(a, b, *, alpha=1):
    return add(a, b, alpha=-alpha)


def _in_place(name, op):
    def call(self, *args, **kwargs):
        if not is_sparse(self):
            _refuse(f"{name}() with a dense tensor on the left")
        if self.requires_grad:
            _refuse(f"{name}() of a tensor that requires a gradient")
        r = op(self, *args, **kwargs)
        if r.dtype is not self.dtype or tuple(r.shape) != tuple(self.shape):
            raise RuntimeError(f"{name}(): the result has another type or size than the tensor it is written to")
        if r._val.shape == self._val.shape and all(x is y for x, y in zip(r._parts, self._parts)):
            self._val.copy_(r._val)  # who looks at the values sees it
        else:
            self._val, self._parts = r._val, r._parts
        self._one = r._one
        return self
    return call


def add_(self, other, *, alpha=1):
    if is_sparse(self):
        return _add_sparse(self, other, alpha=alpha)
    shape, at, values, alpha = _into_dense(self, other, alpha)
    if self.is_contiguous():
        self.view(shape).index_add_(0, at, values, alpha=alpha)
        return self
    return self.copy_(add(self, other, alpha=alpha))


def sub_(self, other, *, alpha=1):
    return add_(self, other, alpha=-alpha)


def _is_number(x):
    return not isinstance(x, Tensor) or (not is_sparse(x) and x.dim() == 0)


def mul(a, b):
    if not is_sparse(a):
        a, b = b, a
    if _is_number(b):
        return _like(a, a._val * b)
    x = _as_coo(a)
    ns = x.sparse_dim()
    keys = _flat(x._parts[0], x.shape[:ns])
    if not is_sparse(b):
        d = b.expand(a.shape)
        rows = d.reshape(math.prod(d.shape[:ns]), *d.shape[ns:])
        return _make(a._lay, a._parts, a._val * rows.index_select(0, keys), a.shape, a._one)
    _same_shape(a, b, "mul")
    x, y = coalesce(x), coalesce(_as_coo(b))
    kx, ky = _flat(x._parts[0], x.shape[:ns]), _flat(y._parts[0], y.shape[:ns])
    if not ky.numel():
        at = kx.new_zeros(0)
        both = at
    else:
        found = _f["searchsorted"](ky, kx).clamp(max=ky.numel() - 1)
        both = (ky[found] == kx).nonzero().reshape(-1)
        at = found[both]
    return _back(_coo(x._parts[0].index_select(1, both), x._val.index_select(0, both) * y._val.index_select(0, at), a.shape, a._one and b._one), a._lay)


def div(a, b, *, rounding_mode=None):
    if not is_sparse(a):
        raise NotImplementedError("div(): a dense tensor over a sparse one is not supported")
    if not _is_number(b):
        raise RuntimeError(f"Sparse division requires a scalar or zero-dim dense tensor divisor (got shape {list(b.shape)} for divisor)")
    if rounding_mode is None:
        return _like(a, a._val / b)
    a = coalesce(a) if a._lay is _C.sparse_coo else a
    return _like(a, _f["div"](a._val, b, rounding_mode=rounding_mode))


def floor_divide(a, b):
    return div(a, b, rounding_mode="floor")


def neg(a):
    return _like(a, -a._val)


def pow(a, b):
    if not is_sparse(a) or isinstance(b, Tensor):
        _refuse("pow() with an exponent that is a tensor")
    if b <= 0:
        raise RuntimeError("pow(): an exponent that is not positive would give a dense result")
    a = coalesce(a) if a._lay is _C.sparse_coo else a
    return _like(a, a._val ** b)


def _unary(name):
    """Functions that keep zeros: applied to the values, each coordinate once."""
    def call(s, *args, **kwargs):
        s = coalesce(s) if s._lay is _C.sparse_coo else s
        return _like(s, _f[name](s._val, *args, **kwargs))
    return call


# --- products -----------------------------------------------------------------------------------------------------------
def _matrix(s, what):
    s = _as_coo(s)
    if len(s.shape) != 2 or s._val.dim() != 1:
        _refuse(f"{what}() of a tensor that is no plain matrix")
    return s


def _agree(a, b, what):
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{what}: expected both operands to have the same type, but got {a.dtype} and {b.dtype}")
    if a.shape[-1] != b.shape[0 if b.dim() == 1 else -2]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, a.shape))} and {'x'.join(map(str, b.shape))})")


def _times_dense(s, d):
    row, col = s._parts[0]
    return _sums(d.index_select(0, col) * s._val.unsqueeze(1), row, s.shape[0])


def _times_sparse(a, b):
    """For each element of a, the row of b that it meets."""
    b = coalesce(b)
    count = _sums(_f["ones_like"](b._parts[0][0]), b._parts[0][0], b.shape[0])
    first = count.cumsum(0) - count
    n = count[a._parts[0][1]]
    of_a = _f["repeat_interleave"](_f["arange"](n.numel(), device=n.device), n)
    of_b = _f["arange"](of_a.numel(), device=n.device) - (n.cumsum(0) - n)[of_a] + first[a._parts[0][1]][of_a]
    at = _f["stack"]([a._parts[0][0][of_a], b._parts[0][1][of_b]])
    r = coalesce(_coo(at, a._val[of_a] * b._val[of_b], (a.shape[0], b.shape[1])))
    return _coo(r._parts[0], r._val, r.shape, True)


def mm(a, b):
    """Matrix product of which one operand is sparse, or both: then the result is."""
    _agree(a, b, "mm")
    if len(b.shape) != 2 or len(a.shape) != 2:
        raise RuntimeError("mm: both operands must be matrices")
    if is_sparse(a) and is_sparse(b):
        return _back(_times_sparse(_matrix(a, "mm"), _matrix(b, "mm")), a._lay)
    if is_sparse(a):
        return _times_dense(_matrix(a, "mm"), b)
    return _times_dense(_matrix(transpose(_as_coo(b), 0, 1), "mm"), a.t()).t()


def _reduced(a, b, reduce):
    """mm() whose products are not added: their mean, largest or smallest in each row, 0 in an empty one."""
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce not in ("sum", "mean", "amax", "amin"):
        raise ValueError(f"mm: reduce is one of sum, mean, amax and amin, not {reduce!r}")
    if not is_sparse(a) or is_sparse(b) or len(b.shape) != 2:
        _refuse("mm() with reduce= of anything but a sparse and a dense matrix")
    s = _matrix(a, "mm")
    row, col = s._parts[0]
    if reduce in ("sum", "mean"):
        many = _sums(_f["ones_like"](s._val), row, s.shape[0]).detach().clamp(min=1).unsqueeze(1)
        return _times_dense(s, b) / many if reduce == "mean" else _times_dense(s, b)
    each = b.index_select(0, col) * s._val.unsqueeze(1)
    return each.new_zeros((s.shape[0], b.shape[1])).scatter_reduce(0, row.unsqueeze(1).expand(each.shape), each, reduce, include_self=False)


def _mm(mat1, mat2, reduce="sum"):
    """Matrix product of a sparse matrix with a dense or sparse one; reduce: what becomes of the products of a row."""
    _agree(mat1, mat2, "mm")
    return mm(mat1, mat2) if reduce == "sum" else _reduced(mat1, mat2, reduce)


def coo_to_csr(input, size, *, out_int32=False):
    """Where each of size rows begins, of sorted row numbers."""
    count = _sums(_f["ones_like"](input, dtype=_C.int64), input, size)
    return _f["cat"]([count.new_zeros(1), count.cumsum(0)]).to(_C.int32 if out_int32 else _C.int64)


def csr_to_coo(crow_indices, col_indices, *, out_int32=False, transpose=False):
    """Row and column numbers, (2, nnz)."""
    c = crow_indices.to(_C.int64)
    row = _f["repeat_interleave"](_f["arange"](c.numel() - 1, device=c.device), c[1:] - c[:-1])
    both = [row, col_indices.to(_C.int64)]
    return _f["stack"](both[::-1] if transpose else both).to(_C.int32 if out_int32 else _C.int64)


def mv(a, b):
    _agree(a, b, "mv")
    if not is_sparse(a):
        _refuse("mv() with a sparse vector")
    return _times_dense(_matrix(a, "mv"), to_dense(b).unsqueeze(1)).squeeze(1)


def matmul(a, b):
    if len(a.shape) == 2 and len(b.shape) == 1:
        return mv(a, b)
    if len(a.shape) == 3 and len(b.shape) == 3:
        return bmm(a, b)
    if len(a.shape) == 2 and len(b.shape) == 2:
        return mm(a, b)
    return _refuse(f"matmul() of {len(a.shape)} and {len(b.shape)} dimensions")


def bmm(a, b):
    if not is_sparse(a) or is_sparse(b):
        _refuse("bmm() of anything but a sparse and a dense tensor")
    _agree(a, b, "bmm")
    s = _as_coo(a)
    if s.sparse_dim() != 3 or s._val.dim() != 1 or a.shape[0] != b.shape[0]:
        _refuse("bmm() of a tensor that is no batch of plain matrices")
    (n, rows, cols), (batch, row, col) = s.shape, s._parts[0]
    wide = _coo(_f["stack"]([batch * rows + row, batch * cols + col]), s._val, (n * rows, n * cols))
    return _times_dense(wide, b.reshape(n * cols, -1)).reshape(n, rows, -1)


def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta * input + alpha * mat1 @ mat2, of which mat1 is sparse."""
    p = mm(mat1, mat2)
    return add(input * beta, p * alpha) if is_sparse(p) or is_sparse(input) else beta * input + alpha * p


def linear(input, weight, bias=None):
    r = matmul(input, transpose(weight, 0, 1) if is_sparse(weight) else weight.t())
    return r if bias is None else r + bias


def sampled_addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0, out=None):
    """beta * input + alpha * (mat1 @ mat2) where the sparse input has elements."""
    if out is not None:
        _refuse("sampled_addmm() with out=")
    row, col = _matrix(input, "sampled_addmm")._parts[0]
    dots = (mat1.index_select(0, row) * mat2.t().index_select(0, col)).sum(1)
    return _like(input, beta * input._val + alpha * dots)


def hspmm(mat1, mat2):
    """A sparse times a dense matrix as a sparse tensor of dense rows.

    >>> taper.hspmm(taper.eye(2).to_sparse(), taper.ones(2, 2)).to_dense()
    tensor([[1., 1.],
            [1., 1.]])
    """
    p = mm(mat1, mat2)
    rows = _f["unique"](_matrix(mat1, "hspmm")._parts[0][0])
    return _coo(rows.unsqueeze(0), p.index_select(0, rows), p.shape)


# --- reductions ---------------------------------------------------------------------------------------------------------
def sum(input, dim=None, dtype=None):
    """The sum of the values, or a sparse tensor without the dimensions dim (a dense one when no sparse dimension is left)."""
    if dtype is not None:
        input = _like(input, input._val.to(dtype))
    if dim is None:
        return input._val.sum()
    s, rank = _as_coo(input), len(input.shape)
    dims = sorted({_pos(d, rank) for d in ((dim,) if isinstance(dim, int) else dim)})
    if not dims:
        return input
    ns = s.sparse_dim()
    inner = [d - ns + 1 for d in dims if d >= ns]
    values = s._val.sum(inner) if inner else s._val
    left = [d for d in range(ns) if d not in dims]
    if not left:
        return values.sum(0)
    size = [n for d, n in enumerate(s.shape) if d not in dims]
    return coalesce(_coo(s._parts[0][left], values, size))


def _sum(input, dim=None, keepdim=False, *, dtype=None):
    if keepdim:
        _refuse("sum() with keepdim=True")
    return sum(input, dim, dtype)


def _soft(name):
    def call(input, dim, *, dtype=None):
        s = coalesce(_as_coo(input))
        ns, dim = s.sparse_dim(), _pos(dim, len(input.shape))
        v = s._val if dtype is None else s._val.to(dtype)
        if dim >= ns:
            return _like(s, _f[name](v, dim - ns + 1))
        left = [d for d in range(ns) if d != dim]
        keys, at = _f["unique"](_flat(s._parts[0][left], [s.shape[d] for d in left]), return_inverse=True)
        index = at.reshape(-1, *[1] * (v.dim() - 1)).expand(v.shape)
        most = v.new_full((keys.numel(), *v.shape[1:]), -math.inf).scatter_reduce(0, index, v.detach(), "amax").index_select(0, at)
        e = (v - most).exp()
        total = _sums(e, at, keys.numel()).index_select(0, at)
        return _back(_like(s, e / total if name == "softmax" else v - most - total.log()), input._lay)
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{name} over the elements that are there; others count as minus infinity."
    return call


softmax, log_softmax = _soft("softmax"), _soft("log_softmax")


def norm(input, p=2, dim=None, keepdim=False, dtype=None):
    if dim is not None or keepdim:
        _refuse("norm() over some dimensions")
    s = coalesce(input) if input._lay is _C.sparse_coo else input
    return s._val.norm(p, dtype=dtype) if dtype is not None else s._val.norm(2 if p == "fro" else p)


def any(input):
    return input._val.any()


# --- shapes -------------------------------------------------------------------------------------------------------------
def transpose(s, dim0, dim1):
    rank = len(s.shape)
    a, b = _pos(dim0, rank), _pos(dim1, rank)
    if s._lay in _COMPRESSED:
        if a == b:
            return _like(s, s._val)
        return _make(_COMPRESSED[s._lay is _C.sparse_csr], s._parts, s._val, s.shape[::-1])
    order = list(range(rank))
    order[a], order[b] = b, a
    return permute(s, order)


def t(s):
    if len(s.shape) > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {s.sparse_dim()} sparse, {s.dense_dim()} dense dimensions")
    return transpose(s, 0, 1) if len(s.shape) == 2 else s


def permute(s, *dims):
    rank, ns = len(s.shape), s.sparse_dim()
    dims = [_pos(d, rank) for d in (dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)]
    if sorted(dims) != list(range(rank)):
        raise RuntimeError("permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of dimensions")
    if s._lay in _COMPRESSED:
        return transpose(s, 0, 1) if dims == [1, 0] else _like(s, s._val)
    if dims == list(range(rank)):
        return _like(s, s._val)
    if sorted(dims[:ns]) != list(range(ns)):
        raise RuntimeError("transpose: cannot transpose sparse and dense dimensions")
    values = s._val.permute(0, *[d - ns + 1 for d in dims[ns:]]) if s._val.dim() > 1 else s._val
    return _coo(s._parts[0][dims[:ns]], values, [s.shape[d] for d in dims], dims[:ns] == list(range(ns)) and s._one)


def select(s, dim, index):
    s, rank = _as_coo(s), len(s.shape)
    dim, ns = _pos(dim, rank), s.sparse_dim()
    n = s.shape[dim]
    if not -n <= index < n:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(s.shape)} at dimension {dim}")
    index %= n
    size = [m for d, m in enumerate(s.shape) if d != dim]
    if dim >= ns:
        return _coo(s._parts[0], s._val.select(dim - ns + 1, index), size, s._one)
    at = (s._parts[0][dim] == index).nonzero().reshape(-1)
    values = s._val.index_select(0, at)
    if ns == 1:
        return values.sum(0)
    return _coo(s._parts[0].index_select(1, at)[[d for d in range(ns) if d != dim]], values, size)


def index_select(s, dim, index):
    if is_sparse(index) or not is_sparse(s):
        _refuse("index_select() with a sparse index")
    s = _as_coo(s)
    dim, ns = _pos(dim, len(s.shape)), s.sparse_dim()
    n, size = s.shape[dim], list(s.shape)
    size[dim] = index.numel()
    if dim >= ns:
        return _coo(s._parts[0], s._val.index_select(dim - ns + 1, index), size, s._one)
    if index.numel() and not -n <= int(index.min()) <= int(index.max()) < n:
        raise IndexError(f"index_select(): index out of range for a dimension of size {n}")
    index = index.to(_C.int64) % max(n, 1)
    at = s._parts[0][dim]
    order = _f["argsort"](at, stable=True)
    count = _sums(_f["ones_like"](at), at, n)
    first, many = (count.cumsum(0) - count)[index], count[index]
    new = _f["repeat_interleave"](_f["arange"](index.numel(), device=index.device), many)
    old = order[_f["arange"](new.numel(), device=index.device) - (many.cumsum(0) - many)[new] + first[new]]
    rows = [new if d == dim else s._parts[0][d][old] for d in range(ns)]
    return _coo(_f["stack"](rows), s._val.index_select(0, old), size)


def narrow_copy(s, dim, start, length):
    return index_select(s, dim, _f["arange"](start, start + length, device=s.device))


def cat(tensors, dim=0):
    if not all(is_sparse(x) for x in tensors):
        _refuse("cat() of sparse and dense tensors")
    parts = [_as_coo(x) for x in tensors]
    rank, ns = len(parts[0].shape), parts[0].sparse_dim()
    dim = _pos(dim, rank)
    if _any(x.sparse_dim() != ns or [n for d, n in enumerate(x.shape) if d != dim] != [n for d, n in enumerate(parts[0].shape) if d != dim] for x in parts):
        raise RuntimeError("All tensors must have the same shape, except in the concatenating dimension, and the same number of sparse dimensions")
    size = list(parts[0].shape)
    size[dim] = _total(x.shape[dim] for x in parts)
    if dim >= ns:
        _refuse("cat() along a dense dimension")
    shift, indices = 0, []
    for x in parts:
        i = x._parts[0].clone()
        i[dim] += shift
        shift += x.shape[dim]
        indices.append(i)
    return _back(_coo(_f["cat"](indices, 1), _f["cat"]([x._val for x in parts]), size), tensors[0]._lay)


def unsqueeze(s, dim):
    s = _as_coo(s)
    ns, dim = s.sparse_dim(), _pos(dim, len(s.shape) + 1)
    size = list(s.shape)
    size.insert(dim, 1)
    if dim > ns:
        return _coo(s._parts[0], s._val.unsqueeze(dim - ns + 1), size, s._one)
    i = s._parts[0]
    return _coo(_f["cat"]([i[:dim], i.new_zeros((1, i.shape[1])), i[dim:]]), s._val, size, s._one)


def stack(tensors, dim=0):
    return cat([unsqueeze(x, dim) for x in tensors], dim)


# --- copies -------------------------------------------------------------------------------------------------------------
def clone(s, *, memory_format=None):
    return _make(s._lay, tuple(p.clone() for p in s._parts), s._val.clone(), s.shape, s._one)


def detach(s):
    return _like(s, s._val.detach())


def to(s, *args, **kwargs):
    copy = kwargs.pop("copy", False)
    values = s._val.to(*args, **{k: v for k, v in kwargs.items() if k != "other"}) if "other" not in kwargs else s._val.to(kwargs["other"]._val)
    if values is s._val:
        return clone(s) if copy else s
    return _make(s._lay, tuple(p.to(values.device) for p in s._parts), values, s.shape, s._one)


def _cast(dtype):
    return lambda s, memory_format=None: to(s, dtype)


def zeros_like(s, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, memory_format=None):
    if s._lay is not _C.sparse_coo:
        i = s._parts
        r = _make(s._lay, (i[0] * 0, i[1][:0]), s._val.detach()[:0].to(dtype=dtype or s.dtype), s.shape)
    else:
        r = _coo(s._parts[0][:, :0], s._val.detach()[:0].to(dtype=dtype or s.dtype), s.shape, True)
    return _started(r, requires_grad)


def copy_(self, src, non_blocking=False):
    if not is_sparse(self):
        raise RuntimeError("copy_() between dense and sparse Tensors is not implemented! Found self type = dense and src type = sparse")
    if not is_sparse(src):
        raise RuntimeError("copy_() between dense and sparse Tensors is not implemented! Found self type = sparse and src type = dense")
    return _copy_sparse(self, src)


def _converted(self, src):
    _same_shape(self, src, "copy_")
    s = _as_coo(src) if self._lay is _C.sparse_coo else _as_compressed(src, self._lay)
    return _make(self._lay, tuple(p.clone() for p in s._parts), s._val.detach().to(self.dtype).clone(), self.shape, s._one)


_copy_sparse, _add_sparse = _in_place("copy_", _converted), _in_place("add_", add)


def _zero(self):
    return zeros_like(self)


# --- printing, pickling -------------------------------------------------------------------------------------------------
def _text(name, x, indent):
    head = f"{name}=tensor("
    text = _C._tensor_text(x.detach(), indent + len(head))
    return head + text + (f", size={tuple(x.shape)}" if x.numel() == 0 else "") + ")"


def _repr(self):
    indent = len("tensor(")
    prefix = "torch" if _C.Tensor.__module__.startswith("torch") else "taper"
    dtype = str(self.dtype).split(".")[-1]
    suffixes = [f"size={tuple(self.shape)}", f"nnz={self._nnz()}"]
    if self.device.type != "cpu":
        suffixes.insert(0, f"device='{self.device}'")
    if self.dtype not in (_C.get_default_dtype(), _C.int64, _C.bool):
        suffixes.append(f"dtype={prefix}.{dtype}")
    suffixes.append(f"layout={prefix}.{str(self._lay).split('.')[-1]}")
    if self.grad_fn is not None:
        suffixes.append(f"grad_fn=<{type(self.grad_fn).__name__}>")
    elif self.requires_grad:
        suffixes.append("requires_grad=True")
    names = ("indices",) if self._lay is _C.sparse_coo else ("crow_indices", "col_indices") if self._lay is _C.sparse_csr else ("ccol_indices", "row_indices")
    lines = [_text(n, p, indent) for n, p in zip(names, self._parts)] + [_text("values", self._val, indent)]
    text = "tensor(" + (",\n" + " " * indent).join(lines)
    last = len(text) - text.rfind("\n") + 1
    for i, s in enumerate(suffixes):  # a line of its own where it would be too long
        if (i == 0 and self.is_sparse) or last + len(s) + 2 > _C._printoptions()[3]:
            text += ",\n" + " " * indent + s
            last = indent + len(s)
        else:
            text += ", " + s
            last += len(s) + 2
    return text + ")"


def _rebuild(layout, data):
    """What pickles call: (indices, values, size, is_coalesced) or (compressed, plain, values, size)."""
    if layout is _C.sparse_coo:
        return sparse_coo_tensor(*data[:3], is_coalesced=len(data) == 4 and data[3])
    if layout in _COMPRESSED:
        return sparse_compressed_tensor(*data, layout=layout)
    return _refuse(f"a tensor of layout {layout} in a file")


def _state(s):
    """The arguments of _rebuild."""
    if s._lay is _C.sparse_coo:
        return s._lay, (s._parts[0], s._val.detach(), tuple(s.shape), s._one)
    return s._lay, (*s._parts, s._val.detach(), tuple(s.shape))


# --- the class ----------------------------------------------------------------------------------------------------------
class SparseTensor(Tensor):
    """A sparse tensor. Calls that are not listed here are refused by name."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", str(func))
        f = _CALLS.get(name) or _CALLS.get(name.strip("_")) if name.startswith("__") else _CALLS.get(name)
        if f is not None:
            return f(*args, **(kwargs or {}))
        if name in _PLAIN:
            return _C._disabled_torch_function_impl(func, types, args, kwargs)
        return _refuse(f"{name}()")

    layout = property(lambda s: s._lay)
    is_sparse = property(lambda s: s._lay is _C.sparse_coo)
    is_sparse_csr = property(lambda s: s._lay is _C.sparse_csr)
    is_leaf = property(lambda s: s._leaf or not s._val.requires_grad)
    grad_fn = property(lambda s: None if s._leaf else s._val.grad_fn or (s._val.view_as(s._val).grad_fn if s._val.requires_grad else None))
    T = mT = H = mH = property(lambda s: t(s))
    data = property(detach)

    @property
    def requires_grad(self):
        return self._val.requires_grad

    @requires_grad.setter
    def requires_grad(self, on):
        self.requires_grad_(on)

    def requires_grad_(self, requires_grad=True):
        if requires_grad and not self._val.requires_grad:
            self._val, self._leaf = self._val.detach().requires_grad_(), True
        elif not requires_grad and self._val.requires_grad:
            if not self._leaf:
                raise RuntimeError("you can only change requires_grad flags of leaf variables.")
            self._val, self._leaf = self._val.detach(), False
        return self

    @property
    def grad(self):
        """Of a leaf: a sparse tensor with the same coordinates, each once."""
        g = self._val.grad if self._leaf else None
        if g is None:
            return None
        s = _like(self, g)
        if s._one:
            return s
        one = coalesce(s)  # values at one coordinate have one gradient
        return _like(one, one._val / coalesce(_like(self, _f["ones_like"](g)))._val)

    @grad.setter
    def grad(self, g):
        if g is None:
            self._val.grad = None
        else:
            _refuse("assigning .grad of a sparse tensor")

    def sparse_dim(self):
        return self._parts[0].shape[0] if self._lay is _C.sparse_coo else 2

    def dense_dim(self):
        return self._val.dim() - 1

    def _nnz(self):
        return self._val.shape[0]

    def is_coalesced(self):
        _expect(self, "is_coalesced", self._lay is _C.sparse_coo, "sparse coordinate tensor")
        return self._one

    def _coalesced_(self, on):
        self._one = bool(on)
        return self

    def indices(self):
        _expect(self, "indices", self._lay is _C.sparse_coo, "sparse coordinate tensor")
        if not self._one:
            raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
        return self._parts[0]

    def values(self):
        if not self._one:
            raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
        return self._val.view_as(self._val)

    def _indices(self):
        _expect(self, "_indices", self._lay is _C.sparse_coo, "sparse coordinate tensor")
        return self._parts[0]

    def _values(self):
        return self._val.detach()

    def crow_indices(self):
        _expect(self, "crow_indices", self._lay is _C.sparse_csr, "sparse row compressed tensor")
        return self._parts[0]

    def col_indices(self):
        _expect(self, "col_indices", self._lay is _C.sparse_csr, "sparse row compressed tensor")
        return self._parts[1]

    def ccol_indices(self):
        _expect(self, "ccol_indices", self._lay is _C.sparse_csc, "sparse column compressed tensor")
        return self._parts[0]

    def row_indices(self):
        _expect(self, "row_indices", self._lay is _C.sparse_csc, "sparse column compressed tensor")
        return self._parts[1]

    def __getitem__(self, index):
        r = self
        for i in index if isinstance(index, tuple) else (index,):
            if isinstance(i, Tensor) and i.dim() == 0 and not i.dtype.is_floating_point and i.dtype is not _C.bool:
                i = int(i)
            if not isinstance(i, int) or isinstance(i, bool):
                _refuse("indexing with anything but integers")
            r = select(r, 0, i) if is_sparse(r) else r[i]
        return r

    def __setitem__(self, index, value):
        _refuse("assigning to elements")

    def __len__(self):
        return self.shape[0]

    def __iter__(self):
        return iter([self[i] for i in range(self.shape[0])])

    def __bool__(self):
        if self.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(to_dense(self))

    def item(self):
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return to_dense(self).item()

    def type(self, dtype=None, non_blocking=False, **kwargs):
        if dtype is None:
            return "torch.sparse." + self._val.type().split(".")[-1]
        return to(self, dtype) if isinstance(dtype, _C.dtype) else _refuse("type() with a name")

    def stride(self, dim=None):
        if self._lay is not _C.sparse_coo:
            raise RuntimeError("Sparse CSR tensors do not have strides")
        return (0,) * len(self.shape) if dim is None else 0

    def is_contiguous(self, memory_format=None):
        return False

    def untyped_storage(self):
        raise NotImplementedError("Cannot access storage of SparseTensorImpl")

    storage = untyped_storage

    def data_ptr(self):
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def tolist(self):
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def numpy(self, *, force=False):
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def __array__(self, dtype=None, copy=None):
        return self.numpy()

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
        _refuse("backward() from a sparse tensor")

    def register_hook(self, hook):
        _refuse("register_hook()")

    def retain_grad(self):
        if not self._leaf:
            _refuse("retain_grad()")

    def pin_memory(self, device=None):
        return self

    def cpu(self, memory_format=None):
        return to(self, "cpu")

    def is_pinned(self, device=None):
        return False

    def new(self, *args, device=None):
        """An empty sparse tensor of the same type, or sparse_coo_tensor(indices, values, size)."""
        return sparse_coo_tensor(*args, dtype=self.dtype) if args else sparse_coo_tensor((0,), dtype=self.dtype)

    def __repr__(self, *, tensor_contents=None):
        return _repr(self)

    __str__ = __repr__

    def __format__(self, spec):
        return _repr(self) if not spec else super().__format__(spec)

    def __reduce_ex__(self, protocol):
        return _rebuild, _state(self)

    def __copy__(self):
        return _like(self, self._val)

    def __deepcopy__(self, memo):
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.")
        if id(self) not in memo:
            memo[id(self)] = _started(clone(detach(self)), self.requires_grad)
        return memo[id(self)]

    __hash__ = Tensor.__hash__
    __add__ = add
    __sub__ = sub
    __mul__ = __rmul__ = mul
    __truediv__ = div
    __floordiv__ = floor_divide
    __matmul__ = matmul
    __neg__ = neg
    __pow__ = pow

    def __radd__(self, other):
        return add(other, self)

    def __rsub__(self, other):
        return add(other, neg(self))

    def __rmatmul__(self, other):
        return matmul(other, self)

    def __abs__(self):
        return _CALLS["abs"](self)


def _expect(s, name, ok, what):
    if not ok:
        raise RuntimeError(f"{name} expected {what} layout but got {_name_of(s)}")


_UNARY = ("abs sqrt sin sinh asin arcsin asinh arcsinh atan arctan atanh arctanh tan tanh expm1 log1p relu ceil floor round trunc sign sgn signbit erf erfinv "
          "deg2rad rad2deg isnan isinf isposinf isneginf frac nan_to_num").split()
_CALLS = {f.__name__: f for f in (add, sub, mul, div, neg, pow, floor_divide, mm, mv, matmul, bmm, addmm, linear, softmax, log_softmax, norm, any, transpose, t,
                                  permute, select, index_select, narrow_copy, cat, unsqueeze, stack, clone, detach, to, zeros_like, coalesce, sparse_mask,
                                  to_dense, to_sparse, to_sparse_csr, to_sparse_csc, to_sparse_coo, add_, sub_, copy_, hspmm)}
_CALLS.update({n: _unary(n) for n in _UNARY if n in _f})
_CALLS.update(sum=_sum, negative=neg, subtract=sub, multiply=mul, divide=div, true_divide=div, truediv=div, floordiv=floor_divide, concat=cat, concatenate=cat,
              absolute=_CALLS["abs"], swapaxes=transpose, empty_like=zeros_like, radd=lambda a, b: add(b, a), rsub=lambda a, b: sub(b, a),
              rmul=mul, rmatmul=lambda a, b: matmul(b, a), iadd=add_, isub=sub_, square=lambda s: pow(s, 2), positive=lambda s: s,
              is_same_size=lambda a, b: tuple(a.shape) == tuple(b.shape), get_device=lambda s: s._val.get_device(),
              _sparse_sum=sum, spmm=mm, dsmm=mm, adjoint=t)
_CALLS.update({n: _cast(getattr(_C, d)) for n, d in (("float", "float32"), ("double", "float64"), ("half", "float16"), ("bfloat16", "bfloat16"), ("int", "int32"),
                                                     ("long", "int64"), ("short", "int16"), ("char", "int8"), ("byte", "uint8"), ("bool", "bool"))})
for _n, _op in dict(mul_=mul, div_=div, neg_=neg, zero_=_zero, abs_=_CALLS["abs"], sqrt_=_CALLS["sqrt"], pow_=pow, imul=mul, itruediv=div,
                    floor_divide_=floor_divide).items():
    _CALLS[_n] = _in_place(_n, _op)
_PLAIN = {"size", "dim", "ndimension", "numel", "nelement", "is_floating_point", "is_complex", "is_signed", "element_size", "is_inference"}
for _n in (*_CALLS,):  # methods: those that Tensor has as well, and those that only sparse tensors have
    if _n not in SparseTensor.__dict__ and _n not in ("radd", "rsub", "rmul", "rmatmul", "iadd", "isub", "imul", "itruediv", "truediv", "floordiv", "cat", "stack", "concat"):
        setattr(SparseTensor, _n, _CALLS[_n])
SparseTensor.__iadd__, SparseTensor.__isub__, SparseTensor.__imul__, SparseTensor.__itruediv__ = add_, sub_, _CALLS["mul_"], _CALLS["div_"]
_REASON = "a call on sparse tensors: these run outside of graphs"
_wrapped = {}


def _outside(f):
    """f, never captured."""
    if f not in _wrapped:
        _wrapped[f] = never_captured(f, reason=_REASON)
    return _wrapped[f]


for _n, _v in list(vars(SparseTensor).items()):
    if isinstance(_v, property):
        setattr(SparseTensor, _n, property(_outside(_v.fget), _v.fset and _outside(_v.fset), doc=_v.__doc__))
    elif isinstance(_v, classmethod):
        setattr(SparseTensor, _n, classmethod(_outside(_v.__func__)))
    elif callable(_v) and hasattr(_v, "__code__"):
        setattr(SparseTensor, _n, _outside(_v))
_C._sparse_sums(lambda a, b: add(b, a) if is_sparse(a) and not is_sparse(b) else add(a, b))


# --- embeddings ---------------------------------------------------------------------------------------------------------
def look_up(weight, index, padding_idx):
    """embedding() whose gradient is sparse: a row for each index that was looked up."""
    from ..autograd import Function
    global look_up

    class LookUp(Function):
        @staticmethod
        def forward(ctx, weight, index, padding_idx):
            ctx.index, ctx.padding_idx, ctx.size = index, padding_idx, weight.shape
            return _f["embedding"](weight, index, padding_idx)

        @staticmethod
        def backward(ctx, grad):
            at, rows = ctx.index.reshape(-1).to(_C.int64), grad.reshape(-1, ctx.size[1])
            if ctx.padding_idx >= 0:
                keep = (at != ctx.padding_idx).nonzero().reshape(-1)
                at, rows = at.index_select(0, keep), rows.index_select(0, keep)
            return _coo(at.unsqueeze(0), rows, ctx.size), None, None

    LookUp.__name__ = LookUp.__qualname__ = "EmbeddingBackward0"
    look_up = LookUp.apply
    return look_up(weight, index, padding_idx)
