"""Sorting and selecting on a GPU against the CPU, bit for bit, then times.

  python3 tests/gpu/order.py [--times] [--torch]      --times: those alone; --torch: PyTorch's beside them

Cases are those of tests/py/test_cuda_order.py and larger ones. Ends with 0 where all agree, 77 where there is no GPU. Under a minute."""
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "py"), os.path.join(HERE, "..", "..", "python")]
import taper  # noqa: E402
from order_cases import (TYPES, check, compiled, compiled_selects, long_rows, masks, medians, random_sorts, sample, searches,  # noqa: E402
                         selects, sorts, stat)


def large():
    for dt, n in ((taper.float32, 3_000_001), (taper.int64, 1 << 20), (taper.bfloat16, 1_000_003), (taper.bool, 999_999)):
        x = sample((n,), dt, 1, False)
        check(lambda t: t.sort(stable=True), x, ("large sort", dt))
        check(lambda t: t.topk(50) if dt is not taper.bool else t.argsort(descending=True), x, ("large topk", dt))
        check(lambda t: t.nonzero(), x, ("large nonzero", dt))
        check(lambda t: taper.unique(t, return_inverse=True, return_counts=True), x, ("large unique", dt))
    for rows, n in ((8, 50257), (5000, 100), (300, 4096), (300, 4097), (20, 300_000)):
        x = sample((rows, n), taper.float32, 2)
        check(lambda t: t.sort(descending=True, stable=True), x, ("rows", rows, n))
        check(lambda t: t.topk(min(50, n)), x, ("topk of rows", rows, n))


def steps():
    yield "types", lambda: long_rows(37, TYPES)
    yield "layouts", lambda: sorts([(3, 257)], [taper.float32, taper.float16])
    yield "odd sizes", lambda: sorts([(0,), (4, 0), (0, 4), (2, 1), (9, 2), (2, 4097)], [taper.float32])
    yield "long rows", lambda: long_rows(9001, TYPES)
    yield "random", lambda: random_sorts(60, 60000)
    yield "selections", lambda: selects([(37,), (4097,)])
    yield "masks", masks
    yield "searches", searches
    yield "medians", lambda: medians([(4, 9), (3, 5000)], [taper.float32, taper.int64])
    yield "compiled", lambda: (compiled(), compiled_selects())
    yield "large", large


def best(f, sync, seconds=0.25):
    f()
    sync()
    least, end = 1e9, time.perf_counter() + seconds
    while time.perf_counter() < end or least == 1e9:
        t = time.perf_counter()
        f()
        sync()
        least = min(least, time.perf_counter() - t)
    return least * 1e3


def times(lib):
    """name, function of the tensors of that library"""
    g = {n: lib.randn(n, device="cuda") for n in (65536, 1 << 20, 1 << 24)}
    rows, short, ints = lib.randn(8, 50257, device="cuda"), lib.randn(16384, 1024, device="cuda"), lib.randint(0, 1000, (1 << 24,), device="cuda")
    half = g[1 << 24].to(lib.bfloat16)
    for n, x in g.items():
        yield f"sort {n} f32", lambda x=x: x.sort()
        yield f"nonzero {n}", lambda x=x: (x > 0).nonzero()
        yield f"topk(50) {n}", lambda x=x: x.topk(50)
        yield f"unique {n}", lambda x=x: lib.unique(x)
        yield f"x[x > 0] {n}", lambda x=x: x[x > 0]
    yield "sort 16M bf16", lambda: half.sort()
    yield "sort 16M i64", lambda: ints.sort()
    yield "sort 8 x 50257", lambda: rows.sort()
    yield "topk(50) 8 x 50257", lambda: rows.topk(50)
    yield "multinomial 8 x 50257", lambda p=rows.softmax(-1): lib.multinomial(p, 1)
    yield "sort 16384 x 1024", lambda: short.sort()
    yield "median 16384 x 1024", lambda: short.median(-1)
    yield "searchsorted 1M in 64k", lambda b=g[65536].sort()[0]: lib.searchsorted(b, g[1 << 20])


def main():
    if not taper.cuda.is_available():
        print("SKIP: no GPU")
        return 77
    start, bad = time.time(), 0
    for name, step in steps() if "--times" not in sys.argv else ():
        t = time.time()
        try:
            step()
            print(f"agrees: {name} ({time.time() - t:.1f} s)", flush=True)
        except Exception as e:  # noqa: BLE001
            bad += 1
            print(f"WRONG: {name}: {type(e).__name__}: {str(e)[:600]}", flush=True)
    print(f"{bad} wrong; {stat('own')} calls by own kernels, {stat('hosted')} through the host", flush=True)
    other = dict(times(__import__("torch"))) if "--torch" in sys.argv else {}
    for name, f in times(taper):
        line = f"{name:26} {best(f, taper.cuda.synchronize):9.3f} ms"
        if name in other:
            line += f"   PyTorch {best(other[name], __import__('torch').cuda.synchronize):9.3f} ms"
        print(line, flush=True)
    print(f"{time.time() - start:.0f} s")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
