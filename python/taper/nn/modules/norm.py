import numbers

import taper
from .. import functional as F, init
from ..parameter import Parameter
from .module import Module


class _NormBase(Module):
    _version = 2

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = Parameter(taper.empty((num_features,), device=device, dtype=dtype))
            self.bias = Parameter(taper.empty((num_features,), device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)
            self.register_parameter("bias", None)
        if track_running_stats:
            self.register_buffer("running_mean", taper.zeros((num_features,), device=device, dtype=dtype))
            self.register_buffer("running_var", taper.ones((num_features,), device=device, dtype=dtype))
            self.register_buffer("num_batches_tracked", taper.zeros((), dtype=taper.int64))
        else:
            self.register_buffer("running_mean", None)
            self.register_buffer("running_var", None)
            self.register_buffer("num_batches_tracked", None)
        self.reset_parameters()

    def reset_running_stats(self):
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self):
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if (local_metadata.get("version") or 1) < 2 and self.track_running_stats:  # version 1 did not count batches
            state_dict.setdefault(prefix + "num_batches_tracked", taper.zeros((), dtype=taper.int64))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def extra_repr(self):
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, track_running_stats={self.track_running_stats}"


class _BatchNorm(_NormBase):
    dims = ()

    def _factor(self, input):
        """Looks at the input and counts the batch -> the share of this batch in the running statistics."""
        if input.dim() not in self.dims:
            want = " or ".join(f"{d}D" for d in self.dims)
            raise ValueError(f"expected {want} input (got {input.dim()}D input)")
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
        return factor

    def forward(self, input):
        factor = self._factor(input)
        use_batch = self.training or (self.running_mean is None and self.running_var is None)
        keep = not self.training or self.track_running_stats
        return F.batch_norm(input, self.running_mean if keep else None, self.running_var if keep else None, self.weight, self.bias,
                            use_batch, factor, self.eps)


class BatchNorm1d(_BatchNorm):
    """Normalises each feature over the batch, then scales and shifts it; running statistics are used in evaluation.

    >>> nn.BatchNorm1d(1, affine=False, eps=0.0)(taper.tensor([[1.0], [3.0]]))
    tensor([[-1.],
            [ 1.]])
    """
    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalises each channel over the batch and its pixels, then scales and shifts it.

    >>> nn.BatchNorm2d(3)(taper.ones(2, 3, 4, 4)).shape
    taper.Size([2, 3, 4, 4])
    """
    dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalises each channel over the batch and its voxels, then scales and shifts it.

    >>> nn.BatchNorm3d(3)(taper.ones(2, 3, 2, 2, 2)).shape
    taper.Size([2, 3, 2, 2, 2])
    """
    dims = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over the batches of all ranks of a group; with one rank, or in eval mode, the usual one.

    >>> nn.SyncBatchNorm(3).eval()(taper.ones(2, 3, 4)).shape
    taper.Size([2, 3, 4])
    """
    dims = (2, 3, 4, 5)

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, process_group=None, device=None, dtype=None):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self.process_group = process_group

    def forward(self, input):
        if not self.training or not taper.distributed.is_initialized() or taper.distributed.get_world_size(self.process_group) == 1:
            return super().forward(input)
        factor, c = self._factor(input), self.num_features
        mean, var, count = self._statistics(input)
        if self.track_running_stats and self.running_mean is not None:
            with taper.no_grad():
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
                self.running_var.lerp_((var * (count / (count - 1).clamp(min=1))).to(self.running_var.dtype), factor)
        shape = [1, c] + [1] * (input.dim() - 2)
        out = (input - mean.view(shape)) * (var + self.eps).rsqrt().view(shape)
        if self.affine:
            out = out * self.weight.view(shape) + self.bias.view(shape)
        return out.to(input.dtype)

    def _statistics(self, input):
        """(mean, variance, number of values a channel) over all ranks, from one all-gather of each rank's mean, sum of squares and count."""
        c, dims = self.num_features, [d for d in range(input.dim()) if d != 1]
        x = input.float() if input.dtype in (taper.float16, taper.bfloat16) else input
        n = x.numel() // c
        own = x.sum(dims) / max(n, 1)
        squares = ((x - own.view([1, c] + [1] * (x.dim() - 2))) ** 2).sum(dims)
        row = taper.cat([own, squares, taper.full((1,), float(n), dtype=x.dtype, device=x.device)]).unsqueeze(0)
        every = taper.distributed._functional_collectives.all_gather_tensor(row, 0, self.process_group)
        means, counts = every[:, :c], every[:, 2 * c:].detach()
        count = counts.sum()
        mean = (means * counts).sum(0) / count
        var = (every[:, c:2 * c].sum(0) + ((means - mean) ** 2 * counts).sum(0)) / count
        return mean, var, count

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """BatchNorm modules in module become SyncBatchNorm ones with the same parameters."""
        new = module
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            new = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group)
            if module.affine:
                new.weight, new.bias = module.weight, module.bias
            new.running_mean, new.running_var, new.num_batches_tracked = module.running_mean, module.running_var, module.num_batches_tracked
            new.training = module.training
        for name, child in module.named_children():
            new.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return new


class _InstanceNorm(_NormBase):
    dims = ()

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=False, track_running_stats=False, device=None, dtype=None):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)

    def forward(self, input):
        if input.dim() not in self.dims:
            raise ValueError(f"expected {' or '.join(f'{d}D' for d in self.dims)} input (got {input.dim()}D input)")
        unbatched = input.dim() == self.dims[0]
        if unbatched:
            input = input.unsqueeze(0)
        out = F.instance_norm(input, self.running_mean, self.running_var, self.weight, self.bias, self.training or not self.track_running_stats,
                              self.momentum if self.momentum is not None else 0.0, self.eps)
        return out.squeeze(0) if unbatched else out


class InstanceNorm1d(_InstanceNorm):
    """Normalises each channel of each sample.

    >>> nn.InstanceNorm1d(1, eps=0.0)(taper.tensor([[[1.0, 3.0]]]))
    tensor([[[-1.,  1.]]])
    """
    dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalises each channel of each image.

    >>> nn.InstanceNorm2d(3)(taper.ones(2, 3, 4, 4)).shape
    taper.Size([2, 3, 4, 4])
    """
    dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalises each channel of each sample in three dimensions.

    >>> nn.InstanceNorm3d(3)(taper.ones(2, 3, 2, 2, 2)).shape
    taper.Size([2, 3, 2, 2, 2])
    """
    dims = (4, 5)


class LayerNorm(Module):
    """Normalises over the last dimensions (normalized_shape), then scales and shifts.

    >>> nn.LayerNorm(2, eps=0.0, elementwise_affine=False)(taper.tensor([1.0, 3.0]))
    tensor([-1.,  1.])
    """
    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, numbers.Integral) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        if elementwise_affine:
            self.weight = Parameter(taper.empty(self.normalized_shape, device=device, dtype=dtype))
            if bias:
                self.bias = Parameter(taper.empty(self.normalized_shape, device=device, dtype=dtype))
            else:
                self.register_parameter("bias", None)
        else:
            self.register_parameter("weight", None)
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        if self.elementwise_affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"


class RMSNorm(Module):
    """Divides by the root of the mean square over the last dimensions, then scales.

    >>> nn.RMSNorm(2, eps=0.0, elementwise_affine=False)(taper.tensor([3.0, 3.0]))
    tensor([1., 1.])
    """
    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, numbers.Integral) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        if elementwise_affine:
            self.weight = Parameter(taper.ones(self.normalized_shape, device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)

    def reset_parameters(self):
        if self.elementwise_affine:
            init.ones_(self.weight)

    def forward(self, x):
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalises groups of channels of each sample, then scales and shifts each channel.

    >>> nn.GroupNorm(2, 4)(taper.ones(1, 4, 3)).shape
    taper.Size([1, 4, 3])
    """
    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        if affine:
            self.weight = Parameter(taper.ones((num_channels,), device=device, dtype=dtype))
            self.bias = Parameter(taper.zeros((num_channels,), device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)
            self.register_parameter("bias", None)

    def reset_parameters(self):
        if self.affine:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class LocalResponseNorm(Module):
    """Divides each channel by a power of the sum of squares of its neighbours.

    >>> nn.LocalResponseNorm(2)(taper.ones(1, 3, 2)).shape
    taper.Size([1, 3, 2])
    """
    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
