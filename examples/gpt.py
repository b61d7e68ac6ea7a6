"""A character-level GPT trained on this repository's own README; forward, backward and optimizer are one graph."""
import os
import time

import taper
import taper.nn as nn
import taper.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, d // self.heads).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(d, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab, d=64, heads=4, layers=2, context=64):
        super().__init__()
        self.context = context
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(context, d)
        self.blocks = nn.ModuleList([Block(d, heads) for _ in range(layers)])
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(taper.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def main(steps=200):
    taper.manual_seed(0)
    text = open(os.path.join(HERE, "..", "README.md"), encoding="utf-8").read()
    chars = sorted(set(text))
    data = taper.tensor([chars.index(c) for c in text])
    model = GPT(len(chars))
    opt = taper.optim.AdamW(model.parameters(), lr=3e-3)

    @taper.compile(fullgraph=True)
    def train(batch):
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, len(chars)), batch[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()
    t0 = time.time()
    for step in range(steps + 1):
        at = taper.randint(0, len(data) - 65, (16,)).tolist()
        loss = train(taper.stack([data[i:i + 65] for i in at]))
        if step % 50 == 0:
            print(f"step {step:3d}  loss {loss.item():.3f}  ({time.time() - t0:.1f} s)")
    idx = data[:8].unsqueeze(0)
    following = taper.compile(lambda idx: F.softmax(model(idx)[:, -1], dim=-1), fullgraph=True)  # once for any length
    with taper.no_grad():
        for _ in range(120):
            probs = following(idx[:, -64:])
            idx = taper.cat([idx, taper.multinomial(probs, 1)], 1)
    print("sample:", repr("".join(chars[i] for i in idx[0].tolist())))


if __name__ == "__main__":
    main()
