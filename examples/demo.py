"""The tour that `make demo` gives: tensors, gradients, a small network, errors that help, PyTorch programs unmodified."""
import os, subprocess, sys, tempfile, time

import taper
from taper import nn


def title(text):
    print(f"\n--- {text}")


title("Tensors")
x = taper.arange(12.0).view(3, 4)
print(x, x[:, 1::2], x[x > 6].sum(), sep="\n")

title("Gradients")
w = taper.tensor([2.0, -1.0], requires_grad=True)
y = (w.sin() * w ** 2).sum()
y.backward()
print(f"y = {y:.4f}   dy/dw = {w.grad}")

title("A network learns xor")
taper.manual_seed(0)
a = taper.tensor([[0., 0.], [0., 1.], [1., 0.], [1., 1.]])
b = taper.tensor([[0.], [1.], [1.], [0.]])
net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
opt = taper.optim.Adam(net.parameters(), lr=0.05)
t = time.perf_counter()
for step in range(200):
    loss = ((net(a) - b) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"step {step:3}  loss {loss.item():.6f}")
print(f"prediction {net(a).flatten().tolist()}  ({(time.perf_counter() - t) * 1e3:.0f} ms)")

title("Wrong calls say what is wrong")
for bad in ("taper.ones(2, 3) @ taper.ones(2, 3)", "taper.add(x, 'a')", "taper.tensor([[1, 2], [3]])", "x[5]"):
    try:
        eval(bad)
    except Exception as e:
        print(f"{bad}\n    {type(e).__name__}: {e}")

title("A program written for PyTorch, unmodified: python -m taper script.py")
with tempfile.TemporaryDirectory() as d:
    script = os.path.join(d, "script.py")
    with open(script, "w") as f:
        f.write("import torch\nx = torch.linspace(0, 1, 5, requires_grad=True)\n"
                "torch.nn.functional.softplus(x).sum().backward()\nprint(x.grad, x.dtype)\n")
    env = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(taper.__file__)))
    subprocess.run([sys.executable, "-m", "taper", script], check=True, env=env)
