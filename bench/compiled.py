"""Compiled against eager and against PyTorch: first call and steady state of the models in bench/models.py.

    python3 bench/compiled.py [--small] [--torch-compile] [--cpu-time] [model ...]

Best of several runs, two threads, one process; ratios below 1 mean Taper needs less time. PyTorch's columns appear
where it is importable; its compiler takes minutes, so it is measured only when asked for.
--cpu-time uses one thread and counts the processor time of the process: the choice on a machine that does other work
too, where threads that wait for one another measure the neighbours.
"""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models  # noqa: E402
import taper  # noqa: E402

CPU_TIME = "--cpu-time" in sys.argv
THREADS = 1 if CPU_TIME else 2
clock = time.process_time if CPU_TIME else time.perf_counter

try:
    import torch
    torch.set_num_threads(THREADS)
except ImportError:
    torch = None
taper.set_num_threads(THREADS)


def best(fn, seconds=1.0):
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
    params = list(model.parameters())
    fn = compile_with(model) if compile_with else model
    t = clock()
    forward(lib, fn, args)()
    first = clock() - t
    fwd = best(forward(lib, fn, args))
    t = clock()
    step(fn, args, target, loss, params)()
    first_train = clock() - t
    return first, fwd, first_train, best(step(fn, args, target, loss, params))


def main():
    argv = sys.argv[1:]
    small, torch_compile = "--small" in argv, "--torch-compile" in argv
    names = [a for a in argv if not a.startswith("--")] or models.NAMES
    print(f"{'model':12s} {'what':8s} {'first ms':>9s} {'compiled ms':>12s} {'eager ms':>9s} {'torch ms':>9s} {'c/eager':>8s} {'c/torch':>8s}"
          + ("  t.compile first, steady ms" if torch_compile else ""))
    logs = {"forward": [], "training": []}
    for name in names:
        c = measure(taper, name, small, lambda m: taper.compile(m))
        e = measure(taper, name, small, None)
        p = measure(torch, name, small, None) if torch else None
        q = measure(torch, name, small, lambda m: torch.compile(m)) if torch and torch_compile else None
        for what, i in (("forward", 0), ("training", 2)):
            line = f"{name:12s} {what:8s} {c[i] * 1e3:9.1f} {c[i + 1] * 1e3:12.3f} {e[i + 1] * 1e3:9.3f}"
            line += f" {p[i + 1] * 1e3:9.3f} {c[i + 1] / e[i + 1]:8.2f} {c[i + 1] / p[i + 1]:8.2f}" if p else f" {'-':>9s} {c[i + 1] / e[i + 1]:8.2f}"
            if p:
                logs[what].append(c[i + 1] / p[i + 1])
            if q:
                line += f"  {q[i] * 1e3:9.0f} {q[i + 1] * 1e3:9.3f} ({c[i + 1] / q[i + 1]:.2f})"
            print(line, flush=True)
    for what, r in logs.items():
        if r:
            g = 1.0
            for x in r:
                g *= x
            print(f"geometric mean, {what}: {g ** (1 / len(r)):.2f}x of PyTorch eager's time")


if __name__ == "__main__":
    main()
