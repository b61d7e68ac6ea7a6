"""The models that benchmarks and equality tests run on. `build(name, lib)` works with Taper or PyTorch as lib.

    model, args, target, loss = build("gpt", taper)

Each model is written against lib.nn, so that both libraries run the same program.
"""
NAMES = ["mlp", "convnet", "resnet", "gpt", "lstm", "autoencoder", "vit", "unet"]
MORE = ["mobilenet", "convnext", "scan", "dlrm", "bert", "gcn"]  # depthwise convolutions, small steps, tables, graphs


def build(name, lib, seed=0, small=False):
    """-> (module, inputs tuple, target, loss function). `small` shrinks everything for tests."""
    lib.manual_seed(seed)
    return globals()["_" + name](lib, small)


def _mlp(lib, small):
    nn = lib.nn
    d, h, b = (10, 20, 8) if small else (256, 512, 128)
    m = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 10))
    return m, (lib.randn(b, d),), lib.randint(0, 10, (b,)), nn.functional.cross_entropy


def _convnet(lib, small):
    nn = lib.nn
    c, b, s = (4, 2, 8) if small else (32, 16, 32)
    m = nn.Sequential(nn.Conv2d(3, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(c, 2 * c, 3, padding=1),
                      nn.BatchNorm2d(2 * c), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * c, 10))
    return m, (lib.randn(b, 3, s, s),), lib.randint(0, 10, (b,)), nn.functional.cross_entropy


def _resnet(lib, small):
    nn = lib.nn

    class Block(nn.Module):
        def __init__(self, i, o, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(o)
            self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(o)
            self.down = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride != 1 or i != o else None

        def forward(self, x):
            y = nn.functional.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            return nn.functional.relu(y + (x if self.down is None else self.down(x)))

    c, b, s = (4, 2, 8) if small else (32, 8, 32)
    m = nn.Sequential(nn.Conv2d(3, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU(), Block(c, c, 1), Block(c, c, 1), Block(c, 2 * c, 2),
                      Block(2 * c, 2 * c, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * c, 10))
    return m, (lib.randn(b, 3, s, s),), lib.randint(0, 10, (b,)), nn.functional.cross_entropy


def _gpt_module(lib, vocab, d, heads, layers, ctx):
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1 = nn.LayerNorm(d)
            self.qkv = nn.Linear(d, 3 * d)
            self.proj = nn.Linear(d, d)
            self.ln2 = nn.LayerNorm(d)
            self.fc = nn.Linear(d, 4 * d)
            self.out = nn.Linear(4 * d, d)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.ln1(x)).split(d, dim=2)
            q = q.view(b, t, heads, d // heads).transpose(1, 2)
            k = k.view(b, t, heads, d // heads).transpose(1, 2)
            v = v.view(b, t, heads, d // heads).transpose(1, 2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
            return x + self.out(F.gelu(self.fc(self.ln2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok = nn.Embedding(vocab, d)
            self.pos = nn.Embedding(ctx, d)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.ln = nn.LayerNorm(d)
            self.head = nn.Linear(d, vocab, bias=False)

        def forward(self, idx):
            t = idx.shape[1]
            x = self.tok(idx) + self.pos(lib.arange(t))
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln(x))

    return GPT()


def _gpt(lib, small):
    vocab, d, heads, layers, b, t = (17, 16, 2, 2, 2, 6) if small else (256, 256, 8, 4, 4, 128)
    m = _gpt_module(lib, vocab, d, heads, layers, t)

    def loss(logits, target):
        return lib.nn.functional.cross_entropy(logits.reshape(-1, vocab), target.reshape(-1))

    return m, (lib.randint(0, vocab, (b, t)),), lib.randint(0, vocab, (b, t)), loss


def _lstm(lib, small):
    nn = lib.nn

    class Tagger(nn.Module):
        def __init__(self, vocab, d, h):
            super().__init__()
            self.emb = nn.Embedding(vocab, d)
            self.wx = nn.Linear(d, 4 * h)
            self.wh = nn.Linear(h, 4 * h, bias=False)
            self.out = nn.Linear(h, vocab)
            self.h = h

        def forward(self, idx):
            x = self.wx(self.emb(idx))
            h = c = lib.zeros(idx.shape[0], self.h, dtype=x.dtype)
            ys = []
            for t in range(idx.shape[1]):
                i, f, g, o = (x[:, t] + self.wh(h)).chunk(4, dim=1)
                c = lib.sigmoid(f) * c + lib.sigmoid(i) * lib.tanh(g)
                h = lib.sigmoid(o) * lib.tanh(c)
                ys.append(h)
            return self.out(lib.stack(ys, 1))

    vocab, d, h, b, t = (11, 6, 8, 3, 5) if small else (128, 128, 256, 16, 32)
    m = Tagger(vocab, d, h)

    def loss(y, target):
        return nn.functional.cross_entropy(y.reshape(-1, vocab), target.reshape(-1))

    return m, (lib.randint(0, vocab, (b, t)),), lib.randint(0, vocab, (b, t)), loss


def _autoencoder(lib, small, p=0.1):
    nn = lib.nn
    d, h, b = (12, 6, 4) if small else (784, 256, 64)
    m = nn.Sequential(nn.Linear(d, h), nn.GELU(), nn.Dropout(p), nn.Linear(h, h // 2), nn.Tanh(), nn.Linear(h // 2, h), nn.SiLU(), nn.Dropout(p),
                      nn.Linear(h, d), nn.Sigmoid())
    x = lib.rand(b, d)
    return m, (x,), x, nn.functional.mse_loss


def _vit(lib, small):
    nn = lib.nn
    d, heads, layers, b, s, patch = (8, 2, 1, 2, 8, 4) if small else (128, 4, 4, 8, 32, 4)

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, d, patch, patch)
            self.cls = nn.Parameter(lib.zeros(1, 1, d))
            self.pos = nn.Parameter(lib.randn(1, (s // patch) ** 2 + 1, d) * 0.02)
            self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(d, heads, 4 * d, 0.0, "gelu", batch_first=True, norm_first=True)
                                         for _ in range(layers)])
            self.ln = nn.LayerNorm(d)
            self.head = nn.Linear(d, 10)

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = lib.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln(x[:, 0]))

    return ViT(), (lib.randn(b, 3, s, s),), lib.randint(0, 10, (b,)), nn.functional.cross_entropy


def _unet(lib, small):
    nn, F = lib.nn, lib.nn.functional

    def double(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())

    class UNet(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.d1, self.d2, self.mid = double(3, c), double(c, 2 * c), double(2 * c, 4 * c)
            self.u2, self.u1 = double(6 * c, 2 * c), double(3 * c, c)
            self.out = nn.Conv2d(c, 1, 1)

        def forward(self, x):
            a = self.d1(x)
            b = self.d2(F.max_pool2d(a, 2))
            m = self.mid(F.max_pool2d(b, 2))
            y = self.u2(lib.cat([F.interpolate(m, scale_factor=2, mode="nearest"), b], 1))
            y = self.u1(lib.cat([F.interpolate(y, scale_factor=2, mode="nearest"), a], 1))
            return self.out(y)

    c, n, s = (4, 1, 8) if small else (16, 4, 32)
    return UNet(c), (lib.randn(n, 3, s, s),), lib.randn(n, 1, s, s), F.mse_loss


def _mobilenet(lib, small):
    nn = lib.nn

    class Inverted(nn.Module):
        def __init__(self, i, o, stride, grow):
            super().__init__()
            h = i * grow
            self.body = nn.Sequential(nn.Conv2d(i, h, 1, bias=False), nn.BatchNorm2d(h), nn.ReLU6(),
                                      nn.Conv2d(h, h, 3, stride, 1, groups=h, bias=False), nn.BatchNorm2d(h), nn.ReLU6(),
                                      nn.Conv2d(h, o, 1, bias=False), nn.BatchNorm2d(o))
            self.skip = stride == 1 and i == o

        def forward(self, x):
            y = self.body(x)
            return x + y if self.skip else y

    c, b, s = (4, 2, 8) if small else (16, 8, 64)
    m = nn.Sequential(nn.Conv2d(3, c, 3, 2, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU6(), Inverted(c, 2 * c, 2, 4), Inverted(2 * c, 2 * c, 1, 4),
                      Inverted(2 * c, 4 * c, 2, 4), Inverted(4 * c, 4 * c, 1, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * c, 10))
    return m, (lib.randn(b, 3, s, s),), lib.randint(0, 10, (b,)), nn.functional.cross_entropy


def _convnext(lib, small):
    nn = lib.nn

    class Block(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.dw = nn.Conv2d(d, d, 7, padding=3, groups=d)
            self.norm = nn.LayerNorm(d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            y = self.norm(self.dw(x).permute(0, 2, 3, 1))
            return x + self.down(nn.functional.gelu(self.up(y))).permute(0, 3, 1, 2)

    d, b, s = (4, 2, 16) if small else (64, 4, 64)
    m = nn.Sequential(nn.Conv2d(3, d, 4, 4), Block(d), Block(d), nn.Conv2d(d, 2 * d, 2, 2), Block(2 * d), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                      nn.Linear(2 * d, 10))
    return m, (lib.randn(b, 3, s, s),), lib.randint(0, 10, (b,)), nn.functional.cross_entropy


def _scan(lib, small):
    nn = lib.nn

    class StateSpace(nn.Module):
        def __init__(self, d, n):
            super().__init__()
            self.inp, self.dt, self.bc = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 2 * n)
            self.a = nn.Parameter(lib.rand(d, n))
            self.out, self.n = nn.Linear(d, d), n

        def forward(self, x):
            u, dt = self.inp(x), nn.functional.softplus(self.dt(x))
            b, c = self.bc(x).split(self.n, dim=2)
            h = lib.zeros(x.shape[0], x.shape[2], self.n, dtype=x.dtype)
            ys = []
            for t in range(x.shape[1]):
                step = dt[:, t].unsqueeze(-1)
                h = lib.exp(-step * self.a) * h + step * b[:, t].unsqueeze(1) * u[:, t].unsqueeze(-1)
                ys.append((h * c[:, t].unsqueeze(1)).sum(-1))
            return self.out(lib.stack(ys, 1))

    d, n, b, t = (6, 4, 2, 5) if small else (64, 16, 8, 32)
    return StateSpace(d, n), (lib.randn(b, t, d),), lib.randn(b, t, d), nn.functional.mse_loss


def _dlrm(lib, small):
    nn = lib.nn

    class Net(nn.Module):
        def __init__(self, rows, d, tables, dense):
            super().__init__()
            self.bottom = nn.Sequential(nn.Linear(dense, 4 * d), nn.ReLU(), nn.Linear(4 * d, d), nn.ReLU())
            self.bags = nn.ModuleList([nn.EmbeddingBag(rows, d, mode="sum") for _ in range(tables)])
            n = tables + 1
            self.top = nn.Sequential(nn.Linear(d + n * n, 4 * d), nn.ReLU(), nn.Linear(4 * d, 1))

        def forward(self, x, idx):
            v = self.bottom(x)
            z = lib.stack([v] + [bag(idx[i]) for i, bag in enumerate(self.bags)], 1)
            inter = lib.bmm(z, z.transpose(1, 2)).flatten(1)
            return self.top(lib.cat([v, inter], 1)).squeeze(1)

    rows, d, tables, dense, b, per = (9, 4, 3, 5, 4, 2) if small else (20000, 64, 8, 13, 256, 20)
    args = (lib.randn(b, dense), lib.randint(0, rows, (tables, b, per)))
    return Net(rows, d, tables, dense), args, lib.rand(b), nn.functional.binary_cross_entropy_with_logits


def _bert(lib, small):
    nn = lib.nn
    d, heads, layers, b, t, vocab = (8, 2, 1, 2, 5, 11) if small else (256, 4, 4, 4, 128, 1000)

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.pos, self.ln = nn.Embedding(vocab, d), nn.Embedding(t, d), nn.LayerNorm(d)
            self.layers = nn.ModuleList([nn.TransformerEncoderLayer(d, heads, 4 * d, 0.0, "gelu", batch_first=True) for _ in range(layers)])
            self.head = nn.Linear(d, 2)

        def forward(self, idx):
            x = self.ln(self.tok(idx) + self.pos(lib.arange(idx.shape[1])))
            for layer in self.layers:
                x = layer(x)
            return self.head(x[:, 0])

    return Encoder(), (lib.randint(0, vocab, (b, t)),), lib.randint(0, 2, (b,)), nn.functional.cross_entropy


def _gcn(lib, small):
    nn = lib.nn

    class Layer(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.lin = nn.Linear(i, o)

        def forward(self, x, src, dst, weight):
            y = self.lin(x)
            return lib.zeros_like(y).index_add(0, dst, y[src] * weight)

    class Net(nn.Module):
        def __init__(self, i, h):
            super().__init__()
            self.one, self.two = Layer(i, h), Layer(h, 8)

        def forward(self, x, src, dst, weight):
            return self.two(nn.functional.relu(self.one(x, src, dst, weight)), src, dst, weight)

    n, e, i, h = (10, 30, 5, 6) if small else (4000, 40000, 64, 64)
    args = (lib.randn(n, i), lib.randint(0, n, (e,)), lib.randint(0, n, (e,)), lib.rand(e, 1))
    return Net(i, h), args, lib.randint(0, 8, (n,)), nn.functional.cross_entropy


def to_half(lib, model, args):
    """The model and its floating-point inputs in bfloat16."""
    return model.to(lib.bfloat16), tuple(a.to(lib.bfloat16) if a.is_floating_point() else a for a in args)


def train_step(model, args, target, loss_fn, opt):
    """One step of training; returns the loss."""
    opt.zero_grad()
    loss = loss_fn(model(*args), target)
    loss.backward()
    opt.step()
    return loss
