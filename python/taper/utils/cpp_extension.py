"""C++ extensions of PyTorch cannot be built against Taper."""
import os as _os
from .._absent import fill as _fill

_fill(globals(), "extensions in C++ are written against PyTorch's own headers; taper.library.custom_op takes a Python or C function",
      classes="BuildExtension", functions="load load_inline CppExtension CUDAExtension SyclExtension include_paths library_paths")
CUDA_HOME = ROCM_HOME = CUDNN_HOME = SYCL_HOME = None
IS_HIP_EXTENSION = False
IS_WINDOWS = False


def is_ninja_available():
    return any(_os.access(_os.path.join(d, "ninja"), _os.X_OK) for d in _os.environ.get("PATH", "").split(_os.pathsep))
