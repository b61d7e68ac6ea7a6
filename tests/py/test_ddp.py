"""DistributedDataParallel: the mean of the gradients of all ranks, in buckets, while backward goes on."""
import ranks

# A program that runs with Taper and with PyTorch; rank 0 prints what must not differ.
PROGRAM = r'''
import sys
if "torch" in sys.argv:
    import torch, torch.distributed as dist
    torch.set_num_threads(1)
    from torch.nn.parallel import DistributedDataParallel as DDP
else:
    import taper as torch, taper.distributed as dist
    from taper.nn.parallel import DistributedDataParallel as DDP
nn = torch.nn
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
say = print if r == 0 else (lambda *a: None)

def fill(m, k=0.37):
    with torch.no_grad():
        for p in m.parameters():
            p.copy_((torch.arange(p.numel()).reshape(p.shape) * k).sin() * 0.3)
    return m

def model(norm=False):
    return fill(nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32) if norm else nn.Identity(), nn.Tanh(), nn.Linear(32, 4)))

X = (torch.arange(4. * n * 8).reshape(4 * n, 8) * 0.11).cos()
Y = (torch.arange(4. * n * 4).reshape(4 * n, 4) * 0.07).sin()
x, y = X[r * 4:r * 4 + 4], Y[r * 4:r * 4 + 4]

def weights(m):
    return torch.cat([p.detach().reshape(-1) for p in m.parameters()])

def train(d, m, steps=6):
    o = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        o.zero_grad()
        loss = ((d(x) - y) ** 2).mean()
        loss.backward()
        o.step()
        losses.append(loss.detach())
    return losses

single = model()
o = torch.optim.SGD(single.parameters(), 0.1, momentum=0.9)
curve = []
for _ in range(6):
    o.zero_grad()
    loss = ((single(X) - Y) ** 2).mean()
    loss.backward()
    o.step()
    curve.append(float(loss))
for kw in ({}, {"bucket_cap_mb": 0.0005}, {"bucket_cap_mb": 0.0005, "gradient_as_bucket_view": True}, {"find_unused_parameters": True}):
    m = model()
    if r:
        fill(m, 0.5)  # rank 0's parameters count
    d = DDP(m, **kw)
    losses = torch.stack(train(d, m))
    dist.all_reduce(losses)
    assert (losses / n - torch.tensor(curve)).abs().max() < 1e-6, (kw, losses / n, curve)
    assert (weights(m) - weights(single)).abs().max() < 1e-6, kw
    assert list(d.state_dict())[0] == "module.0.weight"
say("curve", [round(c, 5) for c in curve])

# buffers of rank 0 go to all before forward
m = model(True)
d = DDP(m)
train(d, m)
say("norm", [round(float(v), 5) for v in weights(m)[:4]], m[1].num_batches_tracked.item())
mine = m[1].running_mean.clone()
d(x)
dist.broadcast(mine, 0)

# no_sync: gradients of two backwards, joined at the second
m = model()
d = DDP(m)
with d.no_sync():
    d(x).sum().backward()
own = m[0].weight.grad.clone()
every = [torch.empty_like(own) for _ in range(n)]
dist.all_gather(every, own)
assert not torch.equal(every[0], every[1])
d(x * 2).sum().backward()
dist.all_gather(every, m[0].weight.grad)
assert torch.equal(every[0], every[1])
say("no_sync", round(float(m[0].weight.grad.sum()), 3))

# unused parameters: other ones on each rank, and one that nobody uses
class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = fill(nn.Linear(8, 2)), fill(nn.Linear(8, 2), 0.21), fill(nn.Linear(8, 2))
    def forward(self, v, which):
        return self.a(v) if which else self.b(v)
m = Branch()
d = DDP(m, find_unused_parameters=True)
for k in range(3):
    m.zero_grad()
    d(x, r == 0).sum().backward()
    assert m.c.weight.grad is None
say("unused", round(float(m.a.weight.grad.sum()), 4), round(float(m.b.weight.grad.sum()), 4))

# not found: the next forward says which
m = Branch()
d = DDP(m)
d(x, True).sum().backward()
try:
    d(x, True)
    raise SystemExit("parameters without gradient were not noticed")
except RuntimeError as e:
    assert "Expected to have finished reduction in the prior iteration" in str(e), e

# a hook of the user
m = model()
d = DDP(m)
def hook(state, bucket):
    state.append(bucket.buffer().numel())
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda f: f.value()[0] / n)
sizes = []
d.register_comm_hook(sizes, hook)
((d(x) - y) ** 2).mean().backward()
ref = model()
((ref(X) - Y) ** 2).mean().backward()
assert all((p.grad - q.grad).abs().max() < 1e-6 for p, q in zip(m.parameters(), ref.parameters()))
say("hook", sum(sizes))

try:
    DDP(nn.ReLU())
    raise SystemExit("a module without parameters was taken")
except RuntimeError as e:
    assert "doesn't have any parameter that requires a gradient" in str(e)
dist.barrier()
dist.destroy_process_group()
'''


def test_data_parallel_training():
    out = ranks.run(3, PROGRAM).out
    assert "hook 420" in out[0] and "curve [" in out[0], out[0]


def test_compiled_step_is_one_graph():
    r = ranks.run(2, r'''
import taper as torch, taper.distributed as dist
from taper.nn.parallel import DistributedDataParallel as DDP
from taper._dynamo.utils import counters
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
nn = torch.nn
X, Y = (torch.arange(64.).reshape(8, 8) * .11).cos(), (torch.arange(32.).reshape(8, 4) * .07).sin()
x, y = X[r * 4:r * 4 + 4], Y[r * 4:r * 4 + 4]
def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
for outside in (True, False):
    ref, m = model(), model()
    d = torch.compile(DDP(m), fullgraph=True) if outside else DDP(torch.compile(m, fullgraph=True))
    o, o2 = torch.optim.AdamW(m.parameters(), 0.01), torch.optim.AdamW(ref.parameters(), 0.01)
    for step in range(8):
        o.zero_grad(), o2.zero_grad()
        ((d(x) - y) ** 2).mean().backward()
        ((ref(X) - Y) ** 2).mean().backward()
        o.step(), o2.step()
    assert max((p - q).abs().max() for p, q in zip(m.parameters(), ref.parameters())) < 1e-5
assert counters["stats"]["unique_graphs"] == 2 and not counters["graph_break"], counters
print("good")
''')
    assert r.out == ["good\n"] * 2, r.out


def test_models_that_differ_are_named():
    r = ranks.run(2, """
import taper, taper.distributed as dist
dist.init_process_group("gloo")
taper.nn.parallel.DistributedDataParallel(taper.nn.Linear(3, 2 + dist.get_rank()))
""", check=False)
    assert r.code and all("same model across all ranks, but rank 1 has ('weight', (3, 3)" in o for o in r.out), r.out


def test_batch_norm_over_all_ranks():
    r = ranks.run(2, r'''
import taper as torch, taper.distributed as dist
dist.init_process_group("gloo")
r = dist.get_rank()
torch.manual_seed(0)
X = torch.randn(6, 3, 4, 4, dtype=torch.float64) * 3 + 2
mine = slice(0, 2) if r == 0 else slice(2, 6)  # batches of different sizes
for compiled in (False, True):
    for kw in ({}, {"momentum": None, "affine": False}, {"track_running_stats": False}):
        m, ref = torch.nn.SyncBatchNorm(3, dtype=torch.float64, **kw), torch.nn.BatchNorm2d(3, dtype=torch.float64, **kw)
        f = torch.compile(m, fullgraph="momentum" not in kw) if compiled else m
        x, all_x = X[mine].clone().requires_grad_(), X.clone().requires_grad_()
        for _ in range(2):
            y, all_y = f(x), ref(all_x)
        (y ** 3).sum().backward()
        (all_y ** 3).sum().backward()
        pairs = [(y, all_y[mine]), (x.grad, all_x.grad[mine])]
        if m.affine:
            g = m.weight.grad.clone()
            dist.all_reduce(g)
            pairs.append((g, ref.weight.grad))
        pairs += [(a.double(), b.double()) for a, b in zip(m.buffers(), ref.buffers())]
        for a, b in pairs:
            assert (a - b).abs().max() < 1e-9, (compiled, kw, a, b)
        m.eval(), ref.eval()
        assert (f(x) - ref(x)).abs().max() < 1e-9  # no collective in eval mode
print("good")
''')
    assert r.out == ["good\n"] * 2, r.out
