"""Collectives on CUDA tensors over NCCL, without GPUs: a libnccl between processes (tests/gpu/fake_nccl.c) on the libcuda of the tests."""
import os
import tempfile
import unittest

import ranks
from test_cuda import FAKE, long_under_sanitizers

LIBRARY = os.path.join(os.path.dirname(FAKE), "libtaper_fakenccl.so")
if not os.path.exists(LIBRARY):
    raise unittest.SkipTest(f"no {LIBRARY}")


def run(n, source, check=True, **env):
    long_under_sanitizers()
    with tempfile.TemporaryDirectory(prefix="taper-nccl-") as d:
        return ranks.run(n, source, check=check, env={"TAPER_CUDA_LIBRARY": FAKE, "TAPER_NCCL_LIBRARY": LIBRARY, "FAKE_NCCL_DIR": d, "FAKE_CUDA_DEVICES": "4", **env})


HEAD = r'''
import taper, taper.distributed as dist
assert dist.is_nccl_available() and dist.is_backend_available("nccl")
dist.init_process_group("nccl")
r, n = dist.get_rank(), dist.get_world_size()
gpu = taper.device("cuda", r)
taper.cuda.set_device(gpu)
def on(*v, dtype=None): return taper.tensor(v, device=gpu, dtype=dtype)
def is_(t, want):
    assert t.device == gpu and t.tolist() == want, (t, want)
'''

COLLECTIVES = HEAD + r'''
assert dist.get_backend() == "nccl"
for dt in (taper.float32, taper.float64, taper.float16, taper.bfloat16, taper.int32, taper.int64, taper.uint8, taper.int8):
    for op, f in ((dist.ReduceOp.SUM, sum), (dist.ReduceOp.MAX, max), (dist.ReduceOp.MIN, min), (dist.ReduceOp.PRODUCT, lambda v: v[0] * v[1] * v[2])):
        x = on(r + 1, 2 * r + 1, 3, dtype=dt)
        before = x.data_ptr()
        w = dist.all_reduce(x, op, async_op=dt is taper.float64)
        if w is not None:
            w.wait()
            assert w.is_completed() and w.is_success()
        is_(x, [f([1, 2, 3]), f([1, 3, 5]), f([3, 3, 3])])
        assert x.data_ptr() == before
x = on(r + 1.)
dist.all_reduce(x, dist.ReduceOp.AVG)
is_(x, [2.])
x = on(r == 1, False)
dist.all_reduce(x)
is_(x, [True, False])
x = taper.arange(6., device=gpu).view(2, 3).t() * (r + 1)  # not contiguous
dist.all_reduce(x)
assert (x.cpu() == taper.arange(6.).view(2, 3).t() * 6).all()
x = on(r, 7)
dist.broadcast(x, 1)
is_(x, [1, 7])
x = on(r, 7)
dist.reduce(x, 2)
is_(x, [3, 21] if r == 2 else [r, 7])
out = [taper.zeros(2, dtype=taper.int64, device=gpu) for _ in range(n)]
dist.all_gather(out, on(r, r * r))
assert [o.tolist() for o in out] == [[i, i * i] for i in range(n)]
out = [taper.zeros(i + 1, device=gpu) for i in range(n)]  # uneven
dist.all_gather(out, taper.full((r + 1,), float(r), device=gpu))
assert [o.tolist() for o in out] == [[float(i)] * (i + 1) for i in range(n)]
out = taper.zeros(2 * n, device=gpu)
w = dist.all_gather_into_tensor(out, on(float(r), 3.), async_op=True)
assert w.wait() and out.tolist() == [0, 3, 1, 3, 2, 3]
part = taper.zeros(2, device=gpu)
dist.reduce_scatter_tensor(part, taper.arange(2. * n, device=gpu) * (r + 1))
is_(part, [6. * (2 * r), 6. * (2 * r + 1)])
dist.reduce_scatter(part, list((taper.arange(2. * n, device=gpu) * (r + 1)).chunk(n)), op=dist.ReduceOp.MAX)
is_(part, [3. * (2 * r), 3. * (2 * r + 1)])
out = taper.zeros(n, dtype=taper.int16, device=gpu)  # a type NCCL has not: it travels as bytes
dist.all_to_all_single(out, (taper.arange(n, device=gpu) + 10 * r).to(taper.int16))
is_(out, [r + 10 * i for i in range(n)])
out = taper.zeros(sum(i + 1 for i in range(n)), device=gpu)
dist.all_to_all_single(out, taper.full((n * (r + 1),), float(r), device=gpu), [i + 1 for i in range(n)], [r + 1] * n)
is_(out, [float(i) for i in range(n) for _ in range(i + 1)])
outs = [taper.zeros(2, device=gpu) for _ in range(n)]
dist.all_to_all(outs, [taper.full((2,), float(10 * r + i), device=gpu) for i in range(n)])
assert [o.tolist() for o in outs] == [[10. * i + r] * 2 for i in range(n)]
got = [taper.zeros(1, device=gpu) for _ in range(n)] if r == 1 else None
dist.gather(on(float(r)), got, dst=1)
assert got is None or [g.item() for g in got] == [0, 1, 2]
mine = taper.zeros(2, device=gpu)
dist.scatter(mine, [taper.full((2,), i + 5., device=gpu) for i in range(n)] if r == 2 else None, src=2)
is_(mine, [r + 5., r + 5.])
dist.barrier()
dist.all_reduce(taper.empty(0, device=gpu))
# messages
if r == 0:
    dist.send(on(1.5, 2.5), 1)
if r == 1:
    x = on(0., 0.)
    assert dist.recv(x, 0) == 0
    is_(x, [1.5, 2.5])
a, b = taper.full((1000,), float(r), device=gpu), taper.zeros(1000, device=gpu)
works = dist.batch_isend_irecv([dist.P2POp(dist.isend, a, (r + 1) % n), dist.P2POp(dist.irecv, b, (r - 1) % n)])  # all send first
for w in works:
    w.wait()
assert (b == (r - 1) % n).all()
# what is on the CPU goes over the host's back end, objects too
x = taper.tensor([r])
dist.all_reduce(x)
assert x.tolist() == [3]
everything = [None] * n
dist.all_gather_object(everything, {"rank": r})
assert [e["rank"] for e in everything] == [0, 1, 2]
# groups
g = dist.new_group([0, 2])
if r != 1:
    x = on(r + 1.)
    dist.all_reduce(x, group=g)
    is_(x, [4.])
for call, error, text in ((lambda: dist.all_reduce(on(1), dist.ReduceOp.BXOR), ValueError, "bxor"), (lambda: dist.all_reduce(on(1, dtype=taper.int16)), TypeError, "int16"),
                          (lambda: dist.recv(on(1)), ValueError, "src="), (lambda: dist.all_reduce(taper.ones(1, device=taper.device("cuda", (r + 1) % 4))), ValueError, "set_device")):
    try:
        call()
    except error as e:
        assert text in str(e), e
    else:
        raise SystemExit(f"no error: {text}")
dist.barrier()
dist.destroy_process_group()
'''


def test_collectives():
    run(3, COLLECTIVES)


DDP = HEAD + r'''
import copy
from taper.distributed._functional_collectives import all_reduce
taper.manual_seed(0)
net = taper.nn.Sequential(taper.nn.Linear(5, 16), taper.nn.Tanh(), taper.nn.Linear(16, 3))
data, target = taper.randn(4 * n, 5), taper.randn(4 * n, 3)
alone = copy.deepcopy(net)
if r:
    for p in net.parameters():
        p.data.zero_()  # rank 0's are what counts
model = taper.nn.parallel.DistributedDataParallel(net.to(gpu), device_ids=[r], bucket_cap_mb=0.0002)
assert len(model.reducer.buckets) > 1
opts = [taper.optim.SGD(m.parameters(), lr=0.1) for m in (model, alone)]
def step(m, x, y, opt):
    opt.zero_grad()
    loss = (m(x) - y).square().mean()
    loss.backward()
    opt.step()
for _ in range(3):
    step(model, data[4 * r:4 * r + 4].to(gpu), target[4 * r:4 * r + 4].to(gpu), opts[0])
    step(alone, data, target, opts[1])
for p, q in zip(model.parameters(), alone.parameters()):
    assert p.device == gpu and (p.cpu() - q).abs().max() < 1e-5, (p, q)
out = taper.compile(lambda x: all_reduce(x * 2, "sum") + 1)(taper.full((3,), float(r), device=gpu))
assert out.device == gpu and out.tolist() == [7.] * 3, out
dist.destroy_process_group()
'''


def test_data_parallel_and_graphs():
    run(3, DDP)


def test_a_rank_that_is_missing_is_named():
    source = HEAD + r'''
import time
dist.all_reduce(on(1.))
if r == 1:
    time.sleep(600)
dist.all_reduce(on(2.))
'''
    p = run(2, source, check=False, TAPER_COMM_TIMEOUT="1.5")
    assert p.code and "all_reduce number" in p.out[0] and "rank 1 is missing" in p.out[0], p.out


def test_a_rank_that_died_is_named():
    source = HEAD + r'''
import os
w = dist.all_reduce(on(1.), async_op=True)
w.wait()
if r == 1:
    os.kill(os.getpid(), 9)
dist.all_reduce(on(2.))
'''
    p = run(2, source, check=False)
    assert p.code and "rank 1 has died" in p.out[0], p.out


def test_ranks_that_disagree_are_named():
    p = run(2, HEAD + "dist.all_reduce(taper.ones(2 + r, device=gpu))\n", check=False)
    assert p.code and "ranks disagree about collective number" in p.out[0] + p.out[1], p.out


def test_errors_of_the_library_are_named():
    p = run(2, HEAD + "dist.all_reduce(on(1.))\ndist.all_reduce(on(2.))\n", check=False, FAKE_NCCL_FAULT="2")
    assert p.code and "NCCL: all_reduce: remote process exited or there was a network error: fake NCCL" in p.out[0] + p.out[1], p.out
    p = run(2, HEAD + "dist.all_gather_into_tensor(taper.ones(4, device=gpu), on(2., 3.))\n", check=False, FAKE_NCCL_REFUSE="ncclAllGather")
    assert p.code and "NCCL: all_gather: unhandled system error" in p.out[0] + p.out[1], p.out
    p = run(2, HEAD, check=False, FAKE_NCCL_REFUSE="ncclCommInitRank")
    assert p.code and "NCCL: ncclCommInitRank: unhandled system error" in p.out[0] + p.out[1], p.out


def test_ranks_that_share_a_gpu_are_named_on_every_rank():
    p = run(3, "import taper\ntaper.cuda.set_device(1)\n" + HEAD, check=False)
    assert p.code and all("ValueError: ranks 0, 1, 2 of this group have the same GPU (0:1:400 " in o and "LOCAL_RANK" in o for o in p.out), p.out
    p = run(3, "import taper, os\ntaper.cuda.set_device(1 + int(os.environ['RANK']) // 2)\n" + HEAD, check=False)
    assert p.code and all("ValueError: ranks 0, 1 of this group have the same GPU (0:1:400 " in o for o in p.out), p.out


def test_without_the_library_or_a_gpu():
    source = r'''
import taper.distributed as dist
print(dist.is_nccl_available())
try:
    dist.init_process_group("nccl")
except RuntimeError as e:
    print(e)
'''
    p = run(1, source, TAPER_NCCL_LIBRARY="/nowhere/libnccl.so.2")
    assert p.out[0].startswith("False\n") and "TAPER_NCCL_LIBRARY" in p.out[0], p.out
    p = run(1, source, TAPER_CUDA_LIBRARY="/nowhere/libcuda.so.1")
    assert p.out[0].startswith("True\n") and "no GPUs found" in p.out[0], p.out
