import math
from collections import namedtuple

import taper
from .. import functional as F, init
from ..parameter import Parameter
from .module import Module


class Identity(Module):
    """Returns its input; takes and ignores any constructor arguments.

    >>> nn.Identity()(taper.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, input):
        return input


class Linear(Module):
    """y = x W' + b

    >>> nn.Linear(3, 4)(taper.ones(2, 3)).shape
    taper.Size([2, 4])
    """

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(taper.empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(taper.empty((out_features,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input):
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """y = x1 W x2 + b

    >>> nn.Bilinear(2, 3, 4)(taper.ones(5, 2), taper.ones(5, 3)).shape
    taper.Size([5, 4])
    """

    def __init__(self, in1_features, in2_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(taper.empty((out_features, in1_features, in2_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(taper.empty((out_features,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1, input2):
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self):
        return f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Flatten(Module):
    """Makes one dimension of those from start_dim to end_dim.

    >>> nn.Flatten()(taper.zeros(2, 3, 4)).shape
    taper.Size([2, 12])
    """
    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input):
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Makes several dimensions of one.

    >>> nn.Unflatten(1, (2, 3))(taper.zeros(4, 6)).shape
    taper.Size([4, 2, 3])
    """
    def __init__(self, dim, unflattened_size):
        super().__init__()
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input):
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self):
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Embedding(Module):
    """Rows of a table by index.

    >>> nn.Embedding(10, 3)(taper.tensor([1, 4])).shape
    taper.Size([2, 3])
    """

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False,
                 _weight=None, _freeze=False, device=None, dtype=None):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None:
            if padding_idx >= num_embeddings or padding_idx < -num_embeddings:
                raise AssertionError("Padding_idx must be within num_embeddings")
            if padding_idx < 0:
                padding_idx += num_embeddings
        self.padding_idx = padding_idx
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        if _weight is None:
            self.weight = Parameter(taper.empty((num_embeddings, embedding_dim), device=device, dtype=dtype), requires_grad=not _freeze)
            self.reset_parameters()
        else:
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, **kw):
        return cls(embeddings.shape[0], embeddings.shape[1], _weight=embeddings, _freeze=freeze, **kw)

    def reset_parameters(self):
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with taper.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input):
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)

    def extra_repr(self):
        s = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            s += f", padding_idx={self.padding_idx}"
        return s


class EmbeddingBag(Module):
    """Sums, means or maxima of bags of rows of a table.

    >>> nn.EmbeddingBag(10, 3, mode="sum")(taper.tensor([[1, 4], [2, 2]])).shape
    taper.Size([2, 3])
    """

    def __init__(self, num_embeddings, embedding_dim, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode="mean", sparse=False,
                 _weight=None, include_last_offset=False, padding_idx=None, device=None, dtype=None):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.mode, self.sparse, self.include_last_offset = mode, sparse, include_last_offset
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError("padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        if _weight is None:
            self.weight = Parameter(taper.empty((num_embeddings, embedding_dim), device=device, dtype=dtype))
            self.reset_parameters()
        else:
            self.weight = Parameter(_weight)

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, **kw):
        bag = cls(embeddings.shape[0], embeddings.shape[1], _weight=embeddings, **kw)
        bag.weight.requires_grad_(not freeze)
        return bag

    def reset_parameters(self):
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with taper.no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input, offsets=None, per_sample_weights=None):
        return F.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
                               per_sample_weights, self.include_last_offset, self.padding_idx)

    def extra_repr(self):
        s = f"{self.num_embeddings}, {self.embedding_dim}"
        for name, default in (("max_norm", None), ("norm_type", 2.0), ("scale_grad_by_freq", False)):
            if getattr(self, name) != default:
                s += f", {name}={getattr(self, name)}"
        return s + f", mode={self.mode!r}" + (f", padding_idx={self.padding_idx}" if self.padding_idx is not None else "")


class ChannelShuffle(Module):
    """Deals the channels out to groups, as one shuffles cards.

    >>> nn.ChannelShuffle(2)(taper.arange(4.0).view(1, 4, 1, 1)).flatten()
    tensor([0., 2., 1., 3.])
    """
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, input):
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self):
        return f"groups={self.groups}"


class PixelShuffle(Module):
    """Makes images r times as large out of r * r channels.

    >>> nn.PixelShuffle(2)(taper.arange(4.0).view(1, 4, 1, 1))
    tensor([[[[0., 1.],
              [2., 3.]]]])
    """
    def __init__(self, upscale_factor):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input):
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self):
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Undoes PixelShuffle: r * r channels out of each block of pixels.

    >>> nn.PixelUnshuffle(2)(taper.zeros(1, 1, 4, 4)).shape
    taper.Size([1, 4, 2, 2])
    """
    def __init__(self, downscale_factor):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input):
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self):
        return f"downscale_factor={self.downscale_factor}"


class Upsample(Module):
    """Makes signals or images larger: the nearest value, or an interpolation (mode).

    >>> nn.Upsample(scale_factor=2)(taper.tensor([[[1.0, 2.0]]]))
    tensor([[[1., 1., 2., 2.]]])
    """
    def __init__(self, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None):
        super().__init__()
        self.size, self.mode, self.align_corners, self.recompute_scale_factor = size, mode, align_corners, recompute_scale_factor
        self.scale_factor = float(scale_factor) if isinstance(scale_factor, (int, float)) else scale_factor

    def forward(self, input):
        return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)

    def extra_repr(self):
        s = f"scale_factor={self.scale_factor!r}" if self.scale_factor is not None else f"size={self.size!r}"
        return s + f", mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Makes images larger: the nearest pixel.

    >>> nn.UpsamplingNearest2d(scale_factor=2)(taper.tensor([[[[1.0, 2.0]]]]))
    tensor([[[[1., 1., 2., 2.],
              [1., 1., 2., 2.]]]])
    """
    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Makes images larger, by linear interpolation of rows and columns.

    >>> nn.UpsamplingBilinear2d(scale_factor=2)(taper.ones(1, 1, 2, 2)).shape
    taper.Size([1, 1, 4, 4])
    """
    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along dim.

    >>> nn.CosineSimilarity(dim=0)(taper.tensor([1.0, 0.0]), taper.tensor([1.0, 1.0]))
    tensor(0.7071)
    """
    def __init__(self, dim=1, eps=1e-8):
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1, x2):
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of the difference of vectors.

    >>> nn.PairwiseDistance(eps=0.0)(taper.tensor([[0.0, 0.0]]), taper.tensor([[3.0, 4.0]]))
    tensor([5.])
    """
    def __init__(self, p=2.0, eps=1e-6, keepdim=False):
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1, x2):
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class Fold(Module):
    """Sums sliding blocks, as Unfold makes them, into an image.

    >>> nn.Fold((3, 3), kernel_size=2)(taper.ones(1, 4, 4))
    tensor([[[[1., 2., 1.],
              [2., 4., 2.],
              [1., 2., 1.]]]])
    """
    def __init__(self, output_size, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.output_size, self.kernel_size, self.dilation, self.padding, self.stride = output_size, kernel_size, dilation, padding, stride

    def forward(self, input):
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self):
        return f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Unfold(Module):
    """The sliding blocks of an image, one a column.

    >>> nn.Unfold(kernel_size=2)(taper.ones(1, 1, 3, 3)).shape
    taper.Size([1, 4, 4])
    """
    def __init__(self, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input):
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


_Scores = namedtuple("ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """log softmax over many classes: frequent ones in the head, rarer ones in clusters that the head picks, each computed
    only for the rows that need it. Class numbers go by frequency; cutoffs say where the clusters begin.

    >>> nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5, 10])(taper.ones(2, 8), taper.tensor([1, 12])).output.shape
    taper.Size([2])
    """

    def __init__(self, in_features, n_classes, cutoffs, div_value=4.0, head_bias=False, device=None, dtype=None):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if any(int(c) != c or not 0 < c < n_classes for c in cutoffs) or sorted(set(cutoffs)) != cutoffs:
            raise ValueError("cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value is between 1 and n_classes-1")
        from .container import ModuleList, Sequential
        self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
        self.cutoffs = cutoffs + [n_classes]
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        kw = dict(bias=False, device=device, dtype=dtype)
        self.head = Linear(in_features, self.head_size, **dict(kw, bias=head_bias))
        self.tail = ModuleList(Sequential(Linear(in_features, width, **kw), Linear(width, high - low, **kw))
                               for low, high, width in ((lo, hi, int(in_features // div_value ** (i + 1)))
                                                        for i, (lo, hi) in enumerate(zip(self.cutoffs, self.cutoffs[1:]))))

    def reset_parameters(self):
        self.head.reset_parameters()
        for narrow, out in self.tail:
            narrow.reset_parameters()
            out.reset_parameters()

    def forward(self, input, target):
        if target.dim() == 1:
            if input.size(0) != target.size(0):
                raise RuntimeError("Input and target should have the same size in the batch dimension.")
            if input.dim() != 2:
                raise RuntimeError(f"1D target tensor expects 2D input tensors, but found inputs with size {input.size()}")
        elif target.dim() == 0:
            if input.dim() != 1:
                raise RuntimeError(f"0D target tensor expects 1D input tensors, but found inputs with size {input.size()}")
            scores, loss = self(input.unsqueeze(0), target.unsqueeze(0))
            return _Scores(scores.squeeze(0), loss)
        else:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if target.numel() and (target.min().item() < 0 or target.max().item() >= self.n_classes):
            raise RuntimeError(f"Target values should be in [0, {self.n_classes - 1}], but values in range [{target.min().item()}, {target.max().item()}] were found. ")
        pick, scores = target, taper.zeros_like(target, dtype=input.dtype)
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if rows.numel():
                inner = F.log_softmax(self.tail[i](input.index_select(0, rows)), 1)
                own = inner.gather(1, (target.index_select(0, rows) - low).unsqueeze(1)).squeeze(1)
                scores = scores.index_add(0, rows, own)
                pick = pick.index_fill(0, rows, self.shortlist_size + i)
        scores = scores + F.log_softmax(self.head(input), 1).gather(1, pick.unsqueeze(1)).squeeze(1)
        return _Scores(scores, -scores.mean())

    def log_prob(self, input):
        """Of every class, [batch, n_classes]."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, :self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            parts.append(F.log_softmax(tail(input), 1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return taper.cat(parts, 1)

    def predict(self, input):
        """The likeliest class of each row; clusters are computed for the rows whose head picks one."""
        head = self.head(input)
        best = head.argmax(1)
        rows = (best >= self.shortlist_size).nonzero().squeeze(1)
        return best.index_copy(0, rows, self.log_prob(input.index_select(0, rows)).argmax(1)) if rows.numel() else best
