"""The processor."""


def get_cpu_capability():
    """The widest vectors that kernels use here, in the original's words."""
    with open("/proc/cpuinfo") as f:
        flags = f.read()
    return "AVX512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "DEFAULT"
