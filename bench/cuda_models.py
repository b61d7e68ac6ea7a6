"""Models for bench/cuda.py, written once for both libraries: m is taper or torch. Each gives a module and what makes its inputs;
`small`: sizes at which an interpreter of kernels is fast enough for a test."""


def _rms(m, x, w):
    return (x.float() * m.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def gpt2(m, small=False):
    """GPT-2 124M, batches of 8 x 512."""
    nn, F = m.nn, m.nn.functional
    d, heads, layers, words, b, n = (32, 2, 1, 50, 1, 16) if small else (768, 12, 12, 50257, 8, 512)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.n2, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            q, k, v = (t.view(b, n, heads, d // heads).transpose(1, 2) for t in self.qkv(self.n1(x)).split(d, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, n, d))
            return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.word, self.place = nn.Embedding(words, d), nn.Embedding(n, d)
            self.blocks, self.norm = nn.ModuleList([Block() for _ in range(layers)]), nn.LayerNorm(d)

        def forward(self, i, y):
            x = self.word(i) + self.place.weight
            for block in self.blocks:
                x = block(x)
            return F.cross_entropy(F.linear(self.norm(x), self.word.weight).flatten(0, 1).float(), y.flatten())
    return Model(), lambda: [m.randint(0, words, (b, n), device="cuda") for _ in range(2)]


def llama(m, small=False):
    """Llama with 8 layers of 2048, 16 heads, 4 of keys, batches of 2 x 1024."""
    nn, F = m.nn, m.nn.functional
    d, heads, kv, layers, words, b, n = (32, 2, 1, 1, 50, 1, 16) if small else (2048, 16, 4, 8, 32000, 2, 1024)
    e, wide = d // heads, (d * 8 // 3 + 255) // 256 * 256

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.Parameter(m.ones(d)), nn.Parameter(m.ones(d))
            self.q, self.k, self.v, self.o = (nn.Linear(d, s * e, bias=False) for s in (heads, kv, kv, heads))
            self.gate, self.up, self.down = nn.Linear(d, wide, bias=False), nn.Linear(d, wide, bias=False), nn.Linear(wide, d, bias=False)

        def forward(self, x, cos, sin):
            def turn(t):
                a, c = t.chunk(2, -1)
                return t * cos + m.cat((-c, a), -1) * sin
            h = _rms(m, x, self.n1)
            q, k, v = (p(h).view(b, n, -1, e).transpose(1, 2) for p in (self.q, self.k, self.v))
            y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True, enable_gqa=True)
            x = x + self.o(y.transpose(1, 2).reshape(b, n, heads * e))
            h = _rms(m, x, self.n2)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.word, self.blocks, self.norm = nn.Embedding(words, d), nn.ModuleList([Block() for _ in range(layers)]), nn.Parameter(m.ones(d))
            self.head = nn.Linear(d, words, bias=False)
            at = m.outer(m.arange(n).float(), 10000.0 ** (-m.arange(0, e, 2).float() / e))
            self.register_buffer("cos", m.cat((at, at), -1).cos())
            self.register_buffer("sin", m.cat((at, at), -1).sin())

        def forward(self, i, y):
            x = self.word(i)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            return F.cross_entropy(self.head(_rms(m, x, self.norm)).flatten(0, 1).float(), y.flatten())
    return Model(), lambda: [m.randint(0, words, (b, n), device="cuda") for _ in range(2)]


def resnet50(m, small=False):
    """ResNet-50, 64 images."""
    nn, F = m.nn, m.nn.functional
    stages, first, size, b = ([(8, 1, 1)], 8, 16, 2) if small else ([(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)], 64, 224, 64)

    class Block(nn.Module):
        def __init__(self, inp, mid, stride):
            super().__init__()
            self.c1, self.n1 = nn.Conv2d(inp, mid, 1, bias=False), nn.BatchNorm2d(mid)
            self.c2, self.n2 = nn.Conv2d(mid, mid, 3, stride, 1, bias=False), nn.BatchNorm2d(mid)
            self.c3, self.n3 = nn.Conv2d(mid, 4 * mid, 1, bias=False), nn.BatchNorm2d(4 * mid)
            same = stride == 1 and inp == 4 * mid
            self.short = None if same else nn.Sequential(nn.Conv2d(inp, 4 * mid, 1, stride, bias=False), nn.BatchNorm2d(4 * mid))

        def forward(self, x):
            y = F.relu(self.n2(self.c2(F.relu(self.n1(self.c1(x))))))
            return F.relu(self.n3(self.c3(y)) + (x if self.short is None else self.short(x)))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.c, self.n = nn.Conv2d(3, first, 7, 2, 3, bias=False), nn.BatchNorm2d(first)
            blocks, inp = [], first
            for mid, count, stride in stages:
                for k in range(count):
                    blocks.append(Block(inp, mid, stride if k == 0 else 1))
                    inp = 4 * mid
            self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inp, 1000 if not small else 10)

        def forward(self, x, y):
            x = F.max_pool2d(F.relu(self.n(self.c(x))), 3, 2, 1)
            return F.cross_entropy(self.head(self.blocks(x).mean((2, 3))).float(), y)
    return Model(), lambda: [m.randn(b, 3, size, size, device="cuda", dtype=m.bfloat16), m.randint(0, 10, (b,), device="cuda")]


def vit(m, small=False):
    """ViT-B/16, 32 images."""
    nn, F = m.nn, m.nn.functional
    d, heads, layers, size, patch, b = (32, 2, 1, 16, 8, 1) if small else (768, 12, 12, 224, 16, 32)
    n = (size // patch)**2 + 1

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.n2, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            q, k, v = self.qkv(self.n1(x)).view(b, n, 3, heads, d // heads).permute(2, 0, 3, 1, 4).unbind(0)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))
            return x + self.down(F.gelu(self.up(self.n2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch, self.first, self.place = nn.Linear(3 * patch * patch, d), nn.Parameter(m.zeros(1, 1, d)), nn.Parameter(m.zeros(1, n, d))
            self.blocks, self.norm, self.head = nn.ModuleList([Block() for _ in range(layers)]), nn.LayerNorm(d), nn.Linear(d, 1000)

        def forward(self, x, y):
            x = x.view(b, 3, size // patch, patch, size // patch, patch).permute(0, 2, 4, 1, 3, 5).reshape(b, n - 1, -1)
            x = m.cat((self.first.expand(b, 1, d), self.patch(x)), 1) + self.place
            for block in self.blocks:
                x = block(x)
            return F.cross_entropy(self.head(self.norm(x[:, 0])).float(), y)
    return Model(), lambda: [m.randn(b, 3, size, size, device="cuda", dtype=m.bfloat16), m.randint(0, 10, (b,), device="cuda")]


def mlp64(m, small=False):
    """Two layers of 64, f32."""
    nn, F = m.nn, m.nn.functional

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x):
            return self.b(F.relu(self.a(x))).square().mean()
    return Model(), lambda: [m.randn(64, 64, device="cuda")]


MODELS = [("GPT-2 124M b8 l512 bf16", gpt2), ("Llama 8 layers d2048 b2 l1024 bf16", llama), ("ResNet-50 b64 bf16", resnet50), ("ViT-B/16 b32 bf16", vit),
          ("MLP 64 f32", mlp64)]


def make(m, build, small, training):
    """A call, by how it is compiled: forward alone, or forward and backward with gradients made anew."""
    m.manual_seed(0)
    model, inputs = build(m, small)
    model = model.to("cuda") if build is mlp64 else model.to("cuda", m.bfloat16)
    x = inputs()

    def calls(mode):
        f = model if mode == "eager" else m.compile(model, mode=None if mode == "compiled" else mode)
        if not training:
            model.eval()

            def forward():
                with m.no_grad():
                    return f(*x)
            return forward
        model.train()

        def step():
            for p in model.parameters():
                p.grad = None
            loss = f(*x)
            loss.backward()
            return loss.detach()
        return step
    return calls
