"""Single operators on CUDA, eager, with PyTorch beside Taper where it is importable: milliseconds a call, and the ratio.

  python3 bench/cuda_ops.py [WORD]     only those whose name has the word"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
IMAGE, HALF = (64, 512, 28, 28), (64, 128, 28, 28)
ROWS = (16384, 4096)
# name, what it does, types and sizes of its arguments
OPS = [
    ("convolution 1x1", lambda m, F, x, w: F.conv2d(x, w), "bfloat16", IMAGE, (128, 512, 1, 1)),
    ("convolution 3x3", lambda m, F, x, w: F.conv2d(x, w, None, 1, 1), "bfloat16", HALF, (128, 128, 3, 3)),
    ("depthwise 7x7", lambda m, F, x, w: F.conv2d(x, w, None, 1, 3, 1, 128), "float32", (32, 128, 56, 56), (128, 1, 7, 7)),
    ("pad", lambda m, F, x: F.pad(x, (1, 1, 1, 1)), "bfloat16", HALF),
    ("patches", lambda m, F, x: x.as_strided((64, 128, 3, 3, 26, 26), (128 * 784, 784, 28, 1, 28, 1)).contiguous(), "bfloat16", HALF),
    ("batched product", lambda m, F, a, b: m.bmm(a, b), "bfloat16", (64, 128, 1152), (64, 1152, 784)),
    ("one matrix by many", lambda m, F, a, b: m.bmm(a.expand(64, 128, 1152), b), "bfloat16", (1, 128, 1152), (64, 1152, 784)),
    ("batch norm", lambda m, F, x: F.batch_norm(x, None, None, None, None, True), "bfloat16", IMAGE),
    ("relu", lambda m, F, x: F.relu(x), "bfloat16", IMAGE),
    ("add", lambda m, F, x, y: x + y, "bfloat16", IMAGE, IMAGE),
    ("max pool 3x3", lambda m, F, x: F.max_pool2d(x, 3, 2, 1), "bfloat16", IMAGE),
    ("sum of channels", lambda m, F, x: x.sum((0, 2, 3)), "bfloat16", IMAGE),
    ("softmax", lambda m, F, x: F.softmax(x, -1), "float32", ROWS),
    ("layer norm", lambda m, F, x: F.layer_norm(x, (4096,)), "bfloat16", ROWS),
    ("sum of columns", lambda m, F, x: x.sum(0), "float32", ROWS),
    ("cumulative sum", lambda m, F, x: x.cumsum(-1), "float32", ROWS),
    ("transpose", lambda m, F, x: x.t().contiguous(), "float32", (8192, 8192)),
    ("embedding", lambda m, F, w: F.embedding(m.arange(8192, device="cuda") % 1000, w), "bfloat16", (1000, 1024)),
    ("sort", lambda m, F, x: x.sort(-1)[0], "float32", (4096, 1024)),
]


def timed(m, f, n=10):
    best = 1e9
    for _ in range(3):
        f()
        m.cuda.synchronize()
        t = time.perf_counter()
        for _ in range(n):
            f()
        m.cuda.synchronize()
        best = min(best, (time.perf_counter() - t) / n * 1e3)
        if best > 50:
            break
    return best


def main():
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    import taper
    if not taper.cuda.is_available():
        print("bench: skipped, there is no GPU")
        return 77
    libs = [taper]
    try:
        import torch
        libs.append(torch)
    except ImportError:
        pass
    print(f"{'':20}{'Taper':>10}{'PyTorch':>10}{'ratio':>8}   ({taper.cuda.get_device_name()}, eager, ms)")
    for name, f, dt, *sizes in OPS:
        if word not in name:
            continue
        ms = []
        for m in libs:
            args = [m.randn(*s, device="cuda").to(getattr(m, dt)) for s in sizes]
            ms.append(timed(m, lambda: f(m, m.nn.functional, *args)))
            del args
            m.cuda.empty_cache()
        print(f"{name:20}{ms[0]:10.3f}" + (f"{ms[1]:10.3f}{ms[0] / ms[1]:8.2f}" if len(ms) > 1 else ""), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
