"""Models that tests of ONNX write and read: name -> (module, arguments, first opset that can say it)."""
import taper
from taper import nn
from taper.nn import functional as F


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                                  nn.Conv2d(8, 8, 3, groups=2, stride=2, padding=1), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                  nn.Dropout(), nn.Linear(8, 5))

    def forward(self, x):
        return F.log_softmax(self.body(x), -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
        self.head = nn.Linear(8, 11)

    def forward(self, i):
        x = self.words(i)
        x = x + taper.arange(i.shape[1]).unsqueeze(-1).float() * 0.1
        return self.head(self.layer(x))


class Shapes(nn.Module):
    def forward(self, x):
        b, t, c = x.shape
        y = x.view(b, t, 2, c // 2).transpose(1, 2)
        y = F.scaled_dot_product_attention(y, y, y, is_causal=True).reshape(b * t, -1)[:, 1:3]
        z = taper.zeros(b, t) + taper.arange(t)
        return (y, z.masked_fill(z > 2, 0.0).sum(), x[:, -1], x.chunk(2, -1)[1], taper.stack([x, x], 1), x.new_ones(b), x.flip(1),
                x.roll(1, 1), taper.tril(taper.ones(t, t)), F.pad(x, (1, 2), value=3.0), x.expand(3, b, t, c), x.repeat(1, 2, 1),
                taper.cat([x, x.double()], -1), x.squeeze(), x.split([2, 4], -1)[1], x.unbind(1)[2], x[:, [0, 2]],
                x[taper.tensor([0, 1]), taper.tensor([1, 2])], x.gather(2, x.argmax(-1, keepdim=True)))


class Elements(nn.Module):
    def forward(self, x):
        n = (x * 10).long()
        return (taper.where(x > 0, x, -x.exp()), x.clamp(-0.5, 0.5), x // 0.3, n // 3, n % 3, F.gelu(x, approximate="tanh"), F.softplus(x),
                F.hardswish(x), F.elu(x), x.log1p(), F.glu(x), 1 - x, 2 / x, x ** 3, x.sigmoid(), x.round(), x.trunc(), x.sign(),
                x.abs().sqrt(), (x > 0) & (x < 1), n.float(), F.leaky_relu(x, 0.2), taper.maximum(x, x.flip(0)), x.isnan(), F.mish(x))


class Reductions(nn.Module):
    def forward(self, x):
        most, where = x.max(-1)
        values, places = x.topk(2, -1)
        return (most, where, values, places, x.std(-1), x.var((0, 1), keepdim=True, unbiased=False), x.cumsum(1), x.argmax(1), x.norm(dim=-1),
                (x > 0).any(-1), (x > 0).all(), F.layer_norm(x, (x.shape[-1],)), x.sort(-1)[0], x.pow(2).mean(-1, keepdim=True),
                taper.einsum("btc,btd->bcd", x, x), F.one_hot(where, 6), x.prod(1), x.amin((0, 2)), x.logsumexp(1), F.normalize(x, dim=-1))


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), nn.GroupNorm(2, 6), nn.InstanceNorm2d(6), nn.PReLU(6), nn.AvgPool2d(2))

    def forward(self, x):
        return (self.up(x), F.interpolate(x, scale_factor=2), F.interpolate(x, size=(9, 7), mode="bilinear"), F.pixel_shuffle(x, 2),
                F.max_pool2d(x, 3, 1, 1), F.pad(x, (1, 1, 1, 1), mode="reflect"), F.adaptive_avg_pool2d(x, 5))


def models():
    taper.manual_seed(3)
    x = taper.randn(2, 5, 6)
    return {"convolutions": (Convolutions(), (taper.randn(2, 3, 16, 16),), 13), "attention": (Attention(), (taper.randint(0, 11, (2, 5)),), 13),
            "shapes": (Shapes(), (x,), 14), "elements": (Elements(), (x,), 14), "reductions": (Reductions(), (x,), 13),
            "images": (Images(), (taper.randn(2, 4, 5, 5),), 13), "lstm": (nn.LSTM(4, 5, 2, bidirectional=True, batch_first=True), (taper.randn(2, 3, 4),), 13),
            "gru": (nn.GRU(4, 5), (taper.randn(2, 3, 4),), 13)}


def flat(x):
    return [x] if isinstance(x, taper.Tensor) else [t for v in x for t in flat(v)]
