"""Modules that learn the size of their input from the first one they see."""
import taper
from ..parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import Linear
from .norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d

__all__ = ["LazyModuleMixin", "LazyLinear"] + [f"Lazy{k}{d}d" for k in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm") for d in (1, 2, 3)]


class LazyModuleMixin:
    """Put before a module class: initialize_parameters(*inputs) is called before the first forward and gives the
    uninitialised parameters their shapes; then the module becomes a cls_to_become and is lazy no more.

    >>> issubclass(nn.LazyLinear, nn.modules.lazy.LazyModuleMixin)
    True
    """
    cls_to_become = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_forward_pre_hook(_first_call, with_kwargs=True)

    def initialize_parameters(self, *args, **kwargs):
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self):
        return any(is_lazy(v) for v in list(self._parameters.values()) + list(self._buffers.values()))

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        """Loading initialised values makes room for them."""
        for name, v in list(self._parameters.items()) + list(self._buffers.items()):
            have = state_dict.get(prefix + name)
            if is_lazy(v) and isinstance(have, taper.Tensor) and not is_lazy(have):
                v.materialize(have.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _first_call(module, args, kwargs):
    module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
    for i in [i for i, hook in module._forward_pre_hooks.items() if hook is _first_call]:
        del module._forward_pre_hooks[i]
        module._forward_pre_hooks_with_kwargs.pop(i, None)
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become


taper._C._capture_role(_first_call, "lazy")


def _fill(module, **shapes):
    """Parameters and buffers get their shapes, then their first values."""
    with taper.no_grad():
        for name, shape in shapes.items():
            v = getattr(module, name)
            if is_lazy(v):
                v.materialize(shape)
        module.reset_parameters()


class LazyLinear(LazyModuleMixin, Linear):
    """Linear that learns in_features from its first input.

    >>> nn.LazyLinear(4)(taper.ones(2, 3)).shape
    taper.Size([2, 4])
    """
    cls_to_become = Linear

    def __init__(self, out_features, bias=True, device=None, dtype=None):
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.in_features:
            super().reset_parameters()

    def initialize_parameters(self, input):
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            _fill(self, weight=(self.out_features, self.in_features), bias=(self.out_features,))
        if self.in_features == 0:  # loaded
            self.in_features = self.weight.shape[-1]


class _LazyConv(LazyModuleMixin):
    def __init__(self, out_channels, kernel_size, *args, bias=True, device=None, dtype=None, **kwargs):
        names = ("stride", "padding", "output_padding", "groups", "bias", "dilation", "padding_mode") if "Transpose" in type(self).__name__ else \
            ("stride", "padding", "dilation", "groups", "bias", "padding_mode")
        kwargs.update(zip(names, args))
        bias = kwargs.pop("bias", bias)
        super().__init__(0, 0, kernel_size, bias=False, **kwargs)
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.in_channels:
            super().reset_parameters()

    def initialize_parameters(self, input, *rest):
        nd = len(self.kernel_size)
        if self.has_uninitialized_params():
            if input.dim() not in (nd + 1, nd + 2):
                raise RuntimeError(f"Expected {nd + 1}D (unbatched) or {nd + 2}D (batched) input to {type(self).__name__}, but got input of size: {input.shape}")
            self.in_channels = input.shape[-nd - 1]
            if self.in_channels % self.groups:
                raise ValueError("in_channels must be divisible by groups")
            pair = (self.in_channels, self.out_channels // self.groups) if self.transposed else (self.out_channels, self.in_channels // self.groups)
            _fill(self, weight=pair + self.kernel_size, bias=(self.out_channels,))
        if self.in_channels == 0:
            self.in_channels = self.weight.shape[0] if self.transposed else self.weight.shape[1] * self.groups


class _LazyNorm(LazyModuleMixin):
    def __init__(self, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None):
        super().__init__(0, eps, momentum, False, False)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = taper.tensor(0, dtype=taper.int64)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.num_features:
            super().reset_parameters()

    def initialize_parameters(self, input):
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            _fill(self, **{k: (self.num_features,) for k in ("weight", "bias", "running_mean", "running_var") if is_lazy(getattr(self, k))})
        known = self.weight if self.weight is not None else self.running_mean
        if self.num_features == 0 and known is not None:  # loaded
            self.num_features = known.shape[0]


def _make(base, kind):
    return type("Lazy" + base.__name__, (kind, base), dict(cls_to_become=base, __module__=__name__,
                                                          __doc__=f"""A {base.__name__} that takes its number of channels from the first input.

    >>> nn.Lazy{base.__name__}({"8, 2" if "Conv" in base.__name__ else ""})(taper.ones(2, 3, {", ".join("4" * int(base.__name__[-2]))})).shape[:2]
    taper.Size([2, {8 if "Conv" in base.__name__ else 3}])
    """))


for _base in (Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d):
    globals()["Lazy" + _base.__name__] = _make(_base, _LazyConv)
for _base in (BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d):
    globals()["Lazy" + _base.__name__] = _make(_base, _LazyNorm)
