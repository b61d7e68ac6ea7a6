"""There are no sparse tensors on a GPU."""
from .._absent import fill as _fill

_fill(globals(), "there is no CUDA device", classes="FloatTensor DoubleTensor HalfTensor LongTensor IntTensor")
