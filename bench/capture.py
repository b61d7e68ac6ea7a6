"""What capture costs: calling a compiled function, checking guards, capturing a model; beside PyTorch where it is importable."""
import os
import subprocess
import sys
import time

os.environ.setdefault("TAPER_CACHE", "0")  # first calls are to compile
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


def nested(lib, depth, total=100):
    """Exactly `total` modules with 4 parameters each, in chains `depth` deep."""
    nn = lib.nn

    class Four(nn.Module):
        def __init__(self, rest):
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Parameter(lib.ones(4)) for _ in range(4))
            self.names = tuple(f"m{i}" for i in range(len(rest)))
            for name, m in zip(self.names, rest):
                setattr(self, name, m)

        def forward(self, x):
            x = x * self.a + self.b - self.c * self.d
            for name in self.names:
                x = getattr(self, name)(x)
            return x

    def chain(n):
        m = Four([])
        for _ in range(n - 1):
            m = Four([m])
        return m
    chains, left = [], total - 1
    while left:
        chains.append(chain(min(depth - 1, left)))
        left -= min(depth - 1, left)
    return Four(chains)


def guards():
    here = os.path.dirname(os.path.abspath(__file__))
    prog = ("import sys; sys.path.insert(0, %r); sys.path.insert(0, %r)\nimport taper, capture\nm = %s\n"
            "sys.setrecursionlimit(10000)\nc = taper.compile(m, backend='eager')\nwith taper.no_grad(): c(taper.ones(2, 4)); c(taper.ones(2, 4))\n"
            "print(sum(1 for _ in m.modules()), 'modules,', sum(1 for _ in m.parameters()), 'parameters')")
    for what, how in (*((f"pairs {n}", f"capture.layers(taper, {n})") for n in (1, 10, 100)), *((f"depth {d}", f"capture.nested(taper, {d})") for d in (2, 10, 25))):
        p = subprocess.run([sys.executable, "-c", prog % (here, os.path.join(here, "..", "python"), how)], capture_output=True, text=True,
                           env=dict(os.environ, TAPER_LOGS="guards"))
        line = [x for x in p.stderr.splitlines() if "Guard eval latency" in x]
        print(f"taper: guards, {what}: {p.stdout.strip()}: {line[-1].split('=')[1].strip() if line else p.stderr[-300:]}")


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
