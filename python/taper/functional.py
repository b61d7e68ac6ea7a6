"""Functions with a Python signature of their own: einsum strings, optional results, norms by name."""
import functools as _functools
import math as _math
from . import _C
from ._C import Tensor
from ._overridable import overridable_functions as _overridable_functions

_ops = _C._op_functions[""]
_row = _C._aten

__all__ = ["einsum", "tensordot", "norm", "unique", "unique_consecutive", "nonzero", "broadcast_shapes",
           "cartesian_prod", "combinations", "cdist", "positive", "chain_matmul", "diff", "trapezoid", "trapz",
           "cumulative_trapezoid", "cov", "corrcoef", "unravel_index", "logdet", "renorm", "mvlgamma",
           "atleast_1d", "atleast_2d", "atleast_3d", "gradient", "sum_to_size", "unsafe_chunk", "unsafe_split",
           "histogram", "histogramdd", "nonzero_static", "svd_lowrank", "pca_lowrank", "lu", "vander", "stft", "istft",
           "hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"]


def _T():
    import taper
    return taper


def einsum(equation, *operands):
    """Sums of products by index letters: einsum('bij,bjk->bik', a, b); also einsum(a, [0, 1], b, [1, 2], [0, 2]).

    >>> taper.einsum("ij,jk->ik", taper.ones(2, 3), taper.ones(3, 2))
    tensor([[3., 3.],
            [3., 3.]])
    """
    if isinstance(equation, Tensor):  # the form with lists of numbers
        args = (equation,) + operands
        letter = lambda i: "..." if i is Ellipsis else chr(ord("A") + i) if i < 26 else chr(ord("a") + i - 26)
        pairs = [(args[i], args[i + 1]) for i in range(0, len(args) - 1, 2)]
        equation = ",".join("".join(map(letter, s)) for _, s in pairs)
        if len(args) % 2:
            equation += "->" + "".join(map(letter, args[-1]))
        operands = [t for t, _ in pairs]
    elif len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    return _C._call("einsum", equation, list(operands))


def _need(fn, name, value):
    if not isinstance(value, Tensor):
        raise TypeError(f"{fn}(): argument '{name}' (position 1) must be Tensor, not {type(value).__name__}")


def _into(out, r):
    """The result r of an operator, written to out where that is given."""
    if out is None:
        return r
    if out.dtype is not r.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {r.dtype}, but got {out.dtype} instead")
    if out.shape != r.shape:
        out.resize_(r.shape)
    return out.copy_(r)


def tensordot(a, b, dims=2, out=None):
    """Contracts the last dims of a with the first of b, or the listed dimensions.

    >>> taper.tensordot(taper.ones(2, 3), taper.ones(3, 2), dims=1)
    tensor([[3., 3.],
            [3., 3.]])
    """
    _need("tensordot", "a", a)
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        dims = (list(range(-dims, 0)), list(range(dims)))
    da, db = dims
    r = _C._call("tensordot", a, b, [da] if isinstance(da, int) else list(da), [db] if isinstance(db, int) else list(db))
    return _into(out, r)


def norm(input, p="fro", dim=None, keepdim=False, out=None, dtype=None):
    """The vector norm of order p over dim; 'fro' and 'nuc' are matrix norms over two dimensions.

    >>> taper.norm(taper.tensor([3.0, 4.0]))
    tensor(5.)
    """
    if dtype is not None:
        input = input.to(dtype)
    if p == "nuc":
        dim = dim if dim is not None else tuple(range(input.dim()))
        if not isinstance(dim, (tuple, list)) or len(dim) != 2:
            raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
        x = input.movedim(tuple(dim), (-2, -1))
        r = _T().linalg.svdvals(x).sum(-1)
        if keepdim:
            for d in sorted(d % input.dim() for d in dim):
                r = r.unsqueeze(d)
    else:
        if isinstance(p, str):
            if p != "fro":
                raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")
            p = 2
        d = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
        r = _ops["norm"](input, p, d, keepdim)
    return _into(out, r)


def _results(r, *wanted):
    out = tuple(x for x, w in zip(r, (True,) + wanted) if w)
    return out[0] if len(out) == 1 else out


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The different elements; on request where each element went and how often each occurs.

    >>> taper.unique(taper.tensor([3, 1, 3]))
    tensor([1, 3])
    """
    if dim is None:
        r = _C._call("_unique2", input, sorted, return_inverse, return_counts)
    else:
        r = _C._call("unique_dim", input, dim, sorted, return_inverse, return_counts)
    return _results(r, return_inverse, return_counts)


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """Drops repetitions of neighbours.

    >>> taper.unique_consecutive(taper.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    return _results(_C._call("unique_consecutive", input, return_inverse, return_counts, dim), return_inverse, return_counts)


def nonzero(input, *, out=None, as_tuple=False):
    """Indices of the elements that are not zero, as rows or as one tensor a dimension.

    >>> taper.nonzero(taper.tensor([0, 3, 4]))
    tensor([[1],
            [2]])
    """
    r = _ops["nonzero"](input)
    if as_tuple:
        return (r if input.dim() else _ops["nonzero"](input.reshape(1))).unbind(1)
    return _into(out, r)


def broadcast_shapes(*shapes):
    """The shape that tensors of these shapes broadcast to.

    >>> taper.broadcast_shapes((2, 1), (1, 3))
    taper.Size([2, 3])
    """
    sizes = []
    for s in shapes:
        s = [s] if isinstance(s, int) else list(s)
        if any(n < 0 for n in s):
            raise RuntimeError(f"Trying to create tensor with negative dimension ({min(s)}): ({min(s)})")
        n = max(len(sizes), len(s))
        a, b = [1] * (n - len(sizes)) + sizes, [1] * (n - len(s)) + s
        for i, (x, y) in enumerate(zip(a, b)):
            if x != y and x != 1 and y != 1:
                raise RuntimeError(f"Shape mismatch: objects cannot be broadcast to a single shape: {tuple(shapes)}")
            a[i] = y if x == 1 else x
        sizes = a
    return _C.Size(sizes)


def cartesian_prod(*tensors):
    """All combinations of elements, one of each vector.

    >>> taper.cartesian_prod(taper.tensor([1, 2]), taper.tensor([3, 4]))
    tensor([[1, 3],
            [1, 4],
            [2, 3],
            [2, 4]])
    """
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    for t in tensors:
        if t.dim() != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    T = _T()
    return T.stack([g.flatten() for g in T.meshgrid(*tensors, indexing="ij")], 1)


def combinations(input, r=2, with_replacement=False):
    """All combinations of r elements of a vector, as rows.

    >>> taper.combinations(taper.tensor([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    _need("combinations", "input", input)
    import itertools
    T = _T()
    if input.dim() != 1:
        raise RuntimeError("Expect a 1D vector, but got shape " + str(list(input.shape)))
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return T.empty(0, dtype=input.dtype)
    f = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(f(range(input.numel()), r))
    return input[T.tensor(rows, dtype=T.int64).reshape(-1, r)]


def positive(input):
    """The tensor itself.

    >>> taper.positive(taper.tensor([-1.0, 0.5]))
    tensor([-1.0000,  0.5000])
    """
    _need("positive", "input", input)
    return input.positive()


def cdist(x1, x2, p=2.0, compute_mode=None):
    """Distances between all pairs of rows.

    >>> taper.cdist(taper.tensor([[0.0, 0.0]]), taper.tensor([[3.0, 4.0]]))
    tensor([[5.]])
    """
    _need("cdist", "x1", x1)
    for i, x in enumerate((x1, x2), 1):
        if x.dim() < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, X{i} got: {x.dim()}D")
        if not x.is_floating_point():
            raise RuntimeError(f"cdist only supports floating-point dtypes, X{i} got: {x.type().split('.')[-1][:-6]}")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    d = (x1.unsqueeze(-2) - x2.unsqueeze(-3)).abs()
    if p == 0:
        return _ops["norm"](d, 0, [-1])
    if p == 1:
        return d.sum(-1)
    if p == _math.inf:
        return d.amax(-1) if d.shape[-1] else d.sum(-1)
    return _ops["norm"](d, p, [-1])


def chain_matmul(*matrices, out=None):
    """The product of matrices, in the order that needs the fewest operations.

    >>> taper.chain_matmul(taper.ones(2, 3), taper.ones(3, 4), taper.ones(4, 1)).shape
    taper.Size([2, 1])
    """
    r = _C._call("chain_matmul", list(matrices))
    return _into(out, r)


def diff(input, n=1, dim=-1, prepend=None, append=None, *, out=None):
    """Differences of neighbours along dim, n times.

    >>> taper.diff(taper.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    _need("diff", "input", input)
    T = _T()
    if input.dim() == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    parts = [t for t in (prepend, input, append) if t is not None]
    for t in (prepend, append):
        if t is not None and t.dim() != input.dim():
            raise RuntimeError("diff expects prepend or append to be the same dimension as input")
    r = T.cat(parts, dim) if len(parts) > 1 and n else input
    for _ in range(min(n, r.shape[dim])):
        a, b = r.narrow(dim, 1, r.shape[dim] - 1), r.narrow(dim, 0, r.shape[dim] - 1)
        r = a ^ b if r.dtype is T.bool else a - b
    return (r.clone() if r is input else r) if out is None else _into(out, r)


def _slices(y, x, dx, dim):
    n = y.shape[dim]
    both = y.narrow(dim, 0, max(n - 1, 0)) + y.narrow(dim, min(1, n), max(n - 1, 0))
    if x is None:
        return both * (dx / 2)
    w = x.narrow(-1, 1, x.shape[-1] - 1) - x.narrow(-1, 0, x.shape[-1] - 1) if x.dim() == 1 else diff(x, dim=dim)
    if x.dim() == 1:
        w = w.reshape([-1 if i == dim % y.dim() else 1 for i in range(y.dim())])
    return both * w / 2


def trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integral by trapezoids.

    >>> taper.trapezoid(taper.tensor([1.0, 2.0, 3.0]))
    tensor(4.)
    """
    _need("trapezoid", "y", y)
    return _slices(y, x, dx, dim).sum(dim)


trapz = trapezoid


def cumulative_trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integral up to each element, by the trapezoidal rule.

    >>> taper.cumulative_trapezoid(taper.tensor([1.0, 2.0, 3.0]))
    tensor([1.5000, 4.0000])
    """
    _need("cumulative_trapezoid", "y", y)
    return _slices(y, x, dx, dim).cumsum(dim)


def cov(input, *, correction=1, fweights=None, aweights=None):
    """The covariance matrix of variables in rows.

    >>> taper.cov(taper.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    _need("cov", "input", input)
    T = _T()
    if input.dim() > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {input.dim()} dimensions")
    x = input if input.dim() == 2 else input.reshape(1, -1)
    for what, w, integral in (("fweights", fweights, True), ("aweights", aweights, False)):
        if w is None:
            continue
        if w.dim() > 1:
            raise RuntimeError(f"cov(): expected {what} to have one or fewer dimensions but got {what} with {w.dim()} dimensions")
        if w.dtype.is_floating_point == integral or w.dtype is T.bool:
            raise RuntimeError(f"cov(): expected {what} to have {'integral' if integral else 'floating point'} dtype but got {what} "
                               f"with {w.dtype} dtype")
        if w.numel() != x.shape[1]:
            raise RuntimeError(f"cov(): expected {what} to have the same numel as there are observations in the input but got "
                               f"{w.numel()} != {x.shape[1]}")
        if w.numel() and bool((w < 0).any()):
            raise RuntimeError(f"cov(): {what} cannot be negative")
    x = x if x.dtype.is_floating_point or x.dtype.is_complex else x.to(T.get_default_dtype())
    w = fweights
    if aweights is not None:
        w = aweights if w is None else aweights * w
    if w is None:
        norm_ = x.shape[1] - correction
        c = x - x.mean(1, keepdim=True)
        r = c @ c.mH
    else:
        total = w.sum()
        c = x - (x * w).sum(1, keepdim=True) / total
        norm_ = total - correction * ((w * aweights).sum() / total if aweights is not None else 1)
        r = (c * w) @ c.mH
        return (r / norm_.clamp(min=0)).squeeze()
    return (r / max(norm_, 0) if norm_ > 0 else r / 0.0).squeeze()


def corrcoef(input):
    """The correlations of the rows.

    >>> taper.corrcoef(taper.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    _need("corrcoef", "input", input)
    c = cov(input)
    if c.dim() == 0:
        return c / c
    d = c.diagonal().sqrt()
    return (c / d.unsqueeze(-1) / d.unsqueeze(0)).clamp(-1, 1)


def unravel_index(indices, shape):
    """Flat indices as one index tensor a dimension.

    >>> taper.unravel_index(taper.tensor(5), (2, 3))
    (tensor(1), tensor(2))
    """
    _need("unravel_index", "indices", indices)
    shape = [shape] if isinstance(shape, int) else list(shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(shape)}")
    T = _T()
    if indices.dtype.is_floating_point or indices.dtype is T.bool:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if not shape:
        return ()
    step, steps = 1, []
    for n in reversed(shape):
        steps.append(step)
        step *= n
    steps = T.tensor(steps[::-1], dtype=T.int64)
    return (indices.unsqueeze(-1).div(steps, rounding_mode="floor") % T.tensor(shape, dtype=T.int64)).unbind(-1)


def logdet(input):
    """The logarithm of the determinant; nan where it is negative.

    >>> taper.logdet(taper.eye(2))
    tensor(0.)
    """
    sign, value = _T().linalg.slogdet(input)
    return _ops["where"](sign < 0, sign.new_full((), _math.nan), value)


def _with_out(f):
    """The function with out=, and its in-place twin, which writes its first argument."""
    @_functools.wraps(f)
    def g(input, *args, out=None, **kwargs):
        r = f(input, *args, **kwargs)
        if out is None:
            return r
        if not _T().can_cast(r.dtype, out.dtype):
            raise RuntimeError(f"result type {r.dtype} can't be cast to the desired output type {out.dtype}")
        return out.resize_(r.shape).copy_(r)

    def twin(self, *args, **kwargs):
        r = f(self, *args, **kwargs)
        if not _T().can_cast(r.dtype, self.dtype):
            raise RuntimeError(f"result type {r.dtype} can't be cast to the desired output type {self.dtype}")
        return self.copy_(r)
    twin.__name__ = f.__name__ + "_"
    _C._tensor_set(twin.__name__, twin)
    return g


@_with_out
def renorm(input, p, dim, maxnorm):
    """Scales the slices along dim down to a p-norm of at most maxnorm.

    >>> taper.renorm(taper.tensor([[3.0, 4.0]]), 2, 0, 1.0)
    tensor([[0.6000, 0.8000]])
    """
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    if input.dim() < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.dim()} dimensions")
    dims = [d for d in range(input.dim()) if d != dim % input.dim()]
    n = _ops["norm"](input, p, dims, True)
    return input * _ops["where"](n > maxnorm, maxnorm / (n + 1e-7), _T().ones_like(n))


@_with_out
def mvlgamma(input, p):
    """The logarithm of the gamma function of p dimensions.

    >>> taper.mvlgamma(taper.tensor([2.0, 3.0]), 2)
    tensor([0.4516, 1.5502])
    """
    _need("mvlgamma", "input", input)
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    x = input if input.dtype.is_floating_point or input.dtype.is_complex else input.to(_T().get_default_dtype())
    r = p * (p - 1) / 4 * _math.log(_math.pi)
    for j in range(p):
        r = r + (x - j / 2).lgamma()
    return r


def _atleast(n):
    def f(*tensors):
        seq = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
        out = []
        for t in seq:
            if n == 1:
                t = t.reshape(1) if t.dim() == 0 else t
            elif n == 2:
                t = t.reshape(1, 1) if t.dim() == 0 else t.unsqueeze(0) if t.dim() == 1 else t
            else:
                t = (t.reshape(1, 1, 1) if t.dim() == 0 else t.unsqueeze(0).unsqueeze(-1) if t.dim() == 1
                     else t.unsqueeze(-1) if t.dim() == 2 else t)
            out.append(t)
        return out[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else tuple(out)

    f.__name__ = f.__qualname__ = f"atleast_{n}d"
    f.__doc__ = f"Views with at least {n} dimension{'s' if n > 1 else ''}."
    return f


atleast_1d, atleast_2d, atleast_3d = _ops.get("atleast_1d") or _atleast(1), _ops.get("atleast_2d") or _atleast(2), \
    _ops.get("atleast_3d") or _atleast(3)


def gradient(input, *, spacing=None, dim=None, edge_order=1):
    """Central differences inside, one-sided (of the first or second order) at the edges.

    >>> taper.gradient(taper.tensor([1.0, 4.0, 9.0]))
    [tensor([3., 4., 5.])]
    """
    _need("gradient", "input", input)
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    spacing = 1 if spacing is None else spacing
    dims = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    seen = set()
    for d in dims:
        if d % max(input.dim(), 1) in seen:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        seen.add(d % max(input.dim(), 1))
    steps = spacing if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if len(steps) != len(dims):
        raise RuntimeError("torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments to have "
                           f"the same length, but got a spacing argument of length {len(steps)} and a dim argument of length {len(dims)}.")
    T, out = _T(), []
    x = input if input.dtype.is_floating_point or input.dtype.is_complex else input.to(T.get_default_dtype())
    for d, h in zip(dims, steps):
        n = x.shape[d]
        if n < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
        at = lambda k: x.narrow(d, k % n, 1)
        if isinstance(h, Tensor) and h.dim() == 1:
            g = h.reshape([-1 if i == d % x.dim() else 1 for i in range(x.dim())]).to(x.dtype)
            lo, hi = g.narrow(d, 1, n - 2) - g.narrow(d, 0, n - 2), g.narrow(d, 2, n - 2) - g.narrow(d, 1, n - 2)
            a, b, c = -hi / (lo * (lo + hi)), (hi - lo) / (lo * hi), lo / (hi * (lo + hi))
            mid = a * x.narrow(d, 0, n - 2) + b * x.narrow(d, 1, n - 2) + c * x.narrow(d, 2, n - 2)
            gap = lambda k: g.narrow(d, (k + 1) % n, 1) - g.narrow(d, k % n, 1)
        else:
            mid = (x.narrow(d, 2, n - 2) - x.narrow(d, 0, n - 2)) / (2 * h)
            gap = lambda k: h
        if edge_order == 1:
            first, last = (at(1) - at(0)) / gap(0), (at(-1) - at(-2)) / gap(-2)
        else:
            p, q, r, s = gap(0), gap(1), gap(-3), gap(-2)
            first = -(2 * p + q) / (p * (p + q)) * at(0) + (p + q) / (p * q) * at(1) - p / (q * (p + q)) * at(2)
            last = s / (r * (r + s)) * at(-3) - (s + r) / (r * s) * at(-2) + (2 * s + r) / (s * (r + s)) * at(-1)
        out.append(T.cat([first, mid, last], d))
    return out


def sum_to_size(input, *size):
    """Sums broadcast dimensions away.

    >>> taper.sum_to_size(taper.ones(3, 2), 1, 2)
    tensor([[3., 3.]])
    """
    size = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    lead = input.dim() - len(size)
    dims = list(range(lead)) + [i + lead for i, n in enumerate(size) if n == 1 and input.shape[i + lead] != 1]
    if lead < 0 or any(n != 1 and n != input.shape[i + lead] for i, n in enumerate(size)):
        raise RuntimeError(f"size {{{list(size)}}} is not expandable to size {{{list(input.shape)}}}.")
    if not size:
        return input.sum()
    r = input.sum(dims, keepdim=True) if dims else input
    return r.reshape(size) if lead else r


def unsafe_chunk(input, chunks, dim=0):
    """chunk, for those who do not write to the parts.

    >>> taper.unsafe_chunk(taper.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    return _ops["chunk"](input, chunks, dim)


def unsafe_split(tensor, split_size, dim=0):
    """split, for those who do not write to the parts.

    >>> taper.unsafe_split(taper.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    return _ops["split"](tensor, split_size, dim)


# --- histograms ---
def _edges(x, bins, range_, who):
    """Edges of the bins for the values x, as torch.histogram chooses them."""
    T = _T()
    if isinstance(bins, Tensor):
        return bins
    if bins <= 0:
        raise RuntimeError(f"{who}: bins must be > 0, but got {bins}")
    lo, hi = range_ if range_ is not None else (x.min().item(), x.max().item()) if x.numel() else (0.0, 1.0)
    if not (_math.isfinite(lo) and _math.isfinite(hi)):
        raise RuntimeError(f"{who}: dimension 0's range [{lo}, {hi}] is not finite")
    if lo > hi:
        raise RuntimeError(f"{who}: min should not exceed max, but got min {lo} max {hi}")
    if lo == hi:
        lo, hi = lo - 0.5, hi + 0.5
    return T.linspace(lo, hi, bins + 1, dtype=x.dtype)


def histogramdd(input, bins, *, range=None, weight=None, density=False):
    """Counts of points (the last dimension) in a grid of bins, and the edges of the bins.

    >>> taper.histogramdd(taper.tensor([[0.0, 1.0], [1.0, 0.0]]), bins=[2, 2]).hist
    Traceback (most recent call last):
        ...
    AttributeError: 'tuple' object has no attribute 'hist'
    """
    _need("histogramdd", "input", input)
    T, who = _T(), "torch.histogramdd"
    if input.dim() < 2:
        raise RuntimeError(f"{who}: input tensor should have at least 2 dimensions")
    n = input.shape[-1]
    pts = input.reshape(-1, n)
    bins = [bins] * n if isinstance(bins, int) else list(bins)
    if len(bins) != n:
        raise RuntimeError(f"{who}: expected {n} sequences of bin edges for a {n}-dimensional histogram but got {len(bins)}")
    ranges = [None] * n if range is None else list(zip(range[::2], range[1::2]))
    edges = [_edges(pts[:, i], b, r, who) for i, (b, r) in enumerate(zip(bins, ranges))]
    sizes = [e.numel() - 1 for e in edges]
    flat, keep = T.zeros(pts.shape[0], dtype=T.int64), T.ones(pts.shape[0], dtype=T.bool)
    for i, e in enumerate(edges):
        x = pts[:, i].contiguous()
        at = T.searchsorted(e, x, right=True) - 1
        at = T.where(x == e[-1], sizes[i] - 1, at)
        keep = keep & (x >= e[0]) & (x <= e[-1])
        flat = flat * sizes[i] + at
    w = T.ones(pts.shape[0], dtype=input.dtype) if weight is None else weight.reshape(-1)
    hist = T.zeros(_math.prod(sizes), dtype=input.dtype).index_add(0, flat[keep], w[keep]).reshape(sizes)
    if density:
        hist = hist / hist.sum()
        for i, e in enumerate(edges):
            hist = hist / diff(e).reshape([-1 if k == i else 1 for k, _ in enumerate(edges)])
    return hist, edges


def histogram(input, bins, *, range=None, weight=None, density=False, out=None):
    """Counts of values in bins, and the edges of the bins.

    >>> taper.histogram(taper.tensor([1.0, 2.0, 1.0]), bins=2)
    (tensor([2., 1.]), tensor([1.0000, 1.5000, 2.0000]))
    """
    _need("histogram", "input", input)
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f"histogram_cpu not implemented for '{input.dtype}'")
    if isinstance(bins, Tensor) and bins.dim() != 1:
        raise RuntimeError("torch.histogram: bins tensor should have one dimension")
    w = None if weight is None else weight.reshape(-1)
    hist, edges = histogramdd(input.reshape(-1, 1), [bins], range=range, weight=w, density=density)
    return hist, edges[0]


# --- small ones ---
def nonzero_static(input, *, size, fill_value=-1):
    """nonzero with a number of rows that is given: cut, or filled up.

    >>> taper.nonzero_static(taper.tensor([0, 3, 0, 5]), size=3)
    tensor([[ 1],
            [ 3],
            [-1]])
    """
    T = _T()
    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be an non-negative integer, but got {size}")
    r = _ops["nonzero"](input)[:size]
    if r.shape[0] == size:
        return r.clone(memory_format=T.contiguous_format)
    return T.cat([r.contiguous(), T.full((size - r.shape[0], r.shape[1]), fill_value, dtype=r.dtype)])


def svd_lowrank(A, q=6, niter=2, M=None):
    """The q largest singular values with their vectors, from the whole decomposition.

    >>> taper.svd_lowrank(taper.eye(4), q=2)[1].shape
    taper.Size([2])
    """
    U, S, Vh = _T().linalg.svd(A if M is None else A - M, full_matrices=False)
    return U[..., :q].contiguous(), S[..., :q].contiguous(), Vh.mT[..., :q].contiguous()


def pca_lowrank(A, q=None, center=True, niter=2):
    """Principal components: svd_lowrank of the rows without their mean.

    >>> taper.pca_lowrank(taper.eye(4), q=2)[1].shape
    taper.Size([2])
    """
    _need("pca_lowrank", "A", A)
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)


def lu(A, pivot=True, get_infos=False, out=None):
    """The LU factorisation in one matrix, its pivots, and on request which ones failed.

    >>> LU, pivots = taper.lu(taper.tensor([[2.0, 0.0], [1.0, 4.0]]))
    >>> LU
    tensor([[2.0000, 0.0000],
            [0.5000, 4.0000]])
    """
    r = _T().linalg.lu_factor_ex(A, pivot=pivot)
    return tuple(r) if get_infos else (r[0], r[1])


def vander(x, N=None, increasing=False):
    """Powers of a vector as columns, highest first unless increasing.

    >>> taper.vander(taper.tensor([1, 2, 3]), 3)
    tensor([[1, 1, 1],
            [4, 2, 1],
            [9, 3, 1]])
    """
    _need("vander", "x", x)
    T = _T()
    if x.dim() != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    N = x.shape[0] if N is None else N
    if N < 0:
        raise RuntimeError("N must be non-negative.")
    dt = x.dtype if x.dtype.is_floating_point else T.int64
    r = T.empty(x.shape[0], N, dtype=dt)
    if N:
        r = T.cat([T.ones(x.shape[0], 1, dtype=dt), x.to(dt).unsqueeze(1).expand(-1, N - 1).cumprod(1)], 1)
    return r if increasing else r.flip(1)


def _old_window(name):
    def f(window_length, periodic=True, *args, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, **kw):
        w, T = _T().signal.windows, _T()
        if not isinstance(window_length, int) or len(args) > {"hamming": 2, "kaiser": 1}.get(name, 0):
            raise TypeError(f"{name}_window() received an invalid combination of arguments")
        if window_length < 0:
            raise RuntimeError(f"{name}_window requires non-negative window_length, got window_length={window_length}")
        sym = not periodic
        if name == "hamming":
            alpha, beta = [*args, *list(kw.values()), 0.54, 0.46][:2] if not kw else (kw.get("alpha", 0.54), kw.get("beta", 0.46))
            r = w.general_cosine(window_length, a=[alpha, beta], sym=sym, dtype=dtype)
        elif name == "kaiser":
            r = w.kaiser(window_length, beta=args[0] if args else kw.get("beta", 12.0), sym=sym, dtype=dtype)
        else:
            r = getattr(w, name)(window_length, sym=sym, dtype=dtype)
        return r.requires_grad_() if requires_grad else r

    f.__name__ = f.__qualname__ = name + "_window"
    f.__doc__ = f"""The {name} window; periodic windows are for spectral analysis.

    >>> taper.{name}_window(8).shape
    taper.Size([8])
    """
    return f


hann_window, hamming_window, blackman_window, bartlett_window, kaiser_window = map(
    _old_window, ("hann", "hamming", "blackman", "bartlett", "kaiser"))


def stft(input, n_fft, hop_length=None, win_length=None, window=None, center=True, pad_mode="reflect", normalized=False, onesided=None,
         return_complex=None, align_to_window=None):
    """Transforms of overlapping pieces of a signal: (batch, frequencies, pieces).

    >>> taper.stft(taper.ones(8), n_fft=4, window=taper.ones(4), return_complex=True).shape
    taper.Size([3, 9])
    """
    T = _T()
    hop, win = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    if return_complex is None:
        return_complex = input.is_complex() or (window is not None and window.is_complex())
        if not return_complex:
            raise RuntimeError("stft requires the return_complex parameter be given for real inputs, and will further require that "
                               "return_complex=True in a future PyTorch release.")
    if input.dim() not in (1, 2):
        raise RuntimeError(f"stft(): expected a 1D or 2D tensor, but got {input.dim()}D tensor")
    x = input if input.dim() == 2 else input.unsqueeze(0)
    if center:
        x = T.nn.functional.pad(x.unsqueeze(1), [n_fft // 2, n_fft // 2], mode=pad_mode).squeeze(1)
    n = x.size(1)
    if n_fft <= 0 or n_fft > n:
        raise RuntimeError(f"stft: expected 0 < n_fft <= {n}, but got n_fft={n_fft}")
    if hop <= 0:
        raise RuntimeError(f"stft: expected hop_length > 0, but got hop_length={hop}")
    if win <= 0 or win > n_fft:
        raise RuntimeError(f"stft: expected 0 < win_length <= n_fft, but got win_length={win}")
    if window is not None and (window.dim() != 1 or window.size(0) != win):
        raise RuntimeError(f"stft: expected a 1D window tensor of size equal to win_length={win}, but got window with size {list(window.shape)}")
    w = _padded_window(window, win, n_fft, x)
    x = x.unfold(1, n_fft, hop)
    if w is not None:
        x = x * w
    is_complex = x.is_complex()
    if onesided and is_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    onesided = not is_complex if onesided is None else onesided
    norm = "ortho" if normalized else None
    y = (T.fft.rfft(x, dim=-1, norm=norm) if onesided else T.fft.fft(x, dim=-1, norm=norm)).transpose(1, 2)
    if input.dim() == 1:
        y = y.squeeze(0)
    return y if return_complex else T.view_as_real(y)


def _padded_window(window, win, n_fft, x):
    """The window in the middle of n_fft places; None stands for ones."""
    T = _T()
    if window is None and win == n_fft:
        return None
    w = T.ones(win, dtype=x.dtype.to_real(), device=x.device) if window is None else window
    left = (n_fft - win) // 2
    return T.constant_pad_nd(w, [left, n_fft - win - left]) if win < n_fft else w


def istft(input, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None, length=None,
          return_complex=False):
    """The signal of which stft makes this: pieces are added where they overlap and divided by the squared windows there.

    >>> x, w = taper.arange(8.0), taper.hann_window(4)
    >>> taper.istft(taper.stft(x, 4, window=w, return_complex=True), 4, window=w).shape
    taper.Size([8])
    """
    T = _T()
    hop, win = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    if not input.is_complex():
        raise RuntimeError("istft requires a complex-valued input tensor matching the output from stft with return_complex=True.")
    if input.dim() not in (2, 3):
        raise RuntimeError(f"istft: expected a tensor with 2 or 3 dimensions, but got {input.dim()}")
    if not 0 < hop <= win:
        raise RuntimeError("istft: expected 0 < hop_length <= win_length")
    if not 0 < win <= n_fft:
        raise RuntimeError("istft: expected 0 < win_length <= n_fft")
    x = input if input.dim() == 3 else input.unsqueeze(0)
    onesided = x.size(1) != n_fft if onesided is None else onesided
    if x.size(1) != (n_fft // 2 + 1 if onesided else n_fft):
        raise RuntimeError(f"istft: expected the frequency dimension (3rd to the last) of the input tensor to match n_fft / 2 + 1 when "
                           f"onesided=True, but got {x.size(1)}")
    if window is not None and (window.dim() != 1 or window.size(0) != win):
        raise RuntimeError("istft: window overlap add min: a 1D window of win_length elements is expected")
    if return_complex and onesided:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    norm = "ortho" if normalized else None
    x = x.transpose(1, 2)
    if return_complex:
        y = T.fft.ifft(x, dim=-1, norm=norm)
    elif onesided:
        y = T.fft.irfft(x, n=n_fft, dim=-1, norm=norm)
    else:
        y = T.fft.irfft(x.narrow(-1, 0, n_fft // 2 + 1), n=n_fft, dim=-1, norm=norm)
    w = _padded_window(window, win, n_fft, y)
    w = T.ones(n_fft, dtype=y.dtype, device=y.device) if w is None else w
    frames = y.size(1)
    full = n_fft + hop * (frames - 1)
    at = (T.arange(frames, device=y.device).unsqueeze(1) * hop + T.arange(n_fft, device=y.device)).reshape(-1)
    y = T.zeros(y.size(0), full, dtype=y.dtype, device=y.device).index_add(1, at, (y * w).reshape(y.size(0), -1))
    envelope = T.zeros(full, dtype=w.dtype, device=y.device).index_add(0, at, (w * w).expand(frames, n_fft).reshape(-1))
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else full - n_fft // 2 if center else full
    y, envelope = y[:, start:min(end, full)], envelope[start:min(end, full)]
    if not T.compiler.is_compiling() and bool((envelope.abs().min() < 1e-11).item()):
        raise RuntimeError("istft(...) window overlap add min: 1")
    y = y / envelope
    if end > full:
        y = T.constant_pad_nd(y, [0, end - full])
    return y if input.dim() == 3 else y.squeeze(0)


# of each an example of a call, and what it prints
_COPIED = {
    "alias": ("(x).shape", "taper.Size([2, 2])"),
    "as_strided": ("(x, (2,), (1,)).shape", "taper.Size([2])"),
    "detach": ("(x).shape", "taper.Size([2, 2])"),
    "diagonal": ("(x).shape", "taper.Size([2])"),
    "expand": ("(x, (3, 2, 2)).shape", "taper.Size([3, 2, 2])"),
    "narrow": ("(x, 0, 1, 1).shape", "taper.Size([1, 2])"),
    "permute": ("(x, (1, 0)).shape", "taper.Size([2, 2])"),
    "select": ("(x, 0, 1).shape", "taper.Size([2])"),
    "slice": ("(x, 0, 1).shape", "taper.Size([1, 2])"),
    "split": ("(x, 1)[1]", "tensor([[2., 3.]])"),
    "split_with_sizes": ("(x, [1, 1])[1]", "tensor([[2., 3.]])"),
    "squeeze": ("(x).shape", "taper.Size([2, 2])"),
    "t": ("(x).shape", "taper.Size([2, 2])"),
    "transpose": ("(x, 0, 1).shape", "taper.Size([2, 2])"),
    "unbind": ("(x)[1]", "tensor([2., 3.])"),
    "unfold": ("(x, 1, 2, 1).shape", "taper.Size([2, 1, 2])"),
    "unsqueeze": ("(x, 0).shape", "taper.Size([1, 2, 2])"),
    "view": ("(x, (4,)).shape", "taper.Size([4])"),
}


def _copying(view):
    def f(*args, **kwargs):
        out = kwargs.pop("out", None)
        r = view(*args, **kwargs)
        if isinstance(r, Tensor):
            return r.clone(memory_format=_C.contiguous_format) if out is None else _into(out, r)
        if out is not None and len(out) != len(r):
            raise RuntimeError(f"out= holds {len(out)} tensors, but there are {len(r)} results")
        made = tuple(t.clone(memory_format=_C.contiguous_format) for t in r)
        return made if out is None else [_into(o, t) for o, t in zip(out, made)] and None

    return f


for _n in ("alias", "as_strided", "diagonal", "expand", "narrow", "permute", "split", "split_with_sizes", "squeeze", "t", "transpose",
           "unbind", "unfold", "unsqueeze", "view", "select", "slice", "detach"):
    _v = _ops.get(_n) or getattr(Tensor, _n, None)
    if _n == "alias":
        _v = lambda x: _C._call("alias", x)
    elif _n == "slice":
        _v = lambda x, dim=0, start=None, end=None, step=1: _C._call("slice.Tensor", x, dim, start, end, step)
    _f = _copying(_v)
    _f.__name__ = _f.__qualname__ = _n + "_copy"
    _f.__doc__ = f"{_n} with a result of its own memory.\n\n>>> x = taper.arange(4.0).view(2, 2)\n>>> taper.{_n}_copy{_COPIED[_n][0]}\n{_COPIED[_n][1]}\n"
    globals()[_n + "_copy"] = _f
    __all__.append(_n + "_copy")


def _method(f):
    def m(self, *args, **kwargs):
        return f(self, *args, **kwargs)

    m.__name__, m.__doc__ = f.__name__, f.__doc__
    m.__qualname__ = "Tensor." + f.__name__
    return m


for _f in (norm, unique, unique_consecutive, nonzero, diff, cov, corrcoef, logdet, renorm, mvlgamma, sum_to_size,
           unsafe_chunk, unsafe_split, histogram, nonzero_static, lu, stft, istft):
    _C._tensor_set(_f.__name__, _method(_f))


# --- small questions and names that stand beside methods or nn.functional -------------------------------------------
def is_conj(input):
    """Is it a conjugate that is not computed yet? Here they always are.

    >>> taper.is_conj(taper.ones(1))
    False
    """
    return input.is_conj()


def is_neg(input):
    """Is it a negation that is not computed yet? Here they always are.

    >>> taper.is_neg(taper.ones(1))
    False
    """
    return input.is_neg()


def is_signed(input):
    """Has its type negative numbers?

    >>> taper.is_signed(taper.ones(1)), taper.is_signed(taper.ones(1, dtype=taper.uint8))
    (True, False)
    """
    return input.is_signed()


def is_inference(input):
    """Was it made in inference mode?

    >>> taper.is_inference(taper.ones(1))
    False
    """
    return input.is_inference()


def is_same_size(input, other):
    """Have both the same shape?

    >>> taper.is_same_size(taper.ones(2), taper.zeros(2))
    True
    """
    return input.shape == other.shape


def get_device(input):
    """The number of its device; -1 on the CPU.

    >>> taper.get_device(taper.ones(1))
    -1
    """
    return input.get_device()


def _reduced(values, reduction):
    """0: as they are, 1: their mean, 2: their sum."""
    return values if reduction == 0 else values.mean() if reduction == 1 else values.sum()


def hinge_embedding_loss(input, target, margin=1.0, reduction=1):
    """nn.functional.hinge_embedding_loss with the number of a reduction.

    >>> taper.hinge_embedding_loss(taper.tensor([0.5]), taper.tensor([-1]))
    tensor(0.5000)
    """
    zero = _T().zeros_like(input)
    return _reduced(_ops["where"](target == 1, input, zero) + _ops["where"](target == -1, (margin - input).clamp(min=0), zero), reduction)


def margin_ranking_loss(input1, input2, target, margin=0.0, reduction=1):
    """nn.functional.margin_ranking_loss with the number of a reduction.

    >>> taper.margin_ranking_loss(taper.tensor([1.0]), taper.tensor([3.0]), taper.tensor([1]))
    tensor(2.)
    """
    return _reduced((-target * (input1 - input2) + margin).clamp(min=0), reduction)


def kl_div(input, target, reduction=1, *, log_target=False):
    """nn.functional.kl_div with the number of a reduction.

    >>> taper.kl_div(taper.tensor([0.0]), taper.tensor([1.0]))
    tensor(0.)
    """
    return _reduced(target.exp() * (target - input) if log_target else _ops["xlogy"](target, target) - target * input, reduction)


def frobenius_norm(input, dim, keepdim=False):
    """The root of the sum of squares over these dimensions.

    >>> taper.frobenius_norm(taper.tensor([[3.0, 4.0]]), [0, 1])
    tensor(5.)
    """
    return _T().linalg.vector_norm(input, 2, dim, keepdim)


def nuclear_norm(input, dim=(-2, -1), keepdim=False):
    """The sum of the singular values.

    >>> taper.nuclear_norm(taper.eye(2))
    tensor(2.)
    """
    return _T().linalg.matrix_norm(input, "nuc", tuple(dim), keepdim)


def unsafe_split_with_sizes(input, split_sizes, dim=0):
    """split() into parts of these sizes.

    >>> taper.unsafe_split_with_sizes(taper.arange(3), [1, 2])
    (tensor([0]), tensor([1, 2]))
    """
    return tuple(t.clone() for t in input.split(list(split_sizes), dim))


def native_channel_shuffle(input, groups):
    """The channels of the groups, one of each in turn.

    >>> taper.native_channel_shuffle(taper.arange(4.0).reshape(1, 4, 1, 1), 2).flatten()
    tensor([0., 2., 1., 3.])
    """
    return _T().nn.functional.channel_shuffle(input, groups)


def norm_except_dim(v, pow=2, dim=0):
    """The norm over all dimensions but one.

    >>> taper.norm_except_dim(taper.tensor([[3.0, 4.0]]))
    tensor([[5.]])
    """
    if dim == -1:
        return v.norm(pow)
    return _T().linalg.vector_norm(v, pow, [d for d in range(v.dim()) if d != dim % v.dim()], True)


__all__ += ["is_conj", "is_neg", "is_signed", "is_inference", "is_same_size", "get_device", "hinge_embedding_loss", "margin_ranking_loss", "kl_div",
            "frobenius_norm", "nuclear_norm", "unsafe_split_with_sizes", "native_channel_shuffle", "norm_except_dim"]


_overridable_functions(globals(), """alias_copy as_strided_copy cartesian_prod cdist combinations corrcoef cov cumulative_trapezoid detach_copy diagonal_copy diff
expand_copy gradient histogram histogramdd istft logdet mvlgamma narrow_copy permute_copy renorm select_copy slice_copy split_copy
split_with_sizes_copy squeeze_copy stft t_copy tensordot transpose_copy trapezoid trapz unbind_copy unfold_copy unique_consecutive unravel_index
unsafe_chunk unsafe_split unsqueeze_copy view_copy unique norm is_conj is_neg is_signed is_inference is_same_size get_device
hinge_embedding_loss margin_ranking_loss kl_div frobenius_norm nuclear_norm unsafe_split_with_sizes native_channel_shuffle norm_except_dim""".split())
