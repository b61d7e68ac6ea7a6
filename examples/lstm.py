"""An LSTM that learns to add: the sum of the marked numbers of a sequence. The whole step, with clipped gradients, is one graph."""
import taper
import taper.nn as nn


class Adder(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.lstm = nn.LSTM(2, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        y, _ = self.lstm(x)
        return self.out(y[:, -1]).squeeze(-1)


def batch(n=64, length=10):
    value, mark = taper.rand(n, length), (taper.rand(n, length) < 0.3).float()
    return taper.stack([value, mark], 2), (value * mark).sum(1)


def main(steps=300):
    taper.manual_seed(0)
    model = Adder()
    opt = taper.optim.Adam(model.parameters(), lr=5e-3)

    @taper.compile(fullgraph=True)
    def train(x, y):
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        return loss.detach()
    for step in range(steps + 1):
        loss = train(*batch())
        if step % 75 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
