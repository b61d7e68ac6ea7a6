"""Train a small model in one graph, then check that the compiled one gives the same answers."""
import taper
import taper.nn as nn


class SimpleModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = nn.Linear(10, 20)
        self.linear2 = nn.Linear(20, 5)

    def forward(self, x):
        x = self.linear1(x)
        x = taper.relu(x)
        x = self.linear2(x)
        return x


taper.manual_seed(0)
model = SimpleModel()
opt = taper.optim.Adam(model.parameters(), lr=1e-2)
x = taper.randn(256, 10)
target = (x[:, :5] * x[:, 5:]).argmax(1)


@taper.compile(fullgraph=True)
def train(x, target):
    loss = nn.functional.cross_entropy(model(x), target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.detach()


for step in range(201):
    loss = train(x, target)
    if step % 50 == 0:
        print(f"step {step:3d}  loss {loss.item():.4f}")

compiled = taper.compile(model)
with taper.no_grad():
    diff = (model(x) - compiled(x)).abs().max().item()
print(f"largest difference between eager and compiled: {diff:.2e}")
