"""Fifty steps of training: the losses of several ranks are those of one process, for data-parallel and sharded models, eager and compiled.

TAPER_CURVES=bench takes the models of the benchmarks at their full size instead of small ones.
"""
import os

import ranks

MODELS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "bench")
PROGRAM = r'''
import sys
sys.path.insert(0, sys.argv[1])
import taper as torch, taper.distributed as dist, models
from taper.nn.parallel import DistributedDataParallel as DDP
from taper.distributed.fsdp import fully_shard
name, small, dtype = sys.argv[2], sys.argv[3] == "small", getattr(torch, sys.argv[4])
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
EACH, STEPS = 2, 50  # samples a rank in a step


def build():
    model, args, target, loss = models.build(name, torch, seed=3, small=small)
    model.to(dtype)
    if name == "resnet":
        model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    return model, args[0], target, loss


def batches():
    _, x, target, _ = build()
    torch.manual_seed(5)
    for _ in range(STEPS):
        if x.is_floating_point():
            xs = torch.randn(EACH * n, *x.shape[1:], dtype=dtype)
        else:
            xs = torch.randint(0, int(x.max()) + 1, (EACH * n, *x.shape[1:]))
        yield xs, torch.randint(0, int(target.max()) + 1, (EACH * n, *target.shape[1:]))


def shard(model):
    for part in model.children():
        if any(True for _ in part.parameters()):
            for inner in part if isinstance(part, torch.nn.ModuleList) else [part]:
                fully_shard(inner)
    return fully_shard(model)


def train(wrap, compiled, mine):
    model, _, _, loss = build()
    model = wrap(model)
    f = torch.compile(model) if compiled else model
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    losses = []
    for x, y in batches():
        if mine:
            x, y = x[r * EACH:(r + 1) * EACH], y[r * EACH:(r + 1) * EACH]
        opt.zero_grad()
        l = loss(f(x), y)
        l.backward()
        opt.step()
        losses.append(l.detach().double())
    losses = torch.stack(losses)
    if mine:
        dist.all_reduce(losses)
        losses /= n
    return losses


one = train(lambda m: m, False, False)
assert not torch.equal(one[0], one[-1])
for what, wrap in ("DDP", DDP), ("sharded", shard):
    for compiled in False, True:
        got = train(wrap, compiled, True)
        d = ((got - one).abs() / one.abs()).max().item()
        if r == 0:
            print(what, "compiled" if compiled else "eager", f"{one[0]:.4f} to {one[-1]:.4f}, largest relative difference {d:.1e}", flush=True)
        assert d < 1e-6, (name, what, compiled, got, one)
dist.destroy_process_group()
'''


def curve(name, n, dtype="float64"):
    size = "bench" if os.environ.get("TAPER_CURVES") == "bench" else "small"
    r = ranks.run(n, PROGRAM, args=[MODELS, name, size, dtype], seconds=540)
    assert r.out[0].count("largest relative difference") == 4, r.out
    return r.out[0]


def test_gpt():
    curve("gpt", 2)


def test_resnet():
    curve("resnet", 2)


if __name__ == "__main__":
    for name in "gpt", "resnet":
        print(name + "\n" + curve(name, 2))
