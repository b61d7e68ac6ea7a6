"""A small residual network on synthetic images: discs and squares. Images are made, and the network is trained, in compiled code."""
import taper
import taper.nn as nn
import taper.nn.functional as F


class Block(nn.Module):
    def __init__(self, c_in, c_out, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False), nn.BatchNorm2d(c_out)
        self.conv2, self.bn2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False), nn.BatchNorm2d(c_out)
        self.skip = nn.Identity() if c_in == c_out and stride == 1 else nn.Conv2d(c_in, c_out, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.skip(x))


@taper.compile(fullgraph=True)
def images(n, size=16):
    """Noisy images with a disc (class 0) or a square (class 1) at a random place."""
    y, x = taper.meshgrid(taper.arange(size), taper.arange(size), indexing="ij")
    label = taper.randint(0, 2, (n,))
    centre = taper.randint(5, size - 5, (n, 2, 1, 1))
    dy, dx = (y - centre[:, 0]).abs(), (x - centre[:, 1]).abs()
    disc = (dy * dy + dx * dx <= 16).float()
    square = (taper.maximum(dy, dx) <= 3).float()
    img = taper.where(label.view(-1, 1, 1) == 0, disc, square)
    return (img + 0.3 * taper.randn(n, size, size)).unsqueeze(1), label


def main(steps=60):
    taper.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.ReLU(), Block(8, 8), Block(8, 16, 2), Block(16, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(16, 2))
    opt = taper.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    @taper.compile(fullgraph=True)
    def train(x, label):
        loss = F.cross_entropy(model(x), label)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()
    for step in range(steps + 1):
        loss = train(*images(64))
        if step % 15 == 0:
            print(f"step {step:2d}  loss {loss.item():.4f}")
    model.eval()
    with taper.no_grad():
        x, label = images(256)
        right = (model(x).argmax(1) == label).float().mean().item()
    print(f"accuracy on new images: {right:.1%}")


if __name__ == "__main__":
    main()
