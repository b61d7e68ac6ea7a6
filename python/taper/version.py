"""Versions: of this package, and the one of PyTorch that programs are told under the torch alias."""
import os as _os

taper = "0.1.0"
__version__ = _os.environ.get("TAPER_TORCH_VERSION", "2.13.0")
debug = False
cuda = hip = rocm = xpu = None
git_version = "unknown"
