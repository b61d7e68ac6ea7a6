"""Six models with 20 to 3,000 operators for bench/minify.py, written against taper or torch alike."""


def build(name, lib):
    """-> (module, inputs)"""
    lib.manual_seed(0)
    return globals()["_" + name](lib, lib.nn, lib.nn.functional)


def _mlp(lib, nn, F):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.ModuleList([nn.Linear(16, 16) for _ in range(6)])

        def forward(self, x):
            for i in range(6):
                x = self.fc[i](x) * 1.5
                x = lib.relu(x) + 0.1 if i == 3 else lib.tanh(x) + 0.1
            return x
    return Net(), (lib.randn(8, 16),)


def _convnet(lib, nn, F):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.ModuleList([nn.Conv2d(3 if i == 0 else 8, 8, 3, padding=1) for i in range(5)])
            self.bn = nn.ModuleList([nn.BatchNorm2d(8) for _ in range(5)])
            self.out = nn.Linear(8, 4)

        def forward(self, x):
            for i in range(5):
                x = lib.relu(self.bn[i](self.conv[i](x)) + 0.5)
            return lib.tanh(self.out(x.mean((2, 3)) * 2))
    return Net(), (lib.randn(2, 3, 8, 8),)


def _gpt(lib, nn, F):
    class Block(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            h = self.ln1(x)
            a = lib.softmax(self.q(h) @ self.k(h).transpose(-1, -2) / 4.0, -1) @ self.v(h)
            x = x + self.o(a)
            return x + self.down(lib.relu(self.up(self.ln2(x))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(16) for _ in range(6)])

        def forward(self, x):
            for i in range(6):
                x = self.blocks[i](x)
            return lib.tanh(x)
    return Net(), (lib.randn(2, 6, 16),)


def _lstm(lib, nn, F):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.x, self.h = nn.Linear(8, 32), nn.Linear(8, 32)

        def forward(self, xs):
            h, c = xs[0] * 0, xs[0] * 0
            for t in range(12):
                i, f, g, o = (self.x(xs[t]) + self.h(h)).chunk(4, -1)
                c = lib.sigmoid(f) * c + lib.sigmoid(i) * lib.tanh(g)
                h = lib.sigmoid(o) * lib.tanh(c)
            return lib.relu(h + 0.1)
    return Net(), (lib.randn(12, 4, 8),)


def _chain(lib, nn, F):
    class Net(nn.Module):
        def forward(self, x):
            for i in range(500):
                x = lib.sin(x) * 1.1
            x = lib.relu(x) + 0.5
            for i in range(498):
                x = x + 0.001 if i % 2 else x * 1.001
            return lib.cos(x)
    return Net(), (lib.randn(32),)


def _deep(lib, nn, F):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.ParameterList([nn.Parameter(lib.randn(8, 8) * 0.3) for _ in range(12)])

        def forward(self, x):
            for k in range(270):
                y = x @ self.w[k % 12]
                y = lib.tanh(y) * 0.9 + 0.05
                x = x + y * 0.01
                x = x * 0.999 - 0.001
                x = x / (1 + x.abs().mean() * 0.001)
            return lib.relu(x)
    return Net(), (lib.randn(4, 8),)
