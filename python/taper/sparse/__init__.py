"""Sparse tensors: coordinates (COO) and compressed rows or columns (CSR, CSC). Blocks and semi-structured ones are refused by name."""
from .. import _C
from .._absent import fill as _fill
from . import _tensor
from ._tensor import SparseTensor

for _n in ("addmm", "hspmm", "log_softmax", "sampled_addmm", "softmax", "sum", "sparse_coo_tensor", "sparse_csr_tensor", "sparse_csc_tensor",
           "sparse_compressed_tensor", "_sparse_coo_tensor_unsafe"):
    globals()[_n] = _tensor._outside(getattr(_tensor, _n))
    globals()[_n].__module__ = __name__
mm = _tensor._outside(_tensor._mm)
mm.__name__ = mm.__qualname__ = "mm"
_convert_indices_from_coo_to_csr, _convert_indices_from_csr_to_coo = _tensor.coo_to_csr, _tensor.csr_to_coo

_fill(globals(), "sparse tensors in blocks are not supported", classes="SparseSemiStructuredTensor", functions="to_sparse_semi_structured sparse_bsr_tensor sparse_bsc_tensor")
_fill(globals(), "not written yet for sparse tensors", functions="spdiags as_sparse_gradcheck")


class _TypedMeta(type):
    def __instancecheck__(cls, obj):
        return isinstance(obj, SparseTensor) and obj.is_sparse and obj.dtype is cls.dtype


def _typed(name, dtype):
    def __new__(cls, *args):
        if len(args) < 2 or not isinstance(args[1], _C.Tensor):  # sizes
            return _tensor.sparse_coo_tensor(args[0] if args and not isinstance(args[0], int) else args or (0,), dtype=dtype)
        return _tensor.sparse_coo_tensor(*args, dtype=dtype)
    return _TypedMeta(name, (), {"__new__": __new__, "dtype": dtype, "__module__": __name__, "is_sparse": True,
                                 "__doc__": f"{name}(indices, values, size): a sparse tensor of {dtype}."})


FloatTensor, DoubleTensor = _typed("FloatTensor", _C.float32), _typed("DoubleTensor", _C.float64)
HalfTensor, BFloat16Tensor = _typed("HalfTensor", _C.float16), _typed("BFloat16Tensor", _C.bfloat16)
LongTensor, IntTensor = _typed("LongTensor", _C.int64), _typed("IntTensor", _C.int32)


class check_sparse_tensor_invariants:
    """Indices are always checked when a sparse tensor is made: there is nothing to switch."""

    def __init__(self, enable=True):
        self.enable_ = enable

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False

    def __call__(self, mth):
        return mth

    @staticmethod
    def is_enabled():
        return True

    @staticmethod
    def enable():
        """They are checked."""

    disable = enable
