"""Operators that are computed inside kernels and exist as library calls too: compiled against eager, alone and with
pointwise neighbours.

    PYTHONPATH=python python3 bench/lowering.py [name ...]

Processor time of one thread, best of many; below 1 compiled is faster. An operator that would be slower in a kernel stays a
call, so no row should be much above 1.
"""
import os
import sys
import time

os.environ.setdefault("TAPER_CACHE", "0")
import taper  # noqa: E402

F = taper.nn.functional


def best(fn, seconds=0.3):
    fn()
    fn()
    out, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        t = time.process_time()
        fn()
        out = min(out, time.process_time() - t)
    return out * 1e6


def cases():
    taper.manual_seed(0)
    w, ids, pos = taper.randn(5000, 256), taper.randint(0, 5000, (16, 128)), taper.randn(128, 256)
    x, target, every = taper.randn(2048, 1000), taper.randint(0, 1000, (2048,)), taper.randint(0, 1000, (2048, 1000))
    rows, cols, line, at = taper.randint(0, 2048, (4096,)), taper.randint(0, 1000, (500,)), taper.randn(1 << 20), taper.randint(0, 1 << 20, (1 << 20,))
    y, img, small = taper.randn(512, 1024), taper.randn(8, 32, 64, 64), taper.randn(8, 32, 32, 32)
    yield "embedding 2048 of 5000x256", lambda: F.embedding(ids, w)
    yield "(embedding + positions) * 2", lambda: (F.embedding(ids, w) + pos) * 2
    yield "layer_norm(embedding + positions)", lambda: F.layer_norm(F.embedding(ids, w) + pos, (256,))
    yield "mean of 128 embeddings", lambda: F.embedding(ids, w).mean(1)
    yield "gather 2048x1000 by elements", lambda: taper.gather(x, 1, every)
    yield "the same * 2 + x", lambda: taper.gather(x, 1, every) * 2 + x
    yield "cross_entropy 2048x1000", lambda: F.cross_entropy(x, target)
    yield "x[rows]", lambda: x[rows]
    yield "relu(x[rows]) + 1", lambda: F.relu(x[rows]) + 1
    yield "x[:, cols]", lambda: x[:, cols]
    yield "line[at], 1M", lambda: line[at]
    yield "dropout 512x1024", lambda: F.dropout(y, 0.1)
    yield "dropout(gelu(y)) + y", lambda: F.dropout(F.gelu(y), 0.1) + y
    yield "rand 512x1024", lambda: taper.rand(512, 1024)
    yield "max_pool2d 8x32x64x64 by 2", lambda: F.max_pool2d(img, 2)
    yield "max_pool2d(relu) by 2", lambda: F.max_pool2d(F.relu(img), 2)
    yield "max_pool2d by 3, step 2", lambda: F.max_pool2d(img, 3, 2)
    yield "avg_pool2d by 2", lambda: F.avg_pool2d(img, 2)
    yield "interpolate 8x32x32x32 by 2", lambda: F.interpolate(small, scale_factor=2)
    yield "y[:, ::2] * 2", lambda: y[:, ::2] * 2
    yield "flip of rows", lambda: y.flip(1)
    yield "roll", lambda: taper.roll(y, 5, 1)
    yield "roll * 2 + y", lambda: taper.roll(y, 5, 1) * 2 + y
    yield "repeat(2, 1)", lambda: y.repeat(2, 1)
    yield "cumsum 100x1000 down columns", lambda: taper.cumsum(x[:100], 0)
    yield "cumsum of bools 512x1024", lambda: taper.cumsum(y > 0, 0)
    yield "argmax of rows 2048x1000", lambda: x.argmax(1)
    yield "argmax of columns 2048x1000", lambda: x.argmax(0)
    yield "max of rows with places", lambda: taper.max(x, 1)
    yield "argmax of rows of (x * 2 + 1)", lambda: (x * 2 + 1).argmax(1)
    yield "argmax of 1M", lambda: line.argmax()
    few = [taper.randn(512, 128) for _ in range(12)]
    yield "cat of 12 along rows", lambda: taper.cat(few, 1)
    yield "cat of 12 sines", lambda: taper.cat([taper.sin(t) for t in few], 0)
    yield "stack of 12", lambda: taper.stack(few)
    yield "max_pool2d by 3, step 2, edge 1", lambda: F.max_pool2d(img, 3, 2, 1)
    yield "max_pool2d(relu) by 3, edge 1", lambda: F.max_pool2d(F.relu(img), 3, 1, 1)
    yield "avg_pool2d by 3, edge 1", lambda: F.avg_pool2d(img, 3, 1, 1)
    yield "pad 1 reflecting", lambda: F.pad(img, (1, 1, 1, 1), mode="reflect")
    yield "pad 1 replicating * 2", lambda: F.pad(img, (1, 1, 1, 1), mode="replicate") * 2
    yield "pad 1 circular", lambda: F.pad(img, (1, 1, 1, 1), mode="circular")
    yield "randn 512x1024", lambda: taper.randn(512, 1024)
    yield "y + randn_like(y) * 0.1", lambda: y + taper.randn_like(y) * 0.1
    yield "bernoulli(0.3) * y", lambda: taper.bernoulli(y, 0.3) * y
    yield "exponential_", lambda: taper.empty_like(y).exponential_()
    src = taper.randn(4096, 1000)
    yield "index_add 4096 rows to 2048x1000", lambda: x.index_add(0, rows, src)
    yield "index_add of relu(src) * 2", lambda: x.index_add(0, rows, taper.relu(src) * 2)
    yield "scatter_add along columns", lambda: x.scatter_add(0, every % 2048, x)
    yield "scatter_add along rows", lambda: x.scatter_add(1, every, x)
    yield "index_copy of relu(src)", lambda: x.index_copy(0, rows, taper.relu(src))
    yield "scatter_add of x * 2 along columns", lambda: x.scatter_add(0, every % 2048, x * 2)
    yield "index_put of src * 2, added", lambda: x.index_put((rows,), src * 2, accumulate=True)
    yield "index_put, added", lambda: x.index_put((rows,), src, accumulate=True)


def main():
    taper.set_num_threads(1)
    print(f"{'what':36s} {'compiled us':>12s} {'eager us':>10s} {'ratio':>6s}")
    for name, fn in cases():
        if sys.argv[1:] and not any(a in name for a in sys.argv[1:]):
            continue
        taper._dynamo.reset()
        with taper.no_grad():
            c, e = best(taper.compile(fn)), best(fn)
        print(f"{name:36s} {c:12.1f} {e:10.1f} {c / e:6.2f}", flush=True)


if __name__ == "__main__":
    main()
