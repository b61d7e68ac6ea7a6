"""Eager speed side by side with PyTorch where it is importable: python bench/eager.py [--quick]

Each line: what, Taper's time, PyTorch's time, their ratio, and the bar the ratio is held to.
"""
import os, subprocess, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import taper

try:
    import torch
    torch.set_num_threads(2)
except ImportError:
    torch = None
taper.set_num_threads(2)
QUICK = "--quick" in sys.argv


def timed(fn, budget):
    """Best seconds a call over rounds that together last about budget."""
    fn()
    n, t0 = 1, time.perf_counter()
    while time.perf_counter() - t0 < budget / 10:
        t1 = time.perf_counter()
        for _ in range(n):
            fn()
        if time.perf_counter() - t1 < budget / 50:
            n *= 2
    best = 1e9
    for _ in range(8):
        t1 = time.perf_counter()
        for _ in range(n):
            fn()
        best = min(best, (time.perf_counter() - t1) / n)
    return best


def small(T):
    x, y, m = T.ones(8), T.ones(8), T.ones(4, 4)
    yield "x + 1 (8 floats)", 0.5, lambda: x + 1
    yield "x * y (8 floats)", 0.5, lambda: x * y
    yield "x.sin() (8 floats)", 0.5, lambda: x.sin()
    yield "x.sum() (8 floats)", 1.0, lambda: x.sum()
    yield "x[2] (8 floats)", 1.0, lambda: x[2]
    yield "m @ m (4x4)", 1.0, lambda: m @ m
    yield "x.view(2, 4)", 1.0, lambda: x.view(2, 4)


def large(T):
    T.manual_seed(0)
    a, b = T.randn(1 << 20), T.randn(1 << 20)
    p, q = T.randn(512, 2048), T.randn(2048, 512)
    yield "a + b (1M floats)", 1.2, lambda: a + b
    yield "exp(a) (1M floats)", 1.2, lambda: T.exp(a)
    yield "relu(a) (1M floats)", 1.2, lambda: T.relu(a)
    yield "a.sum() (1M floats)", 1.2, lambda: a.sum()
    am = a.view(1024, 1024)
    yield "a.sum(0) (1024x1024)", 1.2, lambda: am.sum(0)
    yield "a.sum(1) (1024x1024)", 1.2, lambda: am.sum(1)
    if hasattr(T, "softmax"):
        yield "softmax(a, -1) (1024x1024)", 1.2, lambda: T.softmax(am, -1)
    yield "mm 512x2048x512", 1.15, lambda: T.mm(p, q)


def show(rows, budget):
    ours = list(rows(taper))
    theirs = list(rows(torch)) if torch else [None] * len(ours)
    for o, t in zip(ours, theirs):
        try:
            a = timed(o[2], budget)
        except Exception as e:
            print(f"{o[0]:28} failed: {e}")
            continue
        line = f"{o[0]:28} {a * 1e6:10.2f} us"
        if t:
            b = timed(t[2], budget)
            line += f" {b * 1e6:10.2f} us   {a / b:5.2f}x  (bar {o[1]}x{'' if a / b <= o[1] else ', MISSED'})"
        print(line)


def import_time(module):
    best = 1e9
    for _ in range(2 if QUICK else 5):
        code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
        env = dict(os.environ, PYTHONPATH=sys.path[0])
        r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        best = min(best, float(r.stdout))
    return best


if __name__ == "__main__":
    print(f"{'':28} {'Taper':>13} {'PyTorch' if torch else '':>13}")
    show(small, 0.05 if QUICK else 0.4)
    show(large, 0.1 if QUICK else 0.8)
    a = import_time("taper")
    line = f"{'import':28} {a * 1e3:10.2f} ms"
    if torch:
        b = import_time("torch")
        line += f" {b * 1e3:10.2f} ms   {a / b:5.3f}x  (bar 0.05x{'' if a / b <= 0.05 else ', MISSED'})"
    print(line)
