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
