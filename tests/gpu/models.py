"""Training steps of small models on CUDA, eager and compiled, against the CPU: losses and parameters after each step.

  python3 tests/gpu/models.py [--small]"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import taper  # noqa: E402
import taper.nn as nn  # noqa: E402
import taper.nn.functional as F  # noqa: E402

SMALL = "--small" in sys.argv
B, D, L = (2, 8, 4) if SMALL else (16, 64, 32)


class Block(nn.Module):
    """Causal attention and an MLP, as GPT-2 has them."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, D)
        self.a, self.b = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)
        self.head = nn.Linear(D, 11)

    def forward(self, i):
        x = self.emb(i)
        q, k, v = self.qkv(self.a(x)).view(B, L, 3, 2, D // 2).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, L, D))
        x = x + self.down(F.gelu(self.up(self.b(x))))
        return self.head(x)


def attention():
    return Block(), lambda: [taper.randint(0, 11, (B, L))], lambda m, i: F.cross_entropy(m(i).view(-1, 11), i.view(-1)), taper.optim.AdamW


def mlp():
    net = nn.Sequential(nn.Linear(D, 2 * D), nn.ReLU(), nn.BatchNorm1d(2 * D), nn.Linear(2 * D, 5))
    return net, lambda: [taper.randn(B, D), taper.randint(0, 5, (B,))], lambda m, x, y: F.cross_entropy(m(x), y), taper.optim.Adam


def conv():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 4 * 4, 5))
    return net, lambda: [taper.randn(B, 3, 8, 8), taper.randint(0, 5, (B,))], lambda m, x, y: F.cross_entropy(m(x), y), taper.optim.SGD


def lstm():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(D, D, batch_first=True), nn.Linear(D, 1)

        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])
    return Net(), lambda: [taper.randn(B, 4, D)], lambda m, x: m(x).pow(2).mean(), taper.optim.RMSprop


def train(make, device, compiled):
    taper.manual_seed(3)
    model, data, loss, opt = make()
    model.to(device)
    batches = [data() for _ in range(3)]
    step = taper.compile(loss) if compiled else loss
    o = opt(model.parameters(), lr=1e-2)
    seen = []
    for b in batches:
        o.zero_grad()
        v = step(model, *[t.to(device) for t in b])
        v.backward()
        o.step()
        seen.append(v.detach().cpu())
    return seen + [p.detach().cpu() for p in model.parameters()]


def odd_products():
    """Large products of 16-bit matrices whose rows begin at odd places, and columns, against float64: how far off, at most."""
    taper.manual_seed(0)
    worst = 0.0
    for m, k, n in ((64, 48, 51),) if SMALL else ((1000, 768, 5025), (5025, 999, 300), (768, 4097, 501)):
        a, b = taper.randn(m, k).bfloat16(), taper.randn(k, n).bfloat16()
        want = a.double() @ b.double()
        x, y = a.cuda(), b.cuda()
        for got in (x @ y, (y.t() @ x.t()).t(), x.t().contiguous().t() @ y):
            worst = max(worst, float((got.cpu().double() - want).abs().max() / want.abs().max()))
    return worst


def main():
    if not taper.cuda.is_available():
        print("models: skipped, there is no GPU")
        return 77
    bad = 0
    for make in (mlp, attention, conv, lstm):
        want = train(make, "cpu", False)
        for compiled in (False, True):
            how = f"{make.__name__} {'compiled' if compiled else 'eager'}"
            try:
                got = train(make, "cuda", compiled)
                off = max(float((a - b).abs().max() / (b.abs().max() + 1e-3)) for a, b in zip(got, want))
                ok = off < 2e-2
                print(f"{how}: {'agrees' if ok else 'DIFFERS'}, {off:.2g}", flush=True)
            except Exception as e:  # noqa: BLE001
                ok = False
                print(f"{how}: {type(e).__name__}: {str(e)[:600]}", flush=True)
            bad += not ok
    off = odd_products()
    print(f"odd products: {'agree' if off < 1e-2 else 'DIFFER'}, {off:.2g}")
    return 1 if bad or off >= 1e-2 else 0


if __name__ == "__main__":
    sys.exit(main())
