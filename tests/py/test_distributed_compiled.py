"""Collectives in graphs: nodes that start and wait, in the order of the program, none dropped, joined or computed again."""
import re

import ranks

HEAD = r'''
import taper as torch, taper.distributed as dist
import taper.distributed._functional_collectives as fc
from taper.distributed import distributed_c10d as c10d
from taper._dynamo.utils import counters
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
calls = []
start = c10d._call
def counted(g, kind, *a, **k):
    calls.append(kind)
    return start(g, kind, *a, **k)
c10d._call = counted
'''


def test_functional_collectives_and_their_gradients():
    r = ranks.run(2, HEAD + r'''
def f(x, w):
    h = torch.tanh(x @ w)
    a = fc.all_reduce(h, "sum")
    b = fc.all_reduce(h, "sum")            # the same again: two calls
    fc.all_reduce(h * 2, "max")            # nobody uses it: called all the same
    g = fc.all_gather_tensor(a * b, 1)
    s = fc.reduce_scatter_tensor(g, "sum", 1)
    t = fc.all_to_all_single(s)
    return (t * t).sum()
x = torch.ones(2, 4) * (r + 1) / 8
def run(fn):
    w = ((torch.arange(8.).view(4, 2) - 3) / 8).requires_grad_()
    calls.clear()
    loss = fn(x, w)
    forward = list(calls)
    loss.backward()
    return loss.item(), w.grad, forward, calls[len(forward):]
eager, compiled = run(f), run(torch.compile(f, fullgraph=True))
assert abs(eager[0] - compiled[0]) < 1e-5 and torch.allclose(eager[1], compiled[1], rtol=1e-4), (eager, compiled)
assert compiled[2] == ["all_reduce"] * 3 + ["all_gather", "reduce_scatter", "all_to_all"] == eager[2], compiled[2]
assert sorted(compiled[3]) == sorted(["all_to_all", "all_gather", "reduce_scatter", "all_reduce", "all_reduce"]) == sorted(eager[3]), compiled[3]
eps, w = 1e-2, ((torch.arange(8.).view(4, 2) - 3) / 8).double()
x = x.double()
for i in range(4):  # every rank moves its own copy of w together: the sum of the gradients
    d = torch.zeros(4, 2, dtype=torch.float64)
    d[i, 0] = eps
    slope = (f(x, w + d) - f(x, w - d)) / (2 * eps)
    grads = torch.stack([compiled[1][i, 0].double(), slope])
    dist.all_reduce(grads)
    assert abs(grads[0] - grads[1]) < 1e-2 * max(1, abs(grads[1])), (i, grads)
print("good")
''')
    assert r.out == ["good\n"] * 2, r.out


def test_calls_that_write_become_functional_ones():
    r = ranks.run(2, HEAD + r'''
def f(x, w):
    a = fc.all_reduce(x @ w, "sum")
    b = torch.tanh(w.t() @ w).sum()
    y = x.clone()
    dist.all_reduce(y)
    o = x.new_empty(x.shape[0] * n, x.shape[1])
    dist.all_gather_into_tensor(o, y)
    p = x.new_empty(x.shape)
    dist.reduce_scatter_tensor(p, o)
    l = [x.new_empty(x.shape) for _ in range(n)]
    dist.all_gather(l, p)
    dist.broadcast(y, 1)
    return a.sum() + b + sum(l).sum() + y.mean()
c = torch.compile(f, fullgraph=True)
for k in (1, 2):
    x, w = torch.ones(2, 3) * (r + k), torch.ones(3, 2)
    assert abs(f(x, w) - c(x, w)) < 1e-4
assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]
print("good")
''', env={"TAPER_LOGS": "schedule"})
    steps = re.findall(r"\d+ (?:call|product|kernel) +(\w+)", r.out[0])
    assert all(o.endswith("good\n") for o in r.out), r.out
    # the wait of the first one comes after what does not need it
    assert steps.index("all_reduce") < steps.index("mm_1") < steps.index("wait_tensor") and steps.index("all_reduce_1") < steps.index("wait_tensor"), steps


def test_data_parallel_with_buffers():
    r = ranks.run(2, HEAD + r'''
nn = torch.nn
def make():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
x = (torch.arange(24.).view(6, 4) * (r + 1) * .3).sin()
results = []
for compiled in (False, True):
    m = make()
    d = nn.parallel.DistributedDataParallel(m)
    step = torch.compile(d, fullgraph=True) if compiled else d
    o = torch.optim.SGD(m.parameters(), 0.1)
    for _ in range(4):
        o.zero_grad()
        step(x).square().mean().backward()
        o.step()
    results.append(torch.cat([t.detach().reshape(-1).float() for t in list(m.parameters()) + list(m.buffers())]))
assert (results[0] - results[1]).abs().max() < 1e-5, (results[0] - results[1]).abs().max()
print("good")
''')
    assert all(o.startswith("good") for o in r.out), r.out
