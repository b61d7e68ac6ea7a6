"""Every module of the list: the same text, state, results and gradients as PyTorch's, from the same state."""
import re
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not importable")
import taper

torch.set_num_threads(1)


def numbers(t):
    return taper.from_numpy(t.detach().numpy().copy())


def r(*shape):
    return lambda: torch.randn(shape, dtype=torch.float64)


def pos(*shape):
    return lambda: torch.rand(shape, dtype=torch.float64) * 0.8 + 0.1


def labels(n, *shape):
    return lambda: torch.randint(0, n, shape)


def signs(*shape):
    return lambda: torch.randint(0, 2, shape).double() * 2 - 1


IMG, SEQ = r(2, 4, 6, 6), r(2, 4, 7)
CASES = [
    ("Linear(3, 5)", r(2, 3)), ("Linear(3, 5, bias=False)", r(3)), ("Bilinear(3, 4, 5)", r(2, 3), r(2, 4)), ("Identity(1, a=2)", r(2)), ("Embedding(7, 3, padding_idx=1)", labels(7, 2, 3)),
    ("EmbeddingBag(7, 3, mode='sum')", labels(7, 2, 3)), ("Conv1d(4, 6, 3, padding=1, groups=2)", SEQ), ("Conv2d(4, 6, (3, 2), 2, 1, padding_mode='reflect')", IMG),
    ("Conv2d(4, 6, 3, padding='same', dilation=2)", IMG), ("Conv3d(2, 3, 2)", r(1, 2, 3, 4, 4)), ("ConvTranspose1d(4, 2, 3, 2)", SEQ), ("ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1)", IMG),
    ("ConvTranspose3d(2, 3, 2)", r(1, 2, 3, 3, 3)), ("BatchNorm1d(4)", SEQ), ("BatchNorm2d(4, momentum=None)", IMG), ("BatchNorm3d(2, affine=False)", r(2, 2, 3, 3, 3)), ("LayerNorm([6, 6])", IMG),
    ("LayerNorm(7, elementwise_affine=False)", SEQ), ("GroupNorm(2, 4)", IMG), ("InstanceNorm1d(4, affine=True)", SEQ), ("InstanceNorm2d(4, track_running_stats=True)", IMG),
    ("InstanceNorm3d(2)", r(2, 2, 3, 3, 3)), ("RMSNorm(7)", SEQ), ("LocalResponseNorm(2)", IMG), ("Flatten()", IMG), ("Flatten(2)", IMG), ("Unflatten(1, (2, 2))", IMG), ("Fold((4, 4), 2)", r(1, 8, 9)), ("Unfold(2)", IMG),
    ("Upsample(scale_factor=2)", IMG), ("Upsample(size=(5, 7), mode='bilinear', align_corners=True)", IMG), ("UpsamplingNearest2d(scale_factor=2)", IMG), ("UpsamplingBilinear2d(size=4)", IMG),
    ("PixelShuffle(2)", IMG), ("PixelUnshuffle(2)", IMG), ("ChannelShuffle(2)", IMG), ("Softmax(1)", IMG), ("LogSoftmax(1)", IMG), ("Softmin(1)", IMG), ("Softmax2d()", IMG),
    ("MaxPool1d(2)", SEQ), ("MaxPool2d(3, 2, 1, ceil_mode=True)", IMG), ("MaxPool3d(2)", r(1, 2, 4, 4, 4)), ("AvgPool1d(2)", SEQ), ("AvgPool2d(3, 2, 1, count_include_pad=False)", IMG),
    ("AvgPool3d(2)", r(1, 2, 4, 4, 4)), ("AdaptiveAvgPool1d(3)", SEQ), ("AdaptiveAvgPool2d((None, 2))", IMG), ("AdaptiveAvgPool3d(2)", r(1, 2, 4, 4, 4)), ("AdaptiveMaxPool1d(3)", SEQ), ("AdaptiveMaxPool2d(2)", IMG),
    ("AdaptiveMaxPool3d(2)", r(1, 2, 4, 4, 4)), ("LPPool1d(2, 3)", SEQ), ("LPPool2d(2, 2)", IMG), ("ZeroPad2d((1, 2, 0, 1))", IMG), ("ReflectionPad1d(2)", SEQ), ("ReflectionPad2d(1)", IMG), ("ReplicationPad2d(1)", IMG),
    ("CircularPad2d(1)", IMG), ("ConstantPad1d(1, 2.5)", SEQ), ("CosineSimilarity(1)", SEQ, SEQ), ("PairwiseDistance()", r(3, 4), r(3, 4)),
] + [(a + "()", IMG) for a in ("ReLU", "ReLU6", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish", "Sigmoid", "LogSigmoid", "Tanh", "Tanhshrink", "Hardtanh", "Hardsigmoid", "Hardswish", "Hardshrink", "Softshrink",
                               "Softplus", "Softsign", "LeakyReLU", "PReLU")] + [
    ("GELU('tanh')", IMG), ("GLU(1)", IMG), ("Threshold(0.1, 2.0)", IMG), ("RReLU()", IMG), ("Dropout(0.4)", IMG), ("Dropout1d()", SEQ), ("Dropout2d()", IMG), ("Dropout3d()", r(1, 2, 2, 2, 2)), ("AlphaDropout()", IMG),
    ("RNN(3, 4, 2, nonlinearity='relu')", r(5, 2, 3)), ("LSTM(3, 4, 2, batch_first=True, bidirectional=True)", r(2, 5, 3)), ("LSTM(3, 4, proj_size=2)", r(5, 2, 3)), ("GRU(3, 4, bias=False)", r(5, 2, 3)),
    ("RNNCell(3, 4)", r(2, 3)), ("LSTMCell(3, 4)", r(2, 3)), ("GRUCell(3, 4)", r(2, 3)), ("MultiheadAttention(4, 2)", r(5, 2, 4), r(6, 2, 4), r(6, 2, 4)),
    ("MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True)", r(2, 5, 4), r(2, 6, 4), r(2, 6, 4)), ("TransformerEncoderLayer(4, 2, 8, dropout=0.0)", r(5, 2, 4)),
    ("TransformerDecoderLayer(4, 2, 8, dropout=0.0, activation='gelu', norm_first=True)", r(5, 2, 4), r(6, 2, 4)), ("TransformerEncoder(N.TransformerEncoderLayer(4, 2, 8, dropout=0.0), 2)", r(5, 2, 4)),
    ("TransformerDecoder(N.TransformerDecoderLayer(4, 2, 8, dropout=0.0), 2)", r(5, 2, 4), r(6, 2, 4)), ("Transformer(4, 2, 1, 1, 8, dropout=0.0)", r(5, 2, 4), r(6, 2, 4)),
    ("MSELoss()", r(3, 2), r(3, 2)), ("L1Loss(reduction='sum')", r(3, 2), r(3, 2)), ("SmoothL1Loss(beta=0.5)", r(3, 2), r(3, 2)), ("HuberLoss(delta=0.7)", r(3, 2), r(3, 2)),
    ("CrossEntropyLoss(label_smoothing=0.1)", r(4, 3), labels(3, 4)), ("NLLLoss(ignore_index=1)", r(4, 3), labels(3, 4)), ("BCELoss()", pos(3, 2), pos(3, 2)), ("BCEWithLogitsLoss()", r(3, 2), pos(3, 2)),
    ("KLDivLoss(reduction='batchmean', log_target=True)", r(3, 2), r(3, 2)), ("PoissonNLLLoss(full=True)", r(3, 2), pos(3, 2)), ("GaussianNLLLoss()", r(3, 2), r(3, 2), pos(3, 2)),
    ("HingeEmbeddingLoss()", r(3, 2), signs(3, 2)), ("MarginRankingLoss(0.1)", r(3), r(3), signs(3)), ("CosineEmbeddingLoss()", r(3, 2), r(3, 2), signs(3)), ("TripletMarginLoss(p=1)", r(3, 2), r(3, 2), r(3, 2)),
    ("TripletMarginWithDistanceLoss()", r(3, 2), r(3, 2), r(3, 2)), ("MultiMarginLoss()", r(4, 3), labels(3, 4)), ("MultiLabelMarginLoss()", r(2, 3), labels(3, 2, 3)), ("MultiLabelSoftMarginLoss()", r(2, 3), pos(2, 3)),
    ("SoftMarginLoss()", r(3, 2), signs(3, 2)), ("Sequential(N.Linear(3, 4), N.Tanh(), N.Linear(4, 1))", r(2, 3)),
]
RANDOM = ("Dropout", "RReLU")


def text_of(m):
    """Newer PyTorch also says whether a norm has a bias."""
    return re.sub(r"(Norm\w*\(.*), bias=(True|False)", r"\1", repr(m))


def flat(out):
    return [t for o in out for t in flat(o)] if isinstance(out, (tuple, list)) else [out] if out is not None else []


def close(a, b, what):
    a = a.detach()
    assert tuple(a.shape) == tuple(b.shape) and str(a.dtype)[6:] == str(b.dtype)[6:], (what, a.shape, b.shape, a.dtype, b.dtype)
    d = (a.double() - torch.from_numpy(b.detach().numpy().copy()).double()).abs()
    assert not d.numel() or d.max() <= 1e-8 * (1 + a.double().abs().max()), (what, d.max().item())


def one(text, *make):
    torch.manual_seed(0)
    t, m = eval("N." + text, {"N": torch.nn}).double(), eval("N." + text, {"N": taper.nn}).double()
    assert text_of(t) == text_of(m), (text_of(t), text_of(m))
    assert list(t.state_dict()) == list(m.state_dict()), (text, list(t.state_dict()), list(m.state_dict()))
    m.load_state_dict({k: numbers(v) for k, v in t.state_dict().items()})
    if any(s in text for s in RANDOM):
        t.eval(), m.eval()
    xs = [f() for f in make]
    ys = [numbers(x) for x in xs]
    for v in xs + ys:
        if v.is_floating_point():
            v.requires_grad_()
    wants = [i for i, v in enumerate(xs) if v.is_floating_point()]
    if "Loss" in text:  # targets need no gradient
        wants = wants[:2] if "Embedding" in text or "Triplet" in text or "Ranking" in text else wants[:1]
        for v in [xs[i] for i in range(len(xs)) if i not in wants and xs[i].is_floating_point()] + [ys[i] for i in range(len(ys)) if i not in wants and ys[i].is_floating_point()]:
            v.requires_grad_(False)
    p, q = flat(t(*xs)), flat(m(*ys))
    assert len(p) == len(q), text
    for a, b in zip(p, q):
        close(a, b, (text, "value"))
    w = [torch.cos(torch.arange(a.numel(), dtype=torch.float64)).reshape(a.shape) for a in p]
    if any(a.requires_grad for a in p):
        sum((a * c).sum() for a, c in zip(p, w) if a.requires_grad).backward()
        sum((b * numbers(c)).sum() for b, c in zip(q, w) if b.requires_grad).backward()
        pairs = [(xs[i].grad, ys[i].grad, f"gradient {i}") for i in wants] + [(a.grad, b.grad, n) for (n, a), b in zip(t.named_parameters(), m.parameters())]
        for a, b, n in pairs:
            assert (a is None) == (b is None), (text, n, a, b)
            if a is not None:
                close(a, b, (text, n))
    for k, v in t.state_dict().items():
        close(v, m.state_dict()[k], (text, k))


def test_modules():
    bad = []
    for case in CASES:
        try:
            one(*case)
        except Exception as e:
            bad.append(f"{case[0]}: {type(e).__name__}: {str(e)[:300]}")
    assert not bad, f"{len(bad)} of {len(CASES)}:\n" + "\n".join(bad)
