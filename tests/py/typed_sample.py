"""A program with types everywhere: test_types.py lets type checkers look at it in their strict modes."""
from __future__ import annotations

import io
from typing import Iterator

import taper
from taper import Size, Tensor, nn
from taper.export import Dim
from taper.nn import functional as F
from taper.optim import AdamW, Optimizer
from taper.profiler import profile, record_function
from taper.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a = nn.Linear(2, width)
        self.b = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = F.relu(self.a(x))
        return F.dropout(self.b(h), 0.1, self.training)


@taper.compile
def scaled(x: Tensor, by: float) -> Tensor:
    return taper.sin(x) * by + x.mean(dim=0, keepdim=True)


def train(model: nn.Module, optimizer: Optimizer, data: DataLoader[tuple[Tensor, Tensor]]) -> float:
    total = 0.0
    for x, y in data:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


def exported(net: nn.Module, x: Tensor) -> int:
    text: str = taper.export(net, (x,)).text
    program = taper.export.export(net, (x,), dynamic_shapes={"x": {0: Dim("batch")}})
    return len(text) + len(program.graph.nodes)


def gradients(x: Tensor) -> list[Tensor]:
    squared = taper.func.vmap(taper.func.grad(lambda v: v.square().sum()))(x)
    leaf = x.detach().requires_grad_()
    (g,) = taper.autograd.grad(leaf.exp().sum(), [leaf])
    return [squared, g]


def measured(net: nn.Module, x: Tensor) -> str:
    with profile(profile_memory=True, record_shapes=True) as prof:
        with record_function("once"):
            net(x)
    return prof.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total", row_limit=3)


def scheduled(net: nn.Module) -> float:
    opt = taper.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    schedule = taper.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.5)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    schedule.step()
    return float(schedule.get_last_lr()[0])


def main() -> None:
    taper.manual_seed(0)
    x: Tensor = taper.randn(8, 2, dtype=taper.float32)
    size: Size = x.shape
    net = Net(4)
    opt = AdamW(net.parameters(), lr=1e-3)
    loader: DataLoader[tuple[Tensor, Tensor]] = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
    with taper.no_grad():
        y = scaled(x, 2.0)
    z = (x @ x.t()).softmax(-1)[0, 1:]
    n: int = x.size(0) + len(size)
    print(train(net, opt, loader), y.shape, z.tolist(), n, x.device.type)
    state = net.state_dict()
    buffer = io.BytesIO()
    taper.save(state, buffer)
    buffer.seek(0)
    net.load_state_dict(taper.load(buffer))
    print(exported(net.eval(), x) > 0, [g.shape for g in gradients(x)], "once" in measured(net, x), scheduled(net))
    params: Iterator[nn.Parameter] = net.parameters()
    print(sum(p.numel() for p in params))


if __name__ == "__main__":
    main()
