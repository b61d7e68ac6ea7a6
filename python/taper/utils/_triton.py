"""There is no Triton."""


def has_triton():
    return False


has_triton_package = has_triton_tma = has_triton
