"""Forward mode is not built in; products J v come from taper.autograd.functional.jvp."""


def _no(*args, **kwargs):
    raise NotImplementedError("forward-mode differentiation is not supported; use taper.autograd.functional.jvp")


dual_level = make_dual = unpack_dual = enter_dual_level = exit_dual_level = _no
