"""How the first call grows with the number of operators: microseconds of processor time and kilobytes of memory an operator at
1k, 10k, 30k, 100k, for each shape of graph. The best of three processes, of one beyond 10k.

  python3 bench/growth.py [SHAPE ...] [--sizes 1000,10000]

Linear means: the last column is within 1.5x of the first one."""
import os
import resource
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZES = (1000, 10000, 30000, 100000)


def chain(taper, n):
    def f(x):
        for _ in range(n // 2):
            x = (x + 1).sin()
        return x
    return f, [taper.randn(64)]


def matmul(taper, n):
    def f(x, w):
        for _ in range(n // 2):
            x = (x @ w).tanh()
        return x
    return f, [taper.randn(8, 8), taper.randn(8, 8) * 0.1]


def matmul_backward(taper, n):
    def f(x, w):
        y = x
        for _ in range(n // 2):
            y = (y @ w).tanh()
        y.sum().backward()
        return x.grad
    return f, [taper.randn(8, 8, requires_grad=True), taper.randn(8, 8, requires_grad=True)]


def rows(taper, n):
    def f(x):
        y = x * 1
        for i in range(n // 3):
            y[i] = y[i] * 2
        return y
    return f, [taper.randn(n // 3, 16)]


def wide(taper, n):
    def f(x):
        parts = [(x * i).sin().sum() for i in range(n // 4)]
        total = parts[0]
        for p in parts[1:]:
            total = total + p
        return total
    return f, [taper.randn(64)]


def results(taper, n):
    def f(x):
        return [(x * i).sin() for i in range(n // 2)]
    return f, [taper.randn(64)]


SHAPES = {"chain": chain, "matmul": matmul, "matmul_backward": matmul_backward, "rows": rows, "wide": wide, "results": results}


def first_call(shape, n):
    """In a process of its own: seconds of processor time of the first call."""
    import taper
    taper._dynamo.config.cache_size_limit = 64
    f, args = SHAPES[shape](taper, n)
    g = taper.compile(f, fullgraph=not shape.endswith("backward"))
    t0, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    g(*args)
    print("SECONDS", time.process_time() - t0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def measure(shape, n, limit=300):
    env = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"), TAPER_CACHE="0")
    try:
        p = subprocess.run([sys.executable, os.path.abspath(__file__), "--one", shape, str(n)], env=env, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None
    for line in p.stdout.splitlines():
        if line.startswith("SECONDS"):
            return tuple(map(float, line.split()[1:]))
    print(p.stdout[-2000:])
    return None


def main():
    args = sys.argv[1:]
    if args[:1] == ["--one"]:
        return first_call(args[1], int(args[2]))
    sizes = SIZES
    if "--sizes" in args:
        i = args.index("--sizes")
        sizes = tuple(int(s) for s in args[i + 1].split(","))
        del args[i:i + 2]
    print("an operator          " + "".join(f"{n:>10}" for n in sizes) + "      last / first")
    for shape in args or SHAPES:
        runs = [[r for r in (measure(shape, n) for _ in range(3 if n <= 10000 else 1)) if r] for n in sizes]
        for what, unit, at in (("us", 1e6, 0), ("KB", 1, 1)):
            each = [min(x[at] for x in r) / n * unit if r else None for r, n in zip(runs, sizes)]
            print(f"{shape:17} {what} " + "".join(f"{u:10.1f}" if u else "         -" for u in each) +
                  (f"{each[-1] / each[0]:15.1f}x" if each[0] and each[-1] else ""), flush=True)


if __name__ == "__main__":
    main()
