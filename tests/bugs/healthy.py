"""Programs with nothing wrong in them, of the kinds that make a comparison of two runs difficult: taper doctor must find nothing."""
import collections
import textwrap

Healthy = collections.namedtuple("Healthy", "name program args env")
HEALTHY = []


def healthy(name, program, *args):
    HEALTHY.append(Healthy(name, textwrap.dedent(program).strip() + "\n", args, {}))


healthy("dropout", """
    import taper
    taper.manual_seed(0)
    net = taper.nn.Sequential(taper.nn.Linear(8, 32), taper.nn.ReLU(), taper.nn.Dropout(0.3), taper.nn.Linear(32, 1))
    f = taper.compile(net)
    opt = taper.optim.SGD(net.parameters(), lr=0.05)
    x = taper.randn(16, 8)
    for i in range(5):
        loss = f(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {i} loss {loss.item():.4f}")
    """)
healthy("random_numbers", """
    import taper
    @taper.compile
    def noisy(x):
        return x + taper.randn(x.shape[0]) * 0.1 + taper.rand(x.shape[0])
    taper.manual_seed(7)
    print(noisy(taper.zeros(6)))
    print(noisy(taper.zeros(6)).shape)
    """)
healthy("unseeded", """
    import random
    import taper
    @taper.compile
    def f(x):
        return (x * 2).sum()
    print("random batch", f(taper.tensor([random.random() for _ in range(4)])))
    """)
healthy("timing", """
    import time
    import taper
    @taper.compile
    def f(x):
        return taper.softmax(x @ x, -1).sum()
    x = taper.ones(32, 32)
    for i in range(3):
        t = time.perf_counter()
        y = f(x)
        print(f"call {i}: {(time.perf_counter() - t) * 1e3:.3f} ms, {y.item():.2f}")
    """)
healthy("throughput", """
    import time
    import taper
    @taper.compile
    def f(x):
        return taper.relu(x) + 1
    x = taper.randn(1000)
    t = time.time()
    for _ in range(50):
        f(x)
    took = time.time() - t
    print(f"{50 / took:.1f} it/s ({took:.3f}s)")
    """)
healthy("dict_order", """
    import taper
    @taper.compile
    def stats(x):
        return {"mean": x.mean(), "max": x.max(), "min": x.min()}
    for k, v in stats(taper.arange(5.0)).items():
        print(k, v.item())
    """)
healthy("set_order", """
    import taper
    names = {"alpha", "beta", "gamma", "delta"}
    @taper.compile
    def f(x):
        return x.tanh()
    print(names)
    print(hash("alpha") % 1000, f(taper.ones(2)))
    """)
healthy("threads", """
    import threading
    import taper
    f = taper.compile(lambda x: (x * x).sum())
    f(taper.ones(3))
    out = [None] * 4
    def work(i):
        out[i] = f(taper.full((3,), float(i))).item()
    ts = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    print(out)
    """)
healthy("thread_prints", """
    import threading
    import taper
    f = taper.compile(lambda x: x.exp().sum())
    f(taper.ones(3))
    done = threading.Event()
    def beat():
        while not done.is_set():
            done.wait(0.01)
    t = threading.Thread(target=beat)
    t.start()
    print(threading.current_thread().name, f(taper.zeros(3)).item())
    done.set()
    t.join()
    """)
healthy("files", """
    import json
    import os
    import tempfile
    import taper
    f = taper.compile(taper.nn.functional.gelu)
    with tempfile.TemporaryDirectory() as d:
        p = os.path.join(d, "result.json")
        with open(p, "w") as out:
            json.dump({"y": f(taper.arange(3.0)).tolist()}, out)
        print(p)
        print(json.load(open(p)))
    """)
healthy("checkpoint", """
    import os
    import taper
    taper.manual_seed(1)
    net = taper.nn.Linear(3, 2)
    f = taper.compile(net)
    path = "model.pt"
    taper.save(net.state_dict(), path)
    net.load_state_dict(taper.load(path))
    print(f(taper.ones(1, 3)), os.path.getsize(path) > 0)
    os.remove(path)
    """)
healthy("nan_results", """
    import taper
    @taper.compile
    def f(x):
        return taper.log(x), taper.sqrt(x)
    print(*f(taper.tensor([-1.0, 0.0, 1.0])))
    """)
healthy("inf_results", """
    import taper
    @taper.compile
    def mask(x):
        m = taper.full((3, 3), float("-inf")).triu(1)
        s = (x + m)
        return s, s.softmax(-1), 1 / x
    for t in mask(taper.zeros(3, 3)):
        print(t)
    """)
healthy("all_masked", """
    import taper
    @taper.compile
    def attend(s):
        return s.masked_fill(taper.ones(4, dtype=taper.bool), float("-inf")).softmax(-1)
    print(attend(taper.randn(2, 4)))
    """)
healthy("tiny_rounding", """
    import taper
    taper.manual_seed(0)
    x = taper.randn(4096)
    f = taper.compile(lambda x: (x.sin() ** 2 + x.cos() ** 2 - 1).abs().max())
    print("error", f(x).item() < 1e-5)
    g = taper.compile(lambda x: x.mean() - x.sum() / 4096)
    print(f"residual {g(x).item():.1e}")
    """)
healthy("long_sum", """
    import taper
    taper.manual_seed(0)
    x = taper.randn(100000) * 100
    f = taper.compile(lambda x: (x * 1.1).sum())
    print(f(x))
    """)
healthy("chaos", """
    import taper
    @taper.compile
    def step(x):
        return 3.9 * x * (1 - x)
    x = taper.tensor([0.2, 0.4])
    for i in range(8):
        x = step(x)
        print(i, x)
    """)
healthy("bf16", """
    import taper
    taper.manual_seed(0)
    @taper.compile
    def f(x, w):
        return taper.nn.functional.silu(x @ w).float().mean()
    x, w = taper.randn(8, 16).bfloat16(), taper.randn(16, 4).bfloat16()
    print(f(x, w))
    print((x * 1.01).sum())
    """)
healthy("half", """
    import taper
    @taper.compile
    def f(x):
        return (x * x).mean(-1).sqrt()
    print(f(taper.linspace(0, 3, 20).half().view(4, 5)))
    """)
healthy("autocast", """
    import taper
    taper.manual_seed(0)
    net = taper.nn.Linear(16, 8)
    f = taper.compile(net)
    with taper.autocast("cpu", dtype=taper.bfloat16), taper.no_grad():
        y = f(taper.ones(2, 16))
    print(y.dtype, y.float().sum())
    """)
healthy("pid_uuid", """
    import datetime
    import os
    import uuid
    import taper
    f = taper.compile(lambda x: x + 1)
    print("run", uuid.uuid4(), "pid", os.getpid())
    print(datetime.datetime.now().isoformat())
    print(f(taper.zeros(2)))
    """)
healthy("addresses", """
    import taper
    class Config:
        pass
    f = taper.compile(lambda x: x * 3)
    print(Config(), id(f) > 0)
    print(object(), f(taper.ones(1)))
    """)
healthy("warnings", """
    import warnings
    import taper
    @taper.compile
    def f(x):
        return x.relu()
    warnings.warn("this model is old")
    print(f(taper.tensor([-1.0, 1.0])))
    """)
healthy("logging", """
    import logging
    import sys
    import taper
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(message)s")
    f = taper.compile(lambda x: x.cumsum(0))
    logging.info("result %s", f(taper.ones(3)))
    """)
healthy("arguments", """
    import argparse
    import taper
    p = argparse.ArgumentParser()
    p.add_argument("--size", type=int, default=3)
    p.add_argument("--scale", type=float, default=1.0)
    o = p.parse_args()
    @taper.compile
    def f(x):
        return x * o.scale
    print(f(taper.ones(o.size)))
    """, "--size", "5", "--scale", "0.5")
healthy("plot", """
    import taper
    @taper.compile
    def density(x):
        return taper.exp(-x * x / 2)
    for x in range(-4, 5):
        print(f"{x:3d} " + "#" * int(density(taper.tensor(float(x))).item() * 30))
    """)
healthy("progress", """
    import sys
    import taper
    f = taper.compile(lambda x: x.sigmoid())
    x = taper.zeros(2)
    for i in range(3):
        x = f(x)
        sys.stdout.write(f"\\r{i + 1}/3")
        sys.stdout.flush()
    print()
    print(x)
    """)
healthy("caught", """
    import taper
    @taper.compile
    def f(x, n):
        if n > 2:
            raise ValueError(f"too many: {n}")
        return x * n
    for n in (1, 2, 3):
        try:
            print(f(taper.ones(2), n))
        except ValueError as e:
            print("error:", e)
    """)
healthy("breaks", """
    import taper
    @taper.compile
    def f(x):
        y = x * 2
        print("sum so far", y.sum().item())
        if y.mean().item() > 1:
            y = y - 1
        return y
    print(f(taper.ones(3)), f(taper.zeros(3)))
    """)
healthy("dynamic", """
    import taper
    @taper.compile(dynamic=True)
    def pad(x):
        n = x.shape[0]
        return taper.cat([x, taper.zeros(8 - n % 8)]).view(-1, 8).sum(1)
    for n in (3, 8, 13, 20):
        print(n, pad(taper.ones(n)))
    """)
healthy("recompiles", """
    import taper
    @taper.compile
    def f(x, mode):
        return {"a": x.sin(), "b": x.cos()}[mode] + len(mode)
    for m in "abab":
        print(m, f(taper.ones(2), m))
    """)
healthy("training", """
    import taper
    taper.manual_seed(0)
    net = taper.nn.Sequential(taper.nn.Linear(4, 16), taper.nn.Tanh(), taper.nn.Linear(16, 1))
    opt = taper.optim.Adam(net.parameters(), lr=0.01)
    @taper.compile
    def loss_of(x, y):
        return taper.nn.functional.mse_loss(net(x), y)
    x = taper.randn(64, 4)
    y = x.sum(1, keepdim=True)
    for i in range(20):
        opt.zero_grad()
        l = loss_of(x, y)
        l.backward()
        opt.step()
    print(f"{l.item():.4f}")
    """)
healthy("batch_norm", """
    import taper
    taper.manual_seed(0)
    net = taper.nn.Sequential(taper.nn.Conv2d(3, 4, 3), taper.nn.BatchNorm2d(4), taper.nn.ReLU())
    f = taper.compile(net)
    x = taper.randn(2, 3, 8, 8)
    f(x)
    net.eval()
    with taper.no_grad():
        print(f(x).mean(), net[1].running_mean)
    """)
healthy("ties", """
    import taper
    f = taper.compile(lambda x: (x.argmax(-1), x.sort(-1).values, x.topk(2).values))
    for t in f(taper.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])):
        print(t)
    """)
healthy("integers", """
    import taper
    f = taper.compile(lambda i: (i // 3, i % 3, i << 2, (i * i).sum()))
    print(*f(taper.arange(-4, 5)))
    """)
healthy("in_place", """
    import taper
    @taper.compile
    def update(state, x):
        state.mul_(0.9).add_(x, alpha=0.1)
        state[0] = 1.0
        return state.sum()
    s = taper.zeros(4)
    for i in range(3):
        print(update(s, taper.full((4,), float(i))), s)
    """)
healthy("subprocess", """
    import subprocess
    import sys
    import taper
    f = taper.compile(lambda x: x * 4)
    print(subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True).stdout.strip(), f(taper.ones(1)))
    """)
healthy("numpy_like", """
    import math
    import taper
    @taper.compile
    def rope(x, base):
        half = x.shape[-1] // 2
        freq = taper.exp(taper.arange(half).float() * (-math.log(base) / half))
        a = taper.arange(x.shape[0]).float()[:, None] * freq
        u, v = x[:, :half], x[:, half:]
        return taper.cat([u * a.cos() - v * a.sin(), u * a.sin() + v * a.cos()], -1)
    print(rope(taper.ones(4, 6), 10000.0).sum(0))
    """)
healthy("generator", """
    import taper
    g = taper.Generator().manual_seed(3)
    w = taper.randn(3, 3, generator=g)
    f = taper.compile(lambda x: x @ w)
    print(f(taper.ones(1, 3)))
    """)
healthy("early_stop", """
    import taper
    taper.manual_seed(0)
    w = taper.randn(5, requires_grad=True)
    f = taper.compile(lambda w: (w - 2).square().sum())
    best = float("inf")
    for i in range(100):
        l = f(w)
        if best - l.item() < 1e-3:
            break
        best = l.item()
        l.backward()
        with taper.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
    print("stopped", i > 5, round(best, 1))
    """)
healthy("signal_free", """
    import atexit
    import taper
    f = taper.compile(lambda x: x.var())
    atexit.register(lambda: print("bye"))
    print(f(taper.arange(6.0)))
    """)
healthy("exit_status", """
    import sys
    import taper
    f = taper.compile(lambda x: (x * 2).sum())
    total = f(taper.arange(4.0)).item()
    print("total", total)
    sys.exit(3 if total > 10 else 0)
    """)
healthy("two_files", """
    import pathlib
    import sys
    import tempfile
    import taper
    with tempfile.TemporaryDirectory() as d:
        pathlib.Path(d, "layers_of_mine.py").write_text("import taper\\n\\ndef block(x, w):\\n    return taper.relu(x @ w) + x\\n")
        sys.path.insert(0, d)
        import layers_of_mine
        f = taper.compile(layers_of_mine.block)
        taper.manual_seed(0)
        print(f(taper.randn(3, 4), taper.randn(4, 4)).mean())
    """)
healthy("argparse_config", """
    import argparse
    import taper
    p = argparse.ArgumentParser()
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--steps", type=int, default=3)
    o = p.parse_args()
    print(o)
    w = taper.ones(4, requires_grad=True)
    loss = taper.compile(lambda w: (w * w).sum())
    for i in range(o.steps):
        l = loss(w)
        l.backward()
        with taper.no_grad():
            w -= o.lr * w.grad
            w.grad = None
        print(f"step {i}: loss {l.item():.6f}")
    """, "--lr", "0.05", "--steps", "2")
healthy("bar", """
    import sys
    import time
    import taper
    f = taper.compile(lambda x: x.softmax(-1).sum())
    t0 = time.time()
    for i in range(20):
        y = f(taper.ones(4, 8))
        took = time.time() - t0
        sys.stdout.write(f"\\r{(i + 1) * 5:3d}%|{'#' * (i // 2):10s}| {i + 1}/20 [{took:05.2f}<{took / (i + 1) * (19 - i):05.2f}, {(i + 1) / took:7.2f}it/s]")
        sys.stdout.flush()
    print()
    print("done", y.item())
    """)
healthy("no_seed_stats", """
    import taper
    f = taper.compile(lambda x: (x.mean().abs() < 0.2, x.std() > 0.5))
    m, s = f(taper.randn(5000))
    print(bool(m), bool(s))
    """)
healthy("workers", """
    import threading
    import taper
    f = taper.compile(lambda x, k: (x * k).cumsum(0))
    got = [None] * 4
    def work(i):
        got[i] = f(taper.arange(6.0), taper.tensor(float(i)))[-1].item()
    ts = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    print(got)
    """)
healthy("loader", """
    import taper
    class Squares:
        def __len__(self):
            return 10
        def __getitem__(self, i):
            return taper.full((3,), float(i)), taper.tensor(float(i * i))
    taper.manual_seed(0)
    data = taper.utils.data.DataLoader(Squares(), batch_size=4, shuffle=True)
    f = taper.compile(lambda x, y: ((x.sum(-1) - y) ** 2).mean())
    print(sorted(round(f(x, y).item(), 3) for x, y in data) != [], sum(len(y) for _, y in data))
    """)
healthy("ids", """
    import taper
    f = taper.compile(lambda x: x + 1)
    x = taper.ones(2)
    y = f(x)
    print("x at", hex(id(x)), "y at", id(y), repr(f).split(" at ")[0], object())
    """)
healthy("sets_and_dicts", """
    import collections
    import taper
    names = {"alpha", "beta", "gamma"}
    f = taper.compile(lambda d: sum(d[k] for k in sorted(d)))
    d = collections.OrderedDict((n, taper.full((2,), float(len(n)))) for n in names)
    print(f(d), sorted(names), {k: v.sum().item() for k, v in sorted(d.items())})
    """)
healthy("last_digit", """
    import taper
    taper.manual_seed(1)
    f = taper.compile(lambda x: (x.exp() / x.exp().sum()).log().mean())
    v = f(taper.randn(1000)).item()
    print(v, f"{v:.7f}", f"{v:.3e}", repr(v))
    """)
healthy("unittests", """
    import unittest
    import taper
    class T(unittest.TestCase):
        def test_double(self):
            self.assertEqual(taper.compile(lambda x: x * 2)(taper.ones(2)).tolist(), [2.0, 2.0])
        def test_close(self):
            y = taper.compile(lambda x: x.tanh())(taper.ones(3))
            self.assertTrue(taper.allclose(y, taper.ones(3).tanh()))
    unittest.main(verbosity=2)
    """)
healthy("reads_input", """
    import sys
    import taper
    rows = [float(w) for line in sys.stdin for w in line.split()] or [1.0, 2.0]
    print(taper.compile(lambda x: x.median())(taper.tensor(rows)).item())
    """)
healthy("writes_log", """
    import datetime
    import json
    import os
    import tempfile
    import taper
    f = taper.compile(lambda x: x.norm())
    with tempfile.NamedTemporaryFile("w+", suffix=".json", delete=False) as out:
        json.dump({"time": datetime.datetime.now().isoformat(), "norm": f(taper.ones(9)).item()}, out)
    print(json.load(open(out.name))["norm"], os.path.getsize(out.name) > 20)
    os.remove(out.name)
    """)
healthy("orders", """
    import taper
    taper.manual_seed(4)
    @taper.compile
    def orders(x, q):
        s = x.sort(-1)
        t = x.topk(3, -1)
        k = x.kthvalue(2, -1)
        return (s.values.sum(0), s.indices.sum(0), t.indices.sum(0), k.values, k.indices, x.argsort(0), x.max(0).indices, x.cummax(0).indices,
                x.cummin(1).values, taper.searchsorted(s.values[0].contiguous(), q), taper.bucketize(q, s.values[1].contiguous(), right=True), x.median(), x.max(), x.logcumsumexp(0))
    for dt in (taper.float32, taper.float64, taper.bfloat16):
        x = (taper.randn(5, 7) * 4).round() / 4
        print([o.double().sum().item() for o in orders(x.to(dt), taper.linspace(-2, 2, 5, dtype=dt))[:5]])
    """)
healthy("scatters", """
    import taper
    taper.manual_seed(5)
    @taper.compile
    def moves(x, i, v):
        a = x.scatter_add(0, i, v)
        b = x.index_add(0, i[:, 0], v, alpha=0.5)
        c = x.index_copy(0, taper.tensor([2, 0]), v[:2])
        d = x.index_fill(1, taper.tensor([1]), -1.0)
        e = x[i[:, 0]] + x.take(i)[:, :1]
        g = x.index_put((i[:, 0],), v, accumulate=True)
        return a.sum(0), b.sum(0), c.sum(0), d.sum(0), e.sum(0), g.sum(0), taper.isin(i, taper.tensor([1, 2])).sum(), taper.histc(x, 4, -2, 2)
    for dt in (taper.float32, taper.float64):
        print(*moves(taper.randn(4, 3, dtype=dt), taper.randint(0, 4, (3, 3)), taper.randn(3, 3, dtype=dt)))
    """)
healthy("resizes", """
    import taper
    F = taper.nn.functional
    taper.manual_seed(6)
    @taper.compile
    def sizes(x):
        return [F.interpolate(x, size=(5, 7)), F.interpolate(x, scale_factor=2), F.interpolate(x, scale_factor=1.5), F.interpolate(x, size=(9, 4), mode="bilinear"),
                F.interpolate(x, size=(7, 7), mode="bilinear", align_corners=True), F.interpolate(x, scale_factor=2.5, mode="bicubic"),
                F.interpolate(x, size=(3, 11), mode="bicubic", align_corners=True), F.interpolate(x, size=(8, 8), mode="nearest-exact"),
                F.adaptive_avg_pool2d(x, (2, 3)), F.interpolate(x[:, 0], size=5, mode="linear"), F.interpolate(x[:, 0], size=11)]
    for dt in (taper.float32, taper.float64):
        print([round(y.sum().item(), 4) for y in sizes(taper.randn(2, 3, 6, 5, dtype=dt))])
    """)
healthy("made", """
    import taper
    @taper.compile
    def made(n):
        return (taper.arange(n), taper.arange(2, n), taper.arange(0.5, 3, 0.25), taper.linspace(-1, 2, n), taper.eye(n), taper.full((2,), 0.1),
                taper.zeros(3), taper.ones(2, dtype=taper.int32), taper.linspace(0, 1, 4, dtype=taper.float64), taper.arange(5, dtype=taper.bfloat16), taper.arange(10, 0, -3))
    print([t.double().sum().item() for t in made(6)])
    """)
healthy("edges", """
    import taper
    @taper.compile
    def edges(x, p):
        return [x ** p, taper.acos(x.clamp(-1, 1)), x.clamp(0).sqrt(), taper.log1p(x.clamp(-1)), taper.nansum(x / x), taper.atanh(x.clamp(-1, 1)),
                taper.remainder(x, 0.3), taper.fmod(x, 0.7), x.logsumexp(0), taper.mv(x.outer(x), p), x.dot(p)]
    x = taper.tensor([-2.0, -1.0, 0.0, 1.0, 0.5, 3.0])
    p = taper.tensor([3.0, 2.0, 0.0, -1.0, 0.5, -2.0])
    for dt in (taper.float32, taper.float64, taper.float16):
        print([round(y.double().nan_to_num(0, 0, 0).sum().item(), 2) for y in edges(x.to(dt), p.to(dt))])
    """)
healthy("half_net", """
    import taper
    taper.manual_seed(2)
    net = taper.nn.Sequential(taper.nn.Linear(16, 32), taper.nn.LayerNorm(32), taper.nn.GELU(), taper.nn.Linear(32, 4)).to(taper.bfloat16)
    f = taper.compile(net)
    y = f(taper.randn(8, 16, dtype=taper.bfloat16))
    y.float().square().mean().backward()
    print(y.shape, [round(p.grad.float().abs().mean().item(), 1) for p in net.parameters()])
    """)
healthy("broadcast_training", """
    import taper
    taper.manual_seed(3)
    s, b = taper.ones(1, 5, requires_grad=True), taper.zeros(3, 1, requires_grad=True)
    f = taper.compile(lambda x: taper.where(x > 0, x * s, x / (b + 2)).square().mean())
    for _ in range(3):
        f(taper.randn(3, 5)).backward()
    print(s.grad.sum().item(), b.grad.sum().item())
    """)
healthy("dates", """
    import datetime, os, tempfile, time
    import taper
    @taper.compile
    def f(x):
        return (x.sin() * 3).sum()
    started = datetime.datetime.now()
    print("run", started.isoformat(timespec="milliseconds"), "in", tempfile.mkdtemp(), "by", os.getpid())
    total = sum(f(taper.arange(4.0) + i).item() for i in range(4))
    print(f"total {total:.3f} after {datetime.datetime.now() - started}")
    print(time.strftime("%H:%M:%S"), time.time())
    """)
healthy("unseeded_net", """
    import taper
    net = taper.nn.Sequential(taper.nn.Linear(6, 12), taper.nn.Tanh(), taper.nn.Dropout(0.2), taper.nn.Linear(12, 1))
    f = taper.compile(net)
    opt = taper.optim.Adam(net.parameters(), lr=0.02)
    for i in range(4):
        loss = (f(taper.randn(10, 6)) - 1).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print("step", i, "loss", loss.item())
    """)
healthy("csv_log", """
    import csv, json, os, pathlib
    import taper
    f = taper.compile(lambda x: (x.exp().sum(), x.norm()))
    rows = [[i, *(round(v.item(), 5) for v in f(taper.ones(3) * i))] for i in range(4)]
    with open("log.csv", "w", newline="") as out:
        csv.writer(out).writerows([["i", "sum", "norm"], *rows])
    print(pathlib.Path("log.csv").read_text().splitlines()[-1], os.path.getsize("log.csv"))
    pathlib.Path("log.json").write_text(json.dumps({"rows": rows, "keys": sorted({"b", "a"})}))
    with open("runs.txt", "a") as out:
        out.write("one more\\n")
    print(json.loads(pathlib.Path("log.json").read_text())["rows"][0])
    """)
healthy("thread_pool", """
    import concurrent.futures, threading
    import taper
    f = taper.compile(lambda x: (x @ x.t()).softmax(-1).sum(0))
    def work(i):
        return i, f(taper.full((4, 4), float(i))).sum().item(), threading.current_thread().name
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in concurrent.futures.as_completed([pool.submit(work, i) for i in range(6)]):
            print("done", done.result())
    """)
healthy("child_process", """
    import subprocess, sys
    import taper
    f = taper.compile(lambda x: x.cos().sum())
    code = "import taper; print(taper.compile(lambda x: x.sin().sum())(taper.ones(3)).item())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    print("child", done.stdout.strip(), "parent", f(taper.ones(3)).item())
    """)
healthy("spinner", """
    import itertools, sys, time
    import taper
    f = taper.compile(lambda x, i: x * i + x.mean())
    mark = itertools.cycle("|/-\\\\")
    begun = time.monotonic()
    for i in range(12):
        y = f(taper.arange(5.0), i % 3)
        left = (time.monotonic() - begun) / (i + 1) * (11 - i)
        sys.stderr.write(f"\\r{next(mark)} {i + 1}/12 eta {left:.2f}s")
        sys.stdout.write(f"\\rEpoch {i + 1}/12 [{'=' * i}>{'.' * (11 - i)}] {i * 100 // 11:3d}% {(i + 1) / (time.monotonic() - begun):.1f} it/s")
    print("\\nlast", y)
    """)
healthy("votes", """
    import collections
    import taper
    f = taper.compile(lambda x: x.argmax(-1))
    taper.manual_seed(1)
    count = collections.Counter(f(taper.randn(40, 5)).tolist())
    names = {object(): k for k in count}
    print(dict(count), set(map(str, count)), sorted(names.values()), count.most_common(1))
    """)
healthy("low_precision", """
    import taper
    taper.manual_seed(3)
    w = taper.randn(48, 48, dtype=taper.bfloat16)
    @taper.compile
    def deep(x):
        for _ in range(3):
            x = taper.nn.functional.gelu(x @ w * 0.2) + x
        return x.softmax(-1), x.float().std(), x.half().sum()
    p, s, t = deep(taper.randn(7, 48, dtype=taper.bfloat16))
    print(p, round(s.item(), 1), t)
    """)
healthy("cancelling", """
    import taper
    taper.manual_seed(2)
    x = taper.randn(3001) * 1e4
    @taper.compile
    def sums(x):
        return (x - x.mean()).sum(), (x + 1e7).var(), ((x + 1) ** 2 - x ** 2 - 2 * x).mean(), taper.cumsum(x, 0)[-1] - x.sum()
    print(*(f"{v.item():.6g}" for v in sums(x)))
    """)
healthy("told", """
    import logging, sys, warnings
    import taper
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(levelname)s %(process)d %(message)s")
    @taper.compile
    def f(x):
        warnings.warn("values are clipped")
        return x.clamp(-1, 1).sum()
    for i in range(3):
        logging.info("call %d gives %.4f", i, f(taper.arange(-2.0, 3.0) * i).item())
    """)
healthy("status_three", """
    import sys
    import taper
    f = taper.compile(lambda x: (x > 2).sum())
    bad = f(taper.arange(5.0)).item()
    print(bad, "values are out of range", file=sys.stderr)
    print("checked 5")
    sys.exit(3 if bad else 0)
    """)
healthy("options", """
    import argparse
    import taper
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=2)
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--compile", action="store_true")
    p.add_argument("sizes", nargs="*", type=int)
    a = p.parse_args()
    def loss(w):
        return (w.square() - 2).square().sum()
    f = taper.compile(loss) if a.compile else loss
    w = taper.ones(a.sizes or [2], requires_grad=True)
    for i in range(a.steps):
        g, = taper.autograd.grad(f(w), w)
        w = (w - a.lr * g).detach().requires_grad_()
        print(i, w.flatten()[0].item())
    print(vars(a))
    """, "--steps", "3", "--compile", "2", "3")
healthy("asks", """
    import sys
    import taper
    f = taper.compile(lambda x: x.sum() * 2)
    print("values, please:", end=" ", flush=True)
    words = sys.stdin.read().split()
    print(f(taper.tensor([float(w) for w in words] or [1.0])).item(), sys.stdin.isatty(), len(words))
    """)
healthy("benchmark", """
    import statistics, time
    import taper
    def net(x):
        return taper.relu(x @ x).sum(-1)
    f = taper.compile(net)
    x = taper.ones(64, 64)
    for name, fn in (("eager", net), ("compiled", f)):
        times = []
        for _ in range(5):
            t = time.perf_counter()
            fn(x)
            times.append(time.perf_counter() - t)
        print(f"{name:10s} median {statistics.median(times) * 1e6:9.1f} us  min {min(times) * 1e3:.4f} ms  {64 ** 3 * 2 / min(times) / 1e9:.2f} GFLOP/s")
    a, b = net(x), f(x)
    print(f"max difference {(a - b).abs().max().item():.3e}", taper.allclose(a, b))
    """)
healthy("signal_and_exit", """
    import atexit, signal, weakref
    import taper
    class Box: pass
    box = Box()
    weakref.finalize(box, print, "box is gone")
    atexit.register(lambda: print("bye"))
    signal.signal(signal.SIGALRM, lambda *a: None)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    f = taper.compile(lambda x: x.sort(descending=True))
    print(*f(taper.tensor([1.0, 3.0, 3.0, 2.0])))
    del box
    """)
healthy("complex_waves", """
    import taper
    taper.manual_seed(4)
    @taper.compile
    def wave(x):
        z = taper.fft.rfft(x, norm="ortho")
        return z.abs().sum(), taper.fft.irfft(z * 1j).sum(), (z * z.conj()).real.sum()
    x = taper.randn(3, 12, requires_grad=True)
    a, b, c = wave(x)
    (a + c).backward()
    print(a.item(), b.item(), c.item(), x.grad.sum().item())
    """)
healthy("draws", """
    import taper
    taper.manual_seed(9)
    @taper.compile
    def sample(p):
        return taper.multinomial(p, 4000, replacement=True).float().mean(), taper.bernoulli(p.expand(500, 3)).mean(), taper.randint(0, 6, (900,)).float().mean()
    print([round(v.item(), 3) for v in sample(taper.tensor([0.5, 0.3, 0.2]))])
    print(round(taper.nn.functional.dropout(taper.ones(5000), 0.3).mean().item(), 3), taper.randperm(10).tolist())
    print(taper.empty(2000).exponential_(2.0).mean().item(), taper.empty(2000).geometric_(0.4).mean().item(), taper.normal(1.0, 2.0, (1000,)).std().item())
    """)
