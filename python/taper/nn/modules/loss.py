from .. import functional as F
from .linear import PairwiseDistance
from .module import Module


class _Loss(Module):
    def __init__(self, size_average=None, reduce=None, reduction="mean"):
        super().__init__()
        if reduction not in ("none", "mean", "sum", "batchmean"):
            raise ValueError(f"{reduction} is not a valid value for reduction")
        self.reduction = reduction


class _WeightedLoss(_Loss):
    def __init__(self, weight=None, size_average=None, reduce=None, reduction="mean"):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """The mean of abs(input - target).

    >>> nn.L1Loss()(taper.tensor([1.0, 2.0]), taper.tensor([1.0, 4.0]))
    tensor(1.)
    """
    def forward(self, input, target):
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """The mean of (input - target) ** 2.

    >>> nn.MSELoss()(taper.tensor([1.0, 2.0]), taper.tensor([1.0, 4.0]))
    tensor(2.)
    """
    def forward(self, input, target):
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Quadratic for differences below beta, linear above.

    >>> nn.SmoothL1Loss()(taper.tensor([0.0, 0.0]), taper.tensor([1.0, 3.0]))
    tensor(1.5000)
    """
    def __init__(self, size_average=None, reduce=None, reduction="mean", beta=1.0):
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input, target):
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Quadratic for differences below delta, linear above.

    >>> nn.HuberLoss()(taper.tensor([0.0, 0.0]), taper.tensor([1.0, 3.0]))
    tensor(1.5000)
    """
    def __init__(self, reduction="mean", delta=1.0):
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input, target):
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class CrossEntropyLoss(_WeightedLoss):
    """-log(softmax(input)[target]): the loss of a classifier, from logits and numbers of classes.

    >>> nn.CrossEntropyLoss()(taper.zeros(1, 2), taper.tensor([1]))
    tensor(0.6931)
    """
    def __init__(self, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input, target):
        return F.cross_entropy(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
                               label_smoothing=self.label_smoothing)


class NLLLoss(_WeightedLoss):
    """-input[target], where input holds logarithms of probabilities.

    >>> nn.NLLLoss()(taper.tensor([[0.25, 0.75]]).log(), taper.tensor([1]))
    tensor(0.2877)
    """
    def __init__(self, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input, target):
        return F.nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class BCELoss(_WeightedLoss):
    """Binary cross entropy of probabilities: -(y * log(p) + (1 - y) * log(1 - p))

    >>> nn.BCELoss()(taper.tensor([0.5]), taper.tensor([1.0]))
    tensor(0.6931)
    """
    def forward(self, input, target):
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Binary cross entropy of sigmoid(input), computed without overflow.

    >>> nn.BCEWithLogitsLoss()(taper.tensor([0.0]), taper.tensor([1.0]))
    tensor(0.6931)
    """
    def __init__(self, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input, target):
        return F.binary_cross_entropy_with_logits(input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction)


class KLDivLoss(_Loss):
    """target * (log(target) - input), where input holds logarithms of probabilities.

    >>> nn.KLDivLoss(reduction="sum")(taper.tensor([0.5, 0.5]).log(), taper.tensor([1.0, 0.0]))
    tensor(0.6931)
    """
    def __init__(self, size_average=None, reduce=None, reduction="mean", log_target=False):
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input, target):
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(_Loss):
    """The negative log likelihood of counts; input is the logarithm of the rate.

    >>> nn.PoissonNLLLoss()(taper.tensor([0.0]), taper.tensor([2.0]))
    tensor(1.)
    """
    def __init__(self, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"):
        super().__init__(size_average, reduce, reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input, target):
        return F.poisson_nll_loss(log_input, target, self.log_input, self.full, eps=self.eps, reduction=self.reduction)


class GaussianNLLLoss(_Loss):
    """The negative log likelihood of targets under normal distributions with given means and variances.

    >>> nn.GaussianNLLLoss()(taper.tensor([1.0]), taper.tensor([3.0]), taper.tensor([1.0]))
    tensor(2.)
    """
    def __init__(self, *, full=False, eps=1e-6, reduction="mean"):
        super().__init__(reduction=reduction)
        self.full, self.eps = full, eps

    def forward(self, input, target, var):
        return F.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * input))

    >>> nn.SoftMarginLoss()(taper.tensor([0.0]), taper.tensor([1.0]))
    tensor(0.6931)
    """
    def forward(self, input, target):
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class HingeEmbeddingLoss(_Loss):
    """x where target is 1, max(0, margin - x) where it is -1

    >>> nn.HingeEmbeddingLoss()(taper.tensor([0.5, 0.5]), taper.tensor([1, -1]))
    tensor(0.5000)
    """
    def __init__(self, margin=1.0, size_average=None, reduce=None, reduction="mean"):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input, target):
        return F.hinge_embedding_loss(input, target, self.margin, reduction=self.reduction)


class MarginRankingLoss(HingeEmbeddingLoss):
    """max(0, -target * (a - b) + margin): a should rank above b where target is 1.

    >>> nn.MarginRankingLoss()(taper.tensor([1.0]), taper.tensor([2.0]), taper.tensor([1.0]))
    tensor(1.)
    """
    def __init__(self, margin=0.0, size_average=None, reduce=None, reduction="mean"):
        super().__init__(margin, size_average, reduce, reduction)

    def forward(self, input1, input2, target):
        return F.margin_ranking_loss(input1, input2, target, self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(MarginRankingLoss):
    """1 - cos(a, b) for pairs with target 1, max(0, cos(a, b) - margin) for those with -1.

    >>> nn.CosineEmbeddingLoss()(taper.tensor([[1.0, 0.0]]), taper.tensor([[0.0, 1.0]]), taper.tensor([1]))
    tensor(1.)
    """
    def forward(self, input1, input2, target):
        return F.cosine_embedding_loss(input1, input2, target, self.margin, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """max(0, distance(anchor, positive) - distance(anchor, negative) + margin)

    >>> nn.TripletMarginLoss(eps=0.0)(taper.zeros(1, 2), taper.tensor([[3.0, 4.0]]), taper.tensor([[0.0, 1.0]]))
    tensor(5.)
    """
    def __init__(self, margin=1.0, p=2.0, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean"):
        super().__init__(size_average, reduce, reduction)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor, positive, negative):
        return F.triplet_margin_loss(anchor, positive, negative, self.margin, self.p, self.eps, self.swap, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The mean binary cross entropy of several classes at once.

    >>> nn.MultiLabelSoftMarginLoss()(taper.zeros(1, 2), taper.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """
    def forward(self, input, target):
        return F.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """The hinge loss of a classifier.

    >>> nn.MultiMarginLoss()(taper.tensor([[0.0, 0.0]]), taper.tensor([1]))
    tensor(0.5000)
    """
    def __init__(self, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        self.p, self.margin = p, margin

    def forward(self, input, target):
        return F.multi_margin_loss(input, target, self.p, self.margin, self.weight, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """The hinge loss of several classes at once; targets end with -1.

    >>> nn.MultiLabelMarginLoss()(taper.tensor([[0.1, 0.2, 0.4]]), taper.tensor([[2, -1, -1]]))
    tensor(0.5000)
    """
    def forward(self, input, target):
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss with a distance of one's own.

    >>> nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: (a - b).abs().sum(-1))(taper.zeros(1, 2), taper.ones(1, 2), taper.ones(1, 2))
    tensor(1.)
    """
    def __init__(self, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
        super().__init__(reduction=reduction)
        if margin <= 0:
            raise ValueError(f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin} instead")
        self.distance_function = distance_function if distance_function is not None else PairwiseDistance()
        self.margin, self.swap = margin, swap

    def forward(self, anchor, positive, negative):
        return F.triplet_margin_with_distance_loss(anchor, positive, negative, distance_function=self.distance_function,
                                                   margin=self.margin, swap=self.swap, reduction=self.reduction)


class CTCLoss(_Loss):
    """The negative log likelihood of label sequences, summed over all alignments with the input.

    >>> nn.CTCLoss()(taper.zeros(4, 1, 3).log_softmax(2), taper.tensor([[1, 2]]), (4,), (2,))
    tensor(0.8432)
    """

    def __init__(self, blank=0, reduction="mean", zero_infinity=False):
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(self, log_probs, targets, input_lengths, target_lengths):
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity)


class NLLLoss2d(NLLLoss):
    """The old name of NLLLoss for images.

    >>> nn.NLLLoss2d()(taper.zeros(1, 2, 1, 1).log_softmax(1), taper.zeros(1, 1, 1, dtype=taper.int64))
    tensor(0.6931)
    """
