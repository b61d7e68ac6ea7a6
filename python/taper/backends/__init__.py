"""Which libraries stand behind the operators, and the switches programs set on them."""
import types as _types


class _Library(_types.ModuleType):
    """A library that is not there: switches on it can be set and read, and change nothing."""

    def __init__(self, name, **switches):
        super().__init__("taper.backends." + name)
        self.__dict__.update(switches)

    def is_available(self):
        return False

    def is_built(self):
        return False

    def version(self):
        return None


cudnn = _Library("cudnn", enabled=True, benchmark=False, deterministic=False, allow_tf32=True)
cuda = _Library("cuda", matmul=_types.SimpleNamespace(allow_tf32=False,
                                                      allow_fp16_reduced_precision_reduction=True,
                                                      allow_bf16_reduced_precision_reduction=True))
mps = _Library("mps")
mkl = _Library("mkl")
mkldnn = _Library("mkldnn", enabled=True)
openmp = _Library("openmp")
