"""Single functions at several numbers of threads, beside PyTorch in one process.

    python3 bench/cores.py [--threads=1,2,4,8,16] [--seconds=0.2] [word ...]

Products of several types, convolutions, pointwise functions, reductions and scatters, compiled. One row a function; for every number of
threads the best time of ours in us, GFlop/s or GB/s where that means something, and ours over PyTorch's (eager; turn by turn).
A ratio below 1 means Taper needs less time. Words choose rows by their names.
"""
import sys
import time

import taper

try:
    import torch
except ImportError:
    torch = None

OPTIONS = dict(a[2:].split("=") for a in sys.argv[1:] if a.startswith("--"))
THREADS = [int(n) for n in OPTIONS.get("threads", "1,2,4,8,16").split(",")]
ROUNDS = 3
SECONDS = float(OPTIONS.get("seconds", "0.2"))
WORDS = [a for a in sys.argv[1:] if not a.startswith("--")]


def mlp(lib, dt, rows=256):
    net = lib.nn.Sequential(lib.nn.Linear(512, 2048), lib.nn.GELU(), lib.nn.Linear(2048, 512)).to(dt)
    x = lib.randn(rows, 512).to(dt)
    return (lambda v: net(v)), (x,)


def rows(lib):
    """name, function, arguments, operations or None, bytes or None."""
    F = lib.nn.functional
    lib.manual_seed(0)
    for kind, dt in (("f32", lib.float32), ("bf16", lib.bfloat16)):
        for n in (128, 256, 512, 1024, 2048):
            a, b = lib.randn(n, n).to(dt), lib.randn(n, n).to(dt)
            yield f"mm {kind} {n}", lib.mm, (a, b), 2 * n ** 3, None
    for kind, dt in (("f32", lib.float32), ("bf16", lib.bfloat16), ("f16", lib.float16)):
        fn, args = mlp(lib, dt)
        yield f"mlp {kind} 256x512x2048", fn, args, 4 * 256 * 512 * 2048, None
    fn, args = mlp(lib, lib.bfloat16, 16)
    yield "mlp bf16 16x512x2048", fn, args, 4 * 16 * 512 * 2048, None
    for kind, dt in (("f32", lib.float32), ("bf16", lib.bfloat16)):
        i, w = lib.randn(16, 64, 56, 56).to(dt), lib.randn(64, 64, 3, 3).to(dt)
        yield f"conv {kind} 16x64x56x56 3x3", lambda i, w: F.conv2d(i, w, padding=1), (i, w), 2 * 16 * 64 * 56 * 56 * 576, None
    i = lib.randn(16, 64, 56, 56)
    for k in (3, 7):
        yield f"depthwise {k}x{k} 16x64x56x56", lambda i, w, k=k: F.conv2d(i, w, padding=k // 2, groups=64), (i, lib.randn(64, 1, k, k)), None, None
    for kind, dt in (("f32", lib.float32), ("bf16", lib.bfloat16)):
        q, k, v = (lib.randn(4, 8, 512, 64).to(dt) for _ in range(3))
        yield f"sdpa {kind} 4x8x512x64", F.scaled_dot_product_attention, (q, k, v), None, None
    p, q = lib.randn(1 << 24), lib.randn(1 << 24)
    yield "x * y + 1, 16M", lambda p, q: lib.addcmul(q, p, q), (p, q), None, 12 << 24
    yield "relu, 16M", lib.relu, (p,), None, 8 << 24
    yield "exp, 1M", lib.exp, (p[:1 << 20],), None, 8 << 20
    yield "relu, 64K", lib.relu, (p[:1 << 16],), None, 8 << 16
    yield "sum, 16M", lib.sum, (p,), None, 4 << 24
    s = p.view(4096, 4096)
    yield "sum of rows 4096x4096", lambda s: s.sum(1), (s,), None, 4 << 24
    yield "sum of columns 4096x4096", lambda s: s.sum(0), (s,), None, 4 << 24
    yield "amax, 16M", lib.amax, (p,), None, 4 << 24
    yield "softmax 4096x4096", lambda s: lib.softmax(s, -1), (s,), None, 8 << 24
    yield "layer norm 16384x1024", lambda s: F.layer_norm(s, (1024,)), (p.view(16384, 1024),), None, 8 << 24
    yield "transpose 4096x4096", lambda s: s.t().contiguous(), (s,), None, 8 << 24
    at, src = lib.randint(0, 4000, (40000,)), lib.randn(40000, 64)
    yield "index_add 40000x64 to 4000", lambda at, src: lib.zeros(4000, 64).index_add(0, at, src), (at, src), None, None
    table, bags = lib.randn(20000, 64), lib.randint(0, 20000, (256, 20))
    yield "embedding_bag 256x20 of 20000x64", lambda b, t: F.embedding_bag(b, t, mode="sum"), (bags, table), None, None


def once(fn, args, many):
    t = time.perf_counter()
    for _ in range(many):
        fn(*args)
    return (time.perf_counter() - t) / many


REST = 0.03  # PyTorch's threads go on looking for work for some milliseconds after a call, on the cores that ours need


def best_of(pairs):
    """The best time of each, in turns with a rest before each; short calls several at a time."""
    out, many = [], []
    for fn, args in pairs:
        fn(*args), fn(*args)
        many.append(max(1, min(100, int(2e-4 / once(fn, args, 1)))))
        out.append(float("inf"))
    for _ in range(ROUNDS):
        for i, (fn, args) in enumerate(pairs):
            time.sleep(REST)
            fn(*args)
            end = time.perf_counter() + SECONDS / ROUNDS
            while time.perf_counter() < end:
                out[i] = min(out[i], once(fn, args, many[i]))
    return out


def main():
    print(f"{'us, rate, ours/PyTorch':34s}" + "".join(f"{n:>5d} threads        " for n in THREADS))
    theirs = rows(torch) if torch else iter(lambda: None, 0)
    for name, fn, args, flops, moved in rows(taper):
        other = next(theirs)
        if WORDS and not any(w in name for w in WORDS):
            continue
        line = f"{name:34s}"
        compiled = taper.compile(fn)
        for n in THREADS:
            taper.set_num_threads(n)
            pairs = [(compiled, args)]
            if torch:
                torch.set_num_threads(n)
                pairs.append(other[1:3])
                with torch.no_grad(), taper.no_grad():
                    times = best_of(pairs)
            else:
                with taper.no_grad():
                    times = best_of(pairs)
            rate = f"{(flops or moved) / times[0] * 1e-9:.0f}" if flops or moved else ""
            line += f"{times[0] * 1e6:8.0f} {rate:>5s} {times[0] / times[1]:5.2f} " if torch else f"{times[0] * 1e6:8.0f} {rate:>5s} "
        print(line, flush=True)


if __name__ == "__main__":
    main()
