"""The same programs on several ranks with PyTorch's gloo and with Taper: what rank 0 prints is equal."""
import os
import socket
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not importable")

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "py"))
import ranks
import test_ddp

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    raise unittest.SkipTest("this PyTorch has no gloo")

CALLS = r'''
import sys
if "torch" in sys.argv:
    import torch, torch.distributed as dist
else:
    import taper as torch, taper.distributed as dist
import datetime, re
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
def show(label, f):
    try:
        v = f()
    except Exception as e:
        v = type(e).__name__, re.sub(r"object at 0x\w+|\s+", " ", str(e))[:60]
    got = [None] * n
    dist.all_gather_object(got, repr(v).replace("taper", "torch"))
    if r == 0:
        print(label, got)
def after(fn, *tensors):
    w = fn(*tensors)
    if w is not None:
        w.wait()
    return [t.tolist() for t in tensors]
t = lambda *v: torch.tensor(v)
for dt in (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.int8):
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
        show((str(dt).split(".")[-1], str(op).split(".")[-1]), lambda: after(lambda x: dist.all_reduce(x, op), torch.tensor([r + 1, 2 * r, 3 - r if dt != torch.uint8 else r]).to(dt)))
for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
    show(str(op).split(".")[-1], lambda: after(lambda x: dist.all_reduce(x, op), t(r + 5, 12 >> r)))
show("async", lambda: after(lambda x: dist.all_reduce(x, async_op=True), t(r, 1.5)))
show("broadcast", lambda: after(lambda x: dist.broadcast(x, 1), t(r, 7)))
show("reduce", lambda: after(lambda x: dist.reduce(x, 0), t(r, 7))[0 if r == 0 else 1:][:1 if r == 0 else 0])
outs = [torch.zeros(2, dtype=torch.int64) for _ in range(n)]
show("all_gather", lambda: (dist.all_gather(outs, t(r, r * r)), [o.tolist() for o in outs]))
show("into", lambda: after(lambda o: dist.all_gather_into_tensor(o, t(r, 3)), torch.zeros(2 * n, dtype=torch.int64)))
show("reduce_scatter", lambda: after(lambda o: dist.reduce_scatter_tensor(o, torch.arange(2 * n) * (r + 1)), torch.zeros(2, dtype=torch.int64)))
show("to_all", lambda: after(lambda o: dist.all_to_all_single(o, torch.arange(n) + 10 * r), torch.zeros(n, dtype=torch.int64)))
show("splits", lambda: after(lambda o: dist.all_to_all_single(o, torch.arange(n * (r + 1)) + 100 * r, [i + 1 for i in range(n)], [r + 1] * n), torch.zeros(n * (n + 1) // 2, dtype=torch.int64)))
g = dist.new_group([0, 2])
show("group", lambda: after(lambda x: dist.all_reduce(x, group=g), t(r, 1)) if r != 1 else None)
show("ranks", lambda: (dist.get_rank(g), dist.get_world_size(g)))
show("objects", lambda: (lambda b: (dist.broadcast_object_list(b, 2), b))([{"r": r}, [r]]))
show("wrong op", lambda: after(lambda x: dist.all_reduce(x, dist.ReduceOp.BAND), t(1.5)))
show("no tensor", lambda: dist.all_reduce(3))
show("rank", lambda: dist.new_group([7]))
show("twice", lambda: dist.init_process_group("gloo"))
show("to itself", lambda: dist.send(t(1), r))
show("backend", lambda: (dist.get_backend(), dist.is_initialized(), dist.get_world_size(), dist.get_process_group_ranks(dist.group.WORLD)))
def ring():
    a, b = t(r, 5), torch.zeros(2, dtype=torch.int64)
    for w in dist.batch_isend_irecv([dist.P2POp(dist.isend, a, (r + 1) % n), dist.P2POp(dist.irecv, b, (r - 1) % n)]):
        w.wait()
    return b.tolist()
show("ring", ring)
dist.destroy_process_group()
show = None
try:
    dist.get_rank()
except ValueError as e:
    print(r, str(e)[:60]) if r == 0 else None
'''

SHARED = r'''
import sys
if "torch" in sys.argv:
    import torch, torch.distributed as dist
    import torch.distributed.nn.functional as nnf, torch.distributed._functional_collectives as fc
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
else:
    import taper as torch, taper.distributed as dist
    import taper.distributed.nn.functional as nnf, taper.distributed._functional_collectives as fc
    from taper.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
import datetime, os, tempfile, threading, time
dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
def show(label, f):
    try:
        v = f()
    except Exception as e:
        v = type(e).__name__
    got = [None] * n
    dist.all_gather_object(got, repr(v).replace("taper", "torch"))
    if r == 0:
        print(label, got)
# stores
second = datetime.timedelta(seconds=20)
box = [None]
if r == 0:
    tcp = dist.TCPStore("127.0.0.1", 0, None, True, timeout=second, wait_for_workers=False)
    box = [(tcp.port, os.path.join(tempfile.mkdtemp(), "store"))]
dist.broadcast_object_list(box, src=0)
if r:
    tcp = dist.TCPStore("127.0.0.1", box[0][0], None, False, timeout=second, wait_for_workers=False)
for name, s in (("tcp", tcp), ("file", dist.FileStore(box[0][1], n)), ("prefix", dist.PrefixStore("a", tcp)), ("twice", dist.PrefixStore("b", dist.PrefixStore("c", tcp)))):
    dist.barrier()
    if r == 0:
        time.sleep(0.05)  # the others wait for it
        s.set("first", "by 0")
    show(name + " get", lambda: s.get("first"))
    show(name + " add", lambda: (s.add("count", r + 1) > 0, dist.barrier(), s.add("count", 0)))
    show(name + " set", lambda: (s.set(f"of {r}", bytes([r, 255])), dist.barrier(), [s.get(f"of {i}") for i in range(n)]))
    show(name + " check", lambda: (s.check(["first", "count"]), s.check(["first", "never"]), s.wait(["first"])))
    show(name + " compare", lambda: (s.compare_set("c", "", "x") if r == 0 else None, dist.barrier(), s.compare_set("c", "y", "z"), s.compare_set("c", "x", "x")) if name != "file" else None)
    def late():
        try:
            s.wait(["never"], datetime.timedelta(milliseconds=60))
        except RuntimeError:
            return "late"
    show(name + " late", late)
    show(name + " delete", lambda: (dist.barrier(), s.delete_key("first") if r == 0 else True, dist.barrier(), s.check(["first"])))
h = dist.HashStore()
threading.Timer(0.05, lambda: h.set("k", "v")).start()
show("hash", lambda: (h.get("k"), h.add("n", 5), h.add("n", -2), h.num_keys()))
# gradients through collectives, permutations
x = (torch.arange(2. * n) + r).requires_grad_()
def through(y):
    x.grad = None
    (y * (r + 1)).sum().backward()
    return y.tolist(), x.grad.tolist()
show("reduce_scatter", lambda: through(nnf.reduce_scatter(torch.empty(2), list(x.chunk(n)))))
show("all_to_all_single", lambda: through(nnf.all_to_all_single(torch.empty(2 * n), x)))
show("permute", lambda: fc.permute_tensor(torch.arange(3) + r * 10, [(i + 1) % n for i in range(n)], list(range(n))).tolist())
# hooks of DistributedDataParallel
for hook in ("none", "allreduce_hook", "fp16_compress_hook", "fp16_compress_wrapper"):
    torch.manual_seed(0)
    m = torch.nn.Linear(3, 2)
    with torch.no_grad():
        m.weight.copy_(torch.arange(6.).view(2, 3) / 4)
    m = torch.nn.parallel.DistributedDataParallel(m)
    if hook != "none":
        f = getattr(hooks, hook)
        m.register_comm_hook(None, f(hooks.allreduce_hook) if "wrapper" in hook else f)
    m(torch.arange(6.).view(2, 3) / 8 + r).square().sum().backward()
    show(hook, lambda: [round(v, 4) for v in m.module.weight.grad.flatten().tolist()])
show("names", lambda: (dist.get_debug_level().name, dist.get_default_backend_for_device("cpu"), dist.supports_complex(dist.ReduceOp.MAX), isinstance(m, torch.nn.Module)))
dist.barrier()
dist.destroy_process_group()
'''


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def _torch(n, source):
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "program.py")
        with open(path, "w") as f:
            f.write(source)
        env = dict(os.environ, OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=_free_port(), WORLD_SIZE=str(n))
        ps = [subprocess.Popen([sys.executable, "-W", "ignore", path, "torch"], env=dict(env, RANK=str(r)), stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL if r else subprocess.PIPE, text=True) for r in range(n)]
        out, err = ps[0].communicate(timeout=200)
        assert all(p.wait(60) == 0 for p in ps), err
        return out


def _same(source):
    want, got = _torch(3, source).splitlines(), ranks.run(3, source).out[0].splitlines()
    assert len(want) == len(got), (want, got)
    for a, b in zip(want, got):
        assert a == b, f"PyTorch: {a}\nTaper:   {b}"


def test_calls():
    _same(CALLS)


def test_data_parallel():
    _same(test_ddp.PROGRAM)


def test_stores_hooks_and_functions_with_gradients():
    _same(SHARED)
