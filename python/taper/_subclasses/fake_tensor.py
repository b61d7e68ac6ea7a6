"""Fake tensors: shapes and types without data. Here they are ordinary tensors without bytes."""
from .. import _C


class _Fakes(type):
    def __instancecheck__(cls, obj):
        return is_fake(obj)


class FakeTensor(metaclass=_Fakes):
    """isinstance(x, FakeTensor): x has no data."""

    @staticmethod
    def from_tensor(t, fake_mode):
        return fake_mode.from_tensor(t)


def is_fake(x):
    return isinstance(x, _C.Tensor) and x._is_fake()


class FakeTensorMode:
    """with FakeTensorMode() as mode: tensors that are made inside have no data; mode.from_tensor(t) is t without its data."""

    def __init__(self, *, allow_fallback_kernels=True, allow_non_fake_inputs=False, shape_env=None, static_shapes=None, export=False):
        self.shape_env, self.static_shapes, self.allow_non_fake_inputs, self.allow_fallback_kernels = shape_env, static_shapes, allow_non_fake_inputs, allow_fallback_kernels
        self._device = _C.device("meta")

    def __enter__(self):
        self._device.__enter__()
        return self

    def __exit__(self, *exc):
        return self._device.__exit__(*exc)

    def from_tensor(self, tensor, *, static_shapes=None, source=None, symbolic_context=None, trace=True):
        fake = tensor.detach().to("meta")
        return fake.requires_grad_() if tensor.requires_grad else fake


class UnsupportedFakeTensorException(RuntimeError):
    """Something that cannot be done without data."""


class DynamicOutputShapeException(RuntimeError):
    """A size depends on data."""


class DataDependentOutputException(RuntimeError):
    """A value depends on data."""


class FakeTensorConverter:
    def from_real_tensor(self, fake_mode, t, **kwargs):
        return fake_mode.from_tensor(t)


def unset_fake_temporarily():
    import contextlib
    return contextlib.nullcontext()


def maybe_get_fake_mode(t):
    return None
