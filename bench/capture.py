"""What capture costs: calling a compiled function, checking guards, capturing a model; beside PyTorch where it is importable."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import models  # noqa: E402


def best(fn, n, rounds=7):
    out = []
    for _ in range(rounds):
        t = time.perf_counter()
        for _ in range(n):
            fn()
        out.append((time.perf_counter() - t) / n)
    return min(out)


def layers(lib, n):
    nn = lib.nn

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.b(self.a(x))
    return nn.Sequential(*[Pair() for _ in range(n)])


def measure(lib, name):
    x = lib.ones(8)
    f = lib.compile(lambda x: x + 1, backend="eager")
    f(x)
    call, eager = best(lambda: f(x), 5000), best(lambda: x + 1, 5000)
    print(f"{name}: compiled x + 1: {call * 1e6:.2f} us, eager {eager * 1e6:.2f} us, over eager {(call - eager) * 1e6:.2f} us")
    m, args, _, _ = models.build("gpt", lib, small=True)
    with lib.no_grad():
        c = lib.compile(m, backend="eager")
        t = time.perf_counter()
        c(*args)
        print(f"{name}: first call of a GPT (backend eager): {(time.perf_counter() - t) * 1e3:.1f} ms")


def guards():
    import taper
    prog = ("import sys; sys.path.insert(0, %r); sys.path.insert(0, %r)\nimport taper, capture\nm = capture.layers(taper, %d)\n"
            "with taper.no_grad(): taper.compile(m, backend='eager')(taper.ones(2, 4))\n")
    for n in (1, 10, 100):
        here = os.path.dirname(os.path.abspath(__file__))
        p = subprocess.run([sys.executable, "-c", prog % (here, os.path.join(here, "..", "python"), n)], capture_output=True, text=True,
                           env=dict(os.environ, TAPER_LOGS="guards"))
        line = [x for x in p.stderr.splitlines() if "Guard eval latency" in x]
        print(f"taper: guards of {2 * n + n + 1} modules, {4 * n} parameters: {line[-1].split('=')[1].strip() if line else p.stderr[-200:]}")


if __name__ == "__main__":
    import taper
    measure(taper, "taper")
    guards()
    try:
        import torch
    except ImportError:
        print("torch: not importable, skipped")
    else:
        measure(torch, "torch")
