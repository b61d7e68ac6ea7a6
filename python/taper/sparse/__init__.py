"""Sparse tensors are not supported."""
from .._absent import fill as _fill

_WHY = "sparse tensors are not supported; use dense ones, or index_add and scatter_add"
_fill(globals(), _WHY, classes="FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor SparseSemiStructuredTensor",
      functions="mm addmm sum softmax log_softmax spdiags to_sparse_semi_structured sampled_addmm as_sparse_gradcheck")


class check_sparse_tensor_invariants:
    """There is nothing to check."""

    def __init__(self, enable=True):
        self.enable_ = enable

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False

    @staticmethod
    def is_enabled():
        return False

    @staticmethod
    def enable():
        """Nothing to check."""

    disable = enable
