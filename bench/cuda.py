"""Taper on CUDA, with PyTorch beside it where it is importable: milliseconds a call, and of the first call; then the ratio of the best
of Taper to the best of PyTorch, and the geometric mean of those.

  python3 bench/cuda.py [--torch] [--only WORD] [--modes WORDS] [--small]

--modes: which of eager,compiled,reduce-overhead (all). --small: models at sizes of tests, each called twice."""
import argparse
import math
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))


def chain(m):
    def f(x):
        for _ in range(10):
            x = x.sin() * x.cos() + x
        return x
    return f, lambda: [m.randn(16 << 20, device="cuda")]


def softmax(m):
    return (lambda x: m.softmax(x, -1)), lambda: [m.randn(16384, 4096, device="cuda")]


def norm(m):
    F = m.nn.functional

    def f(x, w, b):
        return F.layer_norm(F.gelu(x + 1) * x, (4096,), w, b)
    return f, lambda: [m.randn(16384, 4096, device="cuda").bfloat16(), m.ones(4096, device="cuda").bfloat16(), m.zeros(4096, device="cuda").bfloat16()]


def train(make):
    def case(m):
        f, args = make(m)

        def g(*a):
            loss = f(*a)
            loss = (loss[0] if isinstance(loss, tuple) else loss).float().sum()
            loss.backward()
            for x in a:
                x.grad = None
            return loss
        g.inner = f
        return g, lambda: [x.detach().requires_grad_() for x in args()]
    return case


def mlp(m):
    F = m.nn.functional
    return (lambda x, w, v: F.gelu(x @ w) @ v), lambda: [m.randn(4096, 4096, device="cuda").bfloat16(), (m.randn(4096, 16384, device="cuda") * 0.01).bfloat16(),
                                                         (m.randn(16384, 4096, device="cuda") * 0.01).bfloat16()]


def conv(m):
    """A stage of ResNet-50: four blocks of 1x1, 3x3 and 1x1, each with normalisation."""
    F = m.nn.functional

    def normed(x, w, stride=1):
        y = F.conv2d(x, w, None, stride, w.shape[2] // 2)
        return F.batch_norm(y, None, None, None, None, True)

    def f(x, *w):
        for i in range(0, len(w), 3):
            y = F.relu(normed(x, w[i]))
            y = F.relu(normed(y, w[i + 1]))
            x = F.relu(x + normed(y, w[i + 2]))
        return F.max_pool2d(x, 3, 2, 1)
    sizes = [(128, 512, 1, 1), (128, 128, 3, 3), (512, 128, 1, 1)] * 4
    return f, lambda: [m.randn(64, 512, 28, 28, device="cuda").bfloat16()] + [(m.randn(*s, device="cuda") * 0.05).bfloat16() for s in sizes]


def depthwise(m):
    return (lambda x, w: m.nn.functional.conv2d(x, w, None, 1, 3, 1, 128)), lambda: [m.randn(32, 128, 56, 56, device="cuda"), m.randn(128, 1, 7, 7, device="cuda")]


def adam(m):
    """Steps of an optimizer whose numbers change."""
    p = [m.zeros(1000, 100, device="cuda", requires_grad=True) for _ in range(10)]
    for x in p:
        x.grad = m.ones(1000, 100, device="cuda")
    o = m.optim.Adam(p, foreach=False)
    return (lambda: o.step()), lambda: []


def small(m):
    return (lambda x, w: (x @ w).relu()), lambda: [m.randn(64, 64, device="cuda"), m.randn(64, 64, device="cuda")]


def plus(m):
    return (lambda x: x + 1), lambda: [m.randn(8, device="cuda")]


CASES = [("10x(sin*cos+x), 16M f32", chain), ("softmax 16384x4096 f32", softmax), ("gelu(x+1)*x, layer norm bf16", norm),
         ("the same, training", train(norm)), ("MLP 4096x4096x16384 bf16", mlp), ("ResNet stage 64x512x28x28 bf16", conv), ("the same, forward and backward", train(conv)), ("depthwise 7x7 32x128x56x56 f32", depthwise),
         ("Adam, 10 tensors of 100,000", adam), ("relu(x @ w), 64 f32", small), ("x + 1, 8 f32", plus)]


def taken_over(m, f, args):
    """Calls f until compiled code has taken over from the first tier, where there is one."""
    stats = getattr(m._C, "_cuda_stats", None)
    if not stats or not stats(0)["first"]:
        return
    until = time.perf_counter() + 3
    seen = None
    while time.perf_counter() < until and seen != stats(0)["first"]:  # until a call ran in no first tier
        seen = stats(0)["first"]
        f(*args)
        m.cuda.synchronize()


def timed(m, f, args):
    m.cuda.synchronize()
    t = time.perf_counter()
    f(*args)
    m.cuda.synchronize()
    first = time.perf_counter() - t
    taken_over(m, f, args)
    best = 1e9
    n = 3
    while n < 3000:
        t = time.perf_counter()
        for _ in range(n):
            f(*args)
        m.cuda.synchronize()
        took = time.perf_counter() - t
        best = min(best, took / n)
        if took > 0.15:
            break
        n *= 3
    return best * 1e3, first * 1e3


MODES = "eager", "compiled", "reduce-overhead"


def compiled(m, f, mode):
    inner, mode = getattr(f, "inner", None), None if mode == "compiled" else mode
    if inner is None:
        return m.compile(f, mode=mode)
    c = m.compile(inner, mode=mode)

    def g(*a):
        loss = c(*a).float().sum()
        loss.backward()
        for x in a:
            x.grad = None
        return loss
    return g


def kernels(make):
    """A case of functions as those of cuda_models.make."""
    def case(m):
        f, args = make(m)
        x = args()
        return lambda mode: lambda g=f if mode == "eager" else compiled(m, f, mode): g(*x)
    return case


def cases(small):
    import cuda_models as cm
    if not small:
        for title, make in CASES:
            yield title, kernels(make)
    for title, build in cm.MODELS:
        for training in (False, True):
            yield title + (", training" if training else ""), lambda m, b=build, t=training: cm.make(m, b, small, t)


def measure(name, m, case, small, modes):
    """(best milliseconds or None, text)"""
    best, row = None, []
    for mode in modes:
        try:
            f = case(m)(mode)
            if small:
                ms, first = float(f()), float(f())  # values of two calls, which are equal
            else:
                ms, first = timed(m, f, [])
                best = ms if best is None else min(best, ms)
            row.append(f"{name} {mode} {ms:.4g} ({first:.4g})")
            del f
        except Exception as e:  # noqa: BLE001
            row.append(f"{name} {mode} {type(e).__name__}: {str(e).splitlines()[0][:120] if str(e) else ''}")
        m.cuda.empty_cache()
    return best, row


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--torch", action="store_true")
    ap.add_argument("--only", default="")
    ap.add_argument("--modes", default=",".join(MODES))
    ap.add_argument("--small", action="store_true")
    a = ap.parse_args()
    modes = [m for m in MODES if m in a.modes.split(",")]
    import taper
    if not taper.cuda.is_available():
        print("bench: skipped, there is no GPU")
        return 77
    libs = [("taper", taper)]
    if a.torch:
        import torch
        libs.append(("torch", torch))
    print(f"{taper.cuda.get_device_name()}; milliseconds a call (of the first)")
    ratios = []
    for title, case in cases(a.small):
        if a.only and a.only not in title:
            continue
        got = [measure(name, m, case, a.small, modes) for name, m in libs]
        row = sum((r for _, r in got), [])
        if len(got) > 1 and got[0][0] and got[1][0]:
            ratios.append(got[0][0] / got[1][0])
            row.append(f"ratio {ratios[-1]:.2f}")
        print(f"{title:32} " + " | ".join(row), flush=True)
    if ratios:
        print(f"geometric mean of {len(ratios)} ratios: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
