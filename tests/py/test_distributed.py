"""Collectives between processes: values against what they must be, over shared memory and over MPI."""
import os

import ranks
import taper

COLLECTIVES = r'''
import taper, taper.distributed as dist
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
ops = dist.ReduceOp
want = {ops.SUM: sum, ops.MAX: max, ops.MIN: min, ops.PRODUCT: lambda v: __import__("math").prod(v), ops.AVG: lambda v: sum(v) / n}
for dt in (taper.float32, taper.float64, taper.float16, taper.bfloat16, taper.int8, taper.int16, taper.int32, taper.int64, taper.uint8):
    for op, f in want.items():
        if op is ops.AVG and not dt.is_floating_point:
            continue
        for size in (1, 5, 4097, 70001):
            x = taper.full((size,), r + 1).to(dt)
            x[-1] = 2 * r + 1
            w = dist.all_reduce(x, op, async_op=size == 5)
            if w is not None:
                w.wait()
                assert w.is_completed() and w.is_success()
            expect = taper.full((size,), f([i + 1 for i in range(n)])).to(dt)
            expect[-1] = f([2 * i + 1 for i in range(n)])
            assert (x == expect).all(), (dt, op, size, x, expect)
bits = [6, 5, 3, 12][:n]
import functools, operator
for op, f in ((ops.BAND, operator.and_), (ops.BOR, operator.or_), (ops.BXOR, operator.xor)):
    x = taper.tensor(bits[r])
    dist.all_reduce(x, op)
    assert x == functools.reduce(f, bits), (op, x)
b = taper.tensor([r == 0, True, False])
dist.all_reduce(b)
assert b.tolist() == [True, True, False]
# not contiguous, empty, scalar
x = taper.arange(6.).view(2, 3).t() * (r + 1)
dist.all_reduce(x)
assert (x == taper.arange(6.).view(2, 3).t() * (n * (n + 1) / 2)).all()
dist.all_reduce(taper.empty(0))
s = taper.tensor(float(r))
dist.all_reduce(s, ops.MAX)
assert s == n - 1
# gathering and spreading, larger than the buffers
for m in (3, 90001):
    mine = taper.arange(m) + r * m
    whole = taper.arange(n * m)
    out = [taper.empty(m, dtype=taper.int64) for _ in range(n)]
    dist.all_gather(out, mine)
    assert (taper.cat(out) == whole).all()
    flat = taper.empty(n * m, dtype=taper.int64)
    w = dist.all_gather_into_tensor(flat, mine, async_op=True)
    w.wait()
    assert (flat == whole).all()
    got = [taper.empty(m, dtype=taper.int64) for _ in range(n)] if r == n - 1 else None
    dist.gather(mine, got, dst=n - 1)
    assert got is None or (taper.cat(got) == whole).all()
    part = taper.empty(m, dtype=taper.int64)
    dist.scatter(part, list(whole.split(m)) if r == 0 else None, src=0)
    assert (part == mine).all()
    dist.reduce_scatter_tensor(part, whole * (r + 1))
    assert (part == mine * (n * (n + 1) // 2)).all()
    dist.reduce_scatter(part, list((whole * (r + 1)).split(m)), op=ops.MAX)
    assert (part == mine * n).all()
    y = mine.clone()
    dist.broadcast(y, src=n - 1)
    assert (y == whole[-m:]).all()
    y = mine.clone()
    dist.reduce(y, dst=0)
    assert r or (y == taper.stack(list(whole.split(m))).sum(0)).all()
    z = taper.empty(n * m, dtype=taper.int64)
    dist.all_to_all_single(z, whole + r * 1000000)
    assert (z == taper.cat([mine + i * 1000000 for i in range(n)])).all()
# uneven
sizes = [i + 1 for i in range(n)]
o = taper.empty(sum(sizes) * 50000)
dist.all_to_all_single(o, taper.full((n * (r + 1) * 50000,), float(r)), [50000 * k for k in sizes], [50000 * (r + 1)] * n)
assert (o == taper.cat([taper.full((50000 * k,), float(k - 1)) for k in sizes])).all()
outs = [taper.empty(k) for k in sizes]
dist.all_to_all(outs, [taper.full((r + 1,), float(r * 10 + i)) for i in range(n)])
assert all((outs[k] == k * 10 + r).all() for k in range(n))
outs = [taper.empty(k, 2) for k in sizes]
dist.all_gather(outs, taper.full((r + 1, 2), float(r)))
assert all((outs[k] == k).all() for k in range(n))
# messages: in order for a tag, tags apart, large ones, from anybody
if n > 1:
    right, left = (r + 1) % n, (r - 1) % n
    a, c = taper.full((100000,), float(r)), taper.empty(100000)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, a, right), dist.P2POp(dist.irecv, c, left)])
    for w in works:
        w.wait()
    assert (c == left).all()
    if r == 0:
        for i in range(5):
            dist.send(taper.tensor([i]), 1, tag=3)
        dist.send(taper.tensor([99]), 1, tag=4)
    if r == 1:
        t = taper.tensor([0])
        assert dist.recv(t, 0, tag=4) == 0 and t == 99
        for i in range(5):
            dist.recv(t, 0, tag=3)
            assert t == i
    dist.barrier()
    if r:
        dist.send(taper.tensor([r]), 0)
    else:
        t, seen = taper.tensor([0]), set()
        for _ in range(n - 1):
            src = dist.recv(t)
            assert src == t
            seen.add(src)
        assert seen == set(range(1, n))
# objects
everything = [None] * n
dist.all_gather_object(everything, {"rank": r, "t": taper.ones(r + 1, dtype=taper.bfloat16), "x": [1, (2.5, None, "é"), {3}], "b": b"\0"})
assert [e["rank"] for e in everything] == list(range(n)) and all(e["t"].shape == (i + 1,) and e["x"] == [1, (2.5, None, "é"), {3}] for i, e in enumerate(everything))
box = [r, "x" * r] if r else [{"from": 0}, None]
dist.broadcast_object_list(box, src=0)
assert box == [{"from": 0}, None]
one = [None]
dist.scatter_object_list(one, [f"for {i}" for i in range(n)] if r == 0 else None, src=0)
assert one == [f"for {r}"]
got = [None] * n if r == 0 else None
dist.gather_object(r * r, got, dst=0)
assert r or got == [i * i for i in range(n)]
class Own: pass
try:
    dist.all_gather_object(everything, Own())
    raise SystemExit("an object of a class was sent")
except TypeError as e:
    assert "TAPER_COMM_PICKLE" in str(e)
# groups
evens = dist.new_group(list(range(0, n, 2)))
x = taper.ones(3)
dist.all_reduce(x, group=evens)
assert (x == ((n + 1) // 2 if r % 2 == 0 else 1)).all()
assert dist.get_rank(evens) == (r // 2 if r % 2 == 0 else -1)
if r % 2 == 0:
    assert dist.get_process_group_ranks(evens) == list(range(0, n, 2)) and dist.get_global_rank(evens, dist.get_world_size(evens) - 1) == (n - 1) // 2 * 2
    y = taper.tensor([float(r)])
    dist.broadcast(y, src=(n - 1) // 2 * 2, group=evens)
    assert y == (n - 1) // 2 * 2
from taper.distributed.device_mesh import init_device_mesh
if n == 4:
    m = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    x = taper.tensor([r])
    dist.all_reduce(x, group=m["tp"].get_group())
    y = taper.tensor([r])
    dist.all_reduce(y, group=m.get_group("dp"))
    assert m.get_coordinate() == [r // 2, r % 2] and x == [1, 5][r // 2] and y == [2, 4][r % 2] and m["dp"].size() == 2
# gradients
import taper.distributed.nn as dnn
x = taper.tensor([1., 2.], requires_grad=True)
(dnn.all_reduce(x * (r + 1)) ** 2).sum().backward()
total = n * (n + 1) / 2
assert taper.allclose(x.grad, taper.tensor([2., 4.]) * total * n * (r + 1)), x.grad
# many small ones at once
ts = [taper.full((10,), float(i + r)) for i in range(40)]
for w in [dist.all_reduce(t, async_op=True) for t in ts]:
    w.wait()
assert all((t == i * n + n * (n - 1) / 2).all() for i, t in enumerate(ts))
dist.destroy_process_group()
assert not dist.is_initialized()
print("good", r)
'''


def _collectives(n, launcher="processes"):
    result = ranks.run(n, COLLECTIVES, launcher)
    assert [o.strip() for o in result.out] == [f"good {i}" for i in range(n)], result.out


def test_collectives_one_rank():
    _collectives(1)


def test_collectives_three_ranks():
    _collectives(3)


def test_collectives_four_ranks():
    _collectives(4)


def test_shared_memory_leaves_no_files():
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    ranks.run(2, "import taper.distributed as d; d.init_process_group('gloo'); d.barrier(); d.new_group([0]); d.barrier()")
    after = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    assert not [f for f in after - before if f.startswith("taper-") and ".calls" in f], after - before


def test_join_leave_and_join_again():
    ranks.run(2, """
import taper, taper.distributed as d
for i in range(3):
    d.init_process_group("gloo")
    x = taper.ones(2)
    d.all_reduce(x)
    assert x[0] == 2
    d.destroy_process_group()
""")


def test_launcher_tells_the_ranks_who_they_are():
    r = ranks.run(2, "import os; print(*(os.environ[k] for k in 'RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR'.split())); import sys; print(sys.argv[1:])", args=["--a", "b"])
    assert r.out == ["0 0 2 2 127.0.0.1\n['--a', 'b']\n", "1 1 2 2 127.0.0.1\n['--a', 'b']\n"], r.out


def test_launcher_gives_the_status_of_the_rank_that_failed():
    r = ranks.run(2, "import os, sys; sys.exit(7 if os.environ['RANK'] == '1' else 0)", check=False)
    assert r.code == 7 and "rank 1" in r.err and "exit status 7" in r.err, (r.code, r.err)


def test_errors_of_arguments():
    import taper.distributed as dist
    with _raises(ValueError, "has not been initialized"):
        dist.get_rank()
    for k in ("RANK", "WORLD_SIZE"):
        os.environ.pop(k, None)
    with _raises(ValueError, "environment variable RANK expected, but not set"):
        dist.init_process_group("gloo")
    with _raises(ValueError, "Invalid backend"):
        dist.init_process_group("carrier-pigeon", rank=0, world_size=1)
    with _raises(RuntimeError, "NCCL"):
        dist.init_process_group("nccl", rank=0, world_size=1)
    dist.init_process_group("gloo", rank=0, world_size=1)
    try:
        with _raises(ValueError, "twice"):
            dist.init_process_group("gloo", rank=0, world_size=1)
        with _raises(TypeError, "Expected parameter `tensor`"):
            dist.all_reduce(3)
        with _raises(RuntimeError, "non-integral"):
            dist.all_reduce(taper.ones(2), dist.ReduceOp.BAND)
        with _raises(RuntimeError, "invalid root rank"):
            dist.broadcast(taper.ones(2), 5)
        with _raises(RuntimeError, "expected length 1, got 2"):
            dist.all_gather([taper.ones(2), taper.ones(2)], taper.ones(2))
        with _raises(RuntimeError, "world_size times"):
            dist.all_gather_into_tensor(taper.ones(3), taper.ones(2))
        with _raises(RuntimeError, "Split sizes"):
            dist.all_to_all_single(taper.ones(2), taper.ones(2), [1], [2])
        with _raises(ValueError, "gather_list"):
            dist.gather(taper.ones(2))
        with _raises(ValueError, "same as the rank of the current process"):
            dist.send(taper.ones(1), 0)
        with _raises(ValueError, "out of range"):
            dist.new_group([3])
    finally:
        dist.destroy_process_group()


def test_damaged_objects_are_refused():
    from taper.distributed import _objects
    good = _objects.encode({"a": [1, 2.5, "x", taper.ones(2)]})
    assert list(_objects.decode(good)) == ["a"]
    for i in range(len(good)):
        for bad in (good[:i], good[:i] + b"\xff" + good[i + 1:]):
            try:
                _objects.decode(bad)
            except (ValueError, TypeError, AttributeError, KeyError, RuntimeError, UnicodeDecodeError, OverflowError, MemoryError):
                pass
    with _raises(ValueError, "pickle"):
        _objects.decode(b"P" + b"cos\nsystem\n")


def test_a_store_outlives_garbage():
    import datetime
    import socket
    import taper.distributed as dist
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    for garbage in (b"", b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 64, b"\1\0\0\0\4\0\0\0\xff\xff\xff\xff", b"\2\0\0\0\7\0\0\0abc", b"\0" * 8,
                    b"\2\0\0\0\x0e\0\0\0\3\0\0\0add\3\0\0\0abc"):
        with socket.create_connection(("127.0.0.1", store.port)) as s:
            try:  # the store may have hung up already
                s.sendall(garbage)
                s.shutdown(socket.SHUT_WR)
                s.recv(100)
            except OSError:
                pass
    other = dist.TCPStore("127.0.0.1", store.port, None, False, wait_for_workers=False)
    other.set("k", b"v")
    assert store.get("k") == b"v" and store.add("n", 2) == 2 and store.num_keys() == 2
    with _raises(dist.DistStoreError, "never"):
        other.wait(["never"], datetime.timedelta(milliseconds=1))
    with _raises(dist.DistNetworkError, "is_master=True"):
        dist.TCPStore("127.0.0.1", 1, None, False, datetime.timedelta(milliseconds=1))
    with _raises(dist.DistNetworkError, "listen"):
        dist.TCPStore("127.0.0.1", store.port, None, True, wait_for_workers=False)


HELPERS = r'''
import taper, taper.distributed as dist
from taper.distributed import collective_utils as cu, utils
from taper.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
import os
r, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.FileStore(os.path.join(os.path.dirname(os.path.abspath(__file__)), "store"), n)
dist.init_process_group("gloo", store=store, rank=r, world_size=n)
m = taper.nn.Sequential(taper.nn.Linear(2, 2), taper.nn.BatchNorm1d(2))
utils._sync_module_states(m, None)
x = [None] * n
dist.all_gather_object(x, [t.tolist() for t in m.state_dict().values()])
assert all(v == x[0] for v in x)
utils._verify_param_shape_across_processes(None, m.parameters())
for f, said in ((lambda: utils._verify_param_shape_across_processes(None, [taper.ones(r + 1)]), "on rank 1"),
                (lambda: cu.broadcast(lambda: 1 // (r - 1), rank=1), "rank 1 (ZeroDivisionError"), (lambda: cu.all_gather(lambda: 1 // r), "rank 0 (ZeroDivisionError")):
    try:
        f()
    except RuntimeError as e:
        assert said in str(e), e
    else:
        raise SystemExit(f"no error: {said}")
assert cu.all_gather(lambda: r * r) == [i * i for i in range(n)] and cu.broadcast(lambda: r + 5, rank=1) == 6
grads = []
for hook in (None, hooks.bf16_compress_hook, hooks.bf16_compress_wrapper(hooks.allreduce_hook)):
    taper.manual_seed(0)
    m = taper.nn.parallel.DistributedDataParallel(taper.nn.Linear(4, 3))
    if hook:
        m.register_comm_hook(None, hook)
    m(taper.arange(8.).view(2, 4) + r).square().sum().backward()
    grads.append(m.module.weight.grad)
assert grads[1].dtype is taper.float32 and 0 < (grads[1] - grads[0]).abs().max() < 0.02 * grads[0].abs().max() and (grads[1] - grads[2]).abs().max() < 0.02 * grads[0].abs().max()
dist.destroy_process_group()
'''


def test_helpers_of_programs():
    ranks.run(3, HELPERS)


class _raises:
    def __init__(self, cls, text):
        self.cls, self.text = cls, text

    def __enter__(self):
        pass

    def __exit__(self, cls, value, tb):
        assert cls is not None and issubclass(cls, self.cls) and self.text in str(value), (cls, value)
        return True
