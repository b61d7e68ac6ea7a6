"""Compiled against eager and against PyTorch: first call and steady state of the models in bench/models.py.

    python3 bench/compiled.py [--small] [--torch-compile] [--cpu-time] [--models | --kernels] [--more | --all] [--threads=N]
                              [--bf16 | --autocast] [--seconds=S] [--brief] [model ...]

Best of several runs, two threads, one process; ratios below 1 mean Taper needs less time. PyTorch's columns appear
where it is importable; its compiler takes minutes, so it is measured only when asked for. A second table holds single
products, convolutions and memory-bound functions, with the share of the peak (the fastest product that stays in cache) or
of the copy bandwidth that was measured here. A third one holds the memory-bound ones with arrays that no cache has: each
call takes the next of many inputs and leaves its result where the next ones push it out.
--more takes the models with depthwise convolutions, small steps, tables and graphs, --all both lists; --bf16 has models and inputs in
bfloat16, --autocast runs the forward pass under autocast. --seconds is how long each is repeated (1); --brief leaves out eager Taper
and prints one line a model.
--cpu-time uses one thread and counts the processor time of the process: the choice on a machine that does other work
too, where threads that wait for one another measure the neighbours.
"""
import os
import sys
import time

os.environ.setdefault("TAPER_CACHE", "0")  # first calls are to compile
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models  # noqa: E402
import taper  # noqa: E402

CPU_TIME = "--cpu-time" in sys.argv
THREADS = 1 if CPU_TIME else next((int(a[10:]) for a in sys.argv if a.startswith("--threads=")), 2)
SECONDS = next((float(a[10:]) for a in sys.argv if a.startswith("--seconds=")), 1.0)
BF16, AUTOCAST = "--bf16" in sys.argv, "--autocast" in sys.argv
clock = time.process_time if CPU_TIME else time.perf_counter

try:
    import torch
    torch.set_num_threads(THREADS)
except ImportError:
    torch = None
taper.set_num_threads(THREADS)


def best(fn, seconds=SECONDS):
    fn()
    fn()
    out, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        t = clock()
        fn()
        out = min(out, clock() - t)
    return out


def forward(lib, model, args):
    def run():
        with lib.no_grad():
            return model(*args)

    return run


def step(model, args, target, loss, params):
    def run():
        out = loss(model(*args), target)
        out.backward()
        for p in params:
            p.grad = None

    return run


def measure(lib, name, small, compile_with):
    model, args, target, loss = models.build(name, lib, small=small)
    if BF16:
        model, args = models.to_half(lib, model, args)
        target = target.to(lib.bfloat16) if target.is_floating_point() else target
    params = list(model.parameters())
    if AUTOCAST:
        plain = model

        def model(*args):
            with lib.autocast("cpu", dtype=lib.bfloat16):
                return plain(*args)

    fn = compile_with(model) if compile_with else model
    t = clock()
    forward(lib, fn, args)()
    first = clock() - t
    fwd = best(forward(lib, fn, args))
    t = clock()
    step(fn, args, target, loss, params)()
    first_train = clock() - t
    return first, fwd, first_train, best(step(fn, args, target, loss, params))


def kernels(lib):
    """name, function, floating-point operations or None, bytes moved or None."""
    F = lib.nn.functional
    lib.manual_seed(0)
    a, b = lib.randn(512, 2048), lib.randn(2048, 512)
    yield "mm 512x512x2048", lambda: lib.mm(a, b), 2 * 512 * 512 * 2048, None
    c, d = lib.randn(256, 256), lib.randn(256, 256)
    yield "mm 256x256x256", lambda: lib.mm(c, d), 2 * 256 ** 3, None
    e, f = lib.randn(16, 128, 32), lib.randn(16, 32, 128)
    yield "bmm 16x(128x128x32)", lambda: lib.bmm(e, f), 2 * 16 * 128 * 128 * 32, None
    x, w, v = lib.randn(512, 256), lib.randn(1024, 256), lib.randn(1024)
    yield "gelu(linear 512x1024x256 + bias)", lambda: F.gelu(F.linear(x, w, v)), 2 * 512 * 1024 * 256, None
    i, k = lib.randn(4, 64, 32, 32), lib.randn(64, 64, 3, 3)
    yield "conv 4x64x32x32 by 64 3x3", lambda: F.conv2d(i, k, padding=1), 2 * 4 * 64 * 1024 * 576, None
    p, q = lib.randn(1 << 20), lib.randn(1 << 20)
    yield "relu(p * q + 1) * 2 - p, 1M", lambda: lib.relu(p * q + 1) * 2 - p, None, 12 << 20
    s = lib.randn(4096, 1024)
    yield "softmax 4096x1024", lambda: lib.softmax(s, -1), None, 8 * 4096 * 1024
    n, g, h = lib.randn(4096, 768), lib.randn(768), lib.randn(768)
    yield "layer_norm 4096x768", lambda: F.layer_norm(n, (768,), g, h), None, 8 * 4096 * 768
    t = lib.ones(8)
    yield "t + 1 on 8 floats (the call)", lambda: t + 1, None, None


def machine():
    """Peak (operations a second) and copy bandwidth (bytes a second, read and written), measured with Taper."""
    taper.set_num_threads(1)
    peak = 0.0
    for m, n, k in ((96, 96, 256), (192, 192, 256), (256, 256, 256)):
        a, b = taper.randn(m, k), taper.randn(k, n)
        peak = max(peak, 2 * m * n * k / best(lambda: taper.mm(a, b), 0.3))
    taper.set_num_threads(THREADS)
    x, y = taper.randn(4 << 20), taper.zeros(4 << 20)
    return peak * THREADS, 2 * 4 * (4 << 20) / best(lambda: y.copy_(x), 0.5)


def kernel_table(torch_compile):
    peak, copy = machine()
    print(f"\npeak {peak * 1e-9:.0f} GFlop/s, copy {copy * 1e-9:.1f} GB/s, {THREADS} thread(s)")
    print(f"{'what':34s} {'compiled us':>12s} {'eager us':>10s} {'of machine':>11s} {'torch us':>10s} {'c/torch':>8s}"
          + (f" {'t.compile us':>13s} {'c/t.compile':>12s}" if torch_compile else ""))
    theirs = list(kernels(torch)) if torch else None
    for j, (name, fn, flops, moved) in enumerate(kernels(taper)):
        with taper.no_grad():
            c, e = best(taper.compile(fn), 0.5), best(fn, 0.5)
        share = f"{flops / c / peak * 100:.0f} % peak" if flops else f"{moved / c / copy * 100:.0f} % copy" if moved else ""
        line = f"{name:34s} {c * 1e6:12.2f} {e * 1e6:10.2f} {share:>11s}"
        if theirs:
            with torch.no_grad():
                t = best(theirs[j][1], 0.5)
                line += f" {t * 1e6:10.2f} {c / t:8.2f}"
                if torch_compile:
                    t = best(torch.compile(theirs[j][1]), 0.5)
                    line += f" {t * 1e6:13.2f} {c / t:12.2f}"
        print(line, flush=True)


def far(lib):
    """Memory-bound functions on arrays from main memory: name, function, its arguments one call after the other, bytes moved."""
    F = lib.nn.functional
    lib.manual_seed(0)
    many = [lib.randn(4096, 1024) for _ in range(FAR)]
    outs = [lib.empty(4096, 1024) for _ in range(FAR)]
    line = [m.view(-1) for m in many]
    g, h = lib.randn(768), lib.randn(768)
    yield "copy_ 4096x1024", None, list(zip(outs, many)), 8 << 22
    yield "relu(p * q + 1) * 2 - p, 4M", lambda p, q: lib.relu(p * q + 1) * 2 - p, list(zip(line, line[FAR // 2:] + line)), 12 << 22
    yield "softmax 4096x1024", lambda s: lib.softmax(s, -1), [(m,) for m in many], 8 << 22
    yield "layer_norm 4096x768", lambda n: F.layer_norm(n, (768,), g, h), [(m[:4096 * 768].view(4096, 768),) for m in line], 8 * 4096 * 768


FAR = 24  # inputs, and as many results that stay alive: 800 MB in all, at least twice any cache


def best_far(fn, inputs, seconds=1.5):
    """Results are kept until their number comes round again, so that their memory is not that of the call before."""
    kept = [None] * len(inputs)

    def call(i):
        t = clock()
        out = fn(*inputs[i])
        t = clock() - t
        kept[i] = None  # the oldest goes first: the next call takes its memory, which has long left the cache
        kept[i - 1] = out
        return t

    for i in range(len(inputs)):
        call(i)
    out, end, i = float("inf"), time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        out = min(out, call(i % len(inputs)))
        i += 1
    return out


def far_table():
    print(f"\narrays from main memory, {THREADS} thread(s)")
    print(f"{'what':34s} {'compiled us':>12s} {'eager us':>10s} {'of copy':>11s} {'torch us':>10s} {'c/torch':>8s}")
    theirs = list(far(torch)) if torch else None
    copy = None
    for j, (name, fn, inputs, moved) in enumerate(far(taper)):
        with taper.no_grad():
            if fn is None:
                e = c = best_far(lambda to, p: to.copy_(p), inputs)
                copy = moved / c
            else:
                c, e = best_far(taper.compile(fn), inputs), best_far(fn, inputs)
        line = f"{name:34s} {c * 1e6:12.2f} {e * 1e6:10.2f} {moved / c / copy * 100:9.0f} %"
        if theirs:
            with torch.no_grad():
                t = best_far(theirs[j][1] or (lambda to, p: to.copy_(p)), theirs[j][2])
                line += f" {t * 1e6:10.2f} {c / t:8.2f}"
        print(line + (f"  ({copy * 1e-9:.1f} GB/s)" if fn is None else ""), flush=True)


def geometric_means(all_of, whose):
    for what, r in list(all_of.items()) + [("both", all_of["forward"] + all_of["training"])]:
        if r:
            g = 1.0
            for x in r:
                g *= x
            print(f"geometric mean, {what}: {g ** (1 / len(r)):.2f}x of {whose} time")


def brief(names, small, torch_compile):
    """A line a model: first calls, times, and their ratios to PyTorch's."""
    print(f"{'model':12s} {'first':>7s} {'fwd ms':>8s} {'/torch':>6s} {'first':>7s} {'train ms':>9s} {'/torch':>6s}"
          + ("  /torch.compile fwd, train" if torch_compile else ""))
    means = {"PyTorch eager's": {"forward": [], "training": []}, "torch.compile's": {"forward": [], "training": []}}
    for name in names:
        c = measure(taper, name, small, lambda m: taper.compile(m))
        others = [measure(torch, name, small, w) for w in (None, torch.compile)[:1 + torch_compile]] if torch else []
        line = f"{name:12s} {c[0] * 1e3:7.1f} {c[1] * 1e3:8.3f} {c[1] / others[0][1] if others else 0:6.2f} {c[2] * 1e3:7.1f} {c[3] * 1e3:9.3f} {c[3] / others[0][3] if others else 0:6.2f}"
        if len(others) > 1:
            line += f"  {c[1] / others[1][1]:6.2f} {c[3] / others[1][3]:6.2f}"
        for of, o in zip(means.values(), others):
            of["forward"].append(c[1] / o[1])
            of["training"].append(c[3] / o[3])
        print(line, flush=True)
    for whose, of in means.items():
        geometric_means(of, whose)


def main():
    argv = sys.argv[1:]
    small, torch_compile = "--small" in argv, "--torch-compile" in argv
    names = [a for a in argv if not a.startswith("--")] or (
        models.MORE if "--more" in argv else models.NAMES + models.MORE if "--all" in argv else models.NAMES)
    if "--brief" in argv:
        brief(names, small, torch_compile)
        return
    if "--kernels" in argv:
        kernel_table(torch_compile)
        far_table()
        return
    print(f"{'model':12s} {'what':8s} {'first ms':>9s} {'compiled ms':>12s} {'eager ms':>9s} {'torch ms':>9s} {'c/eager':>8s} {'c/torch':>8s} {'e/torch':>8s}"
          + ("  t.compile first, steady ms" if torch_compile else ""))
    logs, logs_compile = {"forward": [], "training": []}, {"forward": [], "training": []}
    for name in names:
        c = measure(taper, name, small, lambda m: taper.compile(m))
        e = measure(taper, name, small, None)
        p = measure(torch, name, small, None) if torch else None
        q = measure(torch, name, small, lambda m: torch.compile(m)) if torch and torch_compile else None
        for what, i in (("forward", 0), ("training", 2)):
            line = f"{name:12s} {what:8s} {c[i] * 1e3:9.1f} {c[i + 1] * 1e3:12.3f} {e[i + 1] * 1e3:9.3f}"
            line += f" {p[i + 1] * 1e3:9.3f} {c[i + 1] / e[i + 1]:8.2f} {c[i + 1] / p[i + 1]:8.2f} {e[i + 1] / p[i + 1]:8.2f}" if p else f" {'-':>9s} {c[i + 1] / e[i + 1]:8.2f}"
            if p:
                logs[what].append(c[i + 1] / p[i + 1])
            if q:
                line += f"  {q[i] * 1e3:9.0f} {q[i + 1] * 1e3:9.3f} ({c[i + 1] / q[i + 1]:.2f})"
                logs_compile[what].append(c[i + 1] / q[i + 1])
            print(line, flush=True)
    geometric_means(logs, "PyTorch eager's")
    geometric_means(logs_compile, "torch.compile's")
    if "--models" not in argv and len(names) == len(models.NAMES):
        kernel_table(torch_compile)
        far_table()


if __name__ == "__main__":
    main()
