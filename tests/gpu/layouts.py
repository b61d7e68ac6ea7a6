"""Values and times of convolutions, products and row kernels on CUDA. See layouts.sh.

  bash tests/gpu/layouts.sh [--only WORD] [--seconds N] [--small]      --small: sizes for an interpreter of kernels"""
import argparse
import os
import sys
import time

import taper
import cuda as bench

F = taper.nn.functional
STARTED = time.perf_counter()
wrong = 0


def left(a):
    return a.seconds - (time.perf_counter() - STARTED)


def best(m, f, *args, seconds=0.25):
    """Milliseconds a call."""
    for _ in range(3):
        f(*args)
    m.cuda.synchronize()
    n, least = 1, 1e9
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        t = time.perf_counter()
        for _ in range(n):
            f(*args)
        m.cuda.synchronize()
        took = time.perf_counter() - t
        least = min(least, took / n)
        n = max(1, min(200, int(0.03 / max(least, 1e-6))))
    return least * 1e3


def settled(f, *args):
    f(*args)
    bench.taken_over(taper, f, args)
    taper.cuda.synchronize()


def compare(what, got, want, tol):
    """Largest difference, measured by the largest element."""
    global wrong
    worst = 0.0
    for g, w in zip(got, want):
        if g.stride() != w.stride():
            print(f"WRONG {what}: strides {g.stride()} instead of {w.stride()}")
            wrong += 1
        d = (g.float().cpu() - w.float().cpu()).abs().max().item()
        worst = max(worst, d / max(w.float().abs().max().item(), 1e-9))
    if not worst <= tol:
        print(f"WRONG {what}: {worst:.3g} of the largest element, {tol} allowed")
        wrong += 1
    return worst


def tuple_of(x):
    return list(x) if isinstance(x, (tuple, list)) else [x]


def case(a, title, f, args, tol=0.02, train=False, modes=("eager", "compiled", "reduce-overhead"), gb=None, flop=None):
    if a.only not in title or left(a) < 5:
        return
    row, want, exact, base = [], None, None, args()
    if train:
        x = [t.detach().float().requires_grad_() for t in base]
        y = f(*x)
        y.square().mean().backward()
        exact = [y.detach().cpu(), *[t.grad.cpu() for t in x]]
    if not train and "images" not in title and left(a) > 60:
        want = [t.detach() for t in tuple_of(f(*(t.cpu() for t in base)))]
    for mode in modes:
        try:
            x = [t.detach().requires_grad_(train and t.dtype.is_floating_point) for t in base]
            g = f if mode == "eager" else taper.compile(f, mode=None if mode == "compiled" else mode)

            def call():
                y = g(*x)
                if train:
                    y.float().square().mean().backward()
                    grads = [t.grad for t in x]
                    for t in x:
                        t.grad = None
                    return [y, *grads]
                return y
            settled(call)
            got = [t.detach().cpu() for t in tuple_of(call())]
            if exact and want is not None:  # noise of narrow floats: as large as that of eager calls
                tol = 1.5 * compare("", want, exact, 1e9) + 0.02
            off = 0.0 if want is None else compare(f"{title} {mode}", got, exact or want, tol)
            want = got if want is None or mode == "eager" else want
            ms = best(taper, call)
            row.append(f"{mode} {ms:.4g}" + (f" = {gb / ms * 1e3:.0f} GB/s" if gb else "") + (f" = {flop / ms / 1e9:.0f} TFLOP/s" if flop else "") +
                       f" ({off:.2g})")
        except Exception as e:  # noqa: BLE001
            row.append(f"{mode} {type(e).__name__}: {str(e).splitlines()[0][:200] if str(e) else ''}")
        taper.cuda.empty_cache()
    print(f"{title:44} " + " | ".join(row), flush=True)


def randn(*size, by=1.0):
    return (taper.randn(*size, device="cuda") * by).bfloat16()


def kernels(a, title, f, n=14):
    """The kernels of one call by time, as PyTorch's profiler sees them."""
    if a.only not in title or left(a) < 8:
        return
    try:
        import torch
    except ImportError:
        return
    try:
        settled(f)
        f()
        taper.cuda.synchronize()
        torch.zeros(1, device="cuda")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
            for _ in range(3):
                f()
            taper.cuda.synchronize()
        rows = sorted(((e.self_device_time_total / 3, e.count / 3, e.key) for e in p.key_averages()), reverse=True)
        print(f"kernels of {title}: {sum(r[0] for r in rows) / 1e3:.3f} ms in {sum(r[1] for r in rows):.0f} launches")
        for us, count, name in rows[:n]:
            print(f"  {us:9.1f} us {count:5.0f} x {name[:150]}")
    except Exception as e:  # noqa: BLE001
        print(f"kernels of {title}: {type(e).__name__}: {str(e)[:200]}")
    sys.stdout.flush()


def steps(f, args, train, mode="compiled"):
    x = [t.requires_grad_() if train else t for t in args()]
    c = taper.compile(f, mode=None if mode == "compiled" else mode)

    def call():
        y = c(*x)
        if train:
            y.float().square().mean().backward()
            for t in x:
                t.grad = None
    return call


def torch_times(a):
    """A few cases by PyTorch 2, the better of two modes."""
    try:
        import torch
    except ImportError:
        return
    T = torch.nn.functional
    if "torch" not in a.only and a.only:
        return

    def t(*size):
        return torch.randn(*size, device="cuda", dtype=torch.bfloat16)
    f, args = bench.conv(torch)
    x, w, b = t(16384, 4096), t(4096), t(4096)
    h, v = t(4096, 768), t(50257, 768)
    x2, w2, b2 = t(4096, 768), t(3072, 768), t(3072)
    for title, g, xs in (("layer norm bf16 16384x4096", lambda x, w, b: T.layer_norm(x, (4096,), w, b), (x, w, b)),
                         ("softmax bf16 16384x4096", lambda x: T.softmax(x, -1), (x,)),
                         ("logits 4096x768x50257", lambda h, v: T.linear(h, v), (h, v)),
                         ("gelu of a linear layer", lambda x, w, b: T.gelu(T.linear(x, w, b)), (x2, w2, b2)),
                         ("ResNet stage", f, args())):
        if left(a) < 12:
            return
        row = []
        with torch.no_grad():
            for mode in ("eager", "default"):
                try:
                    c = g if mode == "eager" else torch.compile(g)
                    row.append(f"{mode} {best(torch, c, *xs):.4g}")
                except Exception as e:  # noqa: BLE001
                    row.append(f"{mode} {type(e).__name__}")
        print(f"torch: {title:37} " + " | ".join(row), flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--only", default="")
    ap.add_argument("--seconds", type=float, default=108)
    ap.add_argument("--small", action="store_true")
    a = ap.parse_args()
    if not taper.cuda.is_available():
        print("layouts: skipped, there is no GPU")
        return 77
    print(f"{taper.cuda.get_device_name()}; milliseconds a call; in brackets: largest difference from eager (of eager: from the CPU, or 0; training: from floats), of the largest element")
    taper.manual_seed(0)
    z = 128 if a.small else 1
    rows, cols = 16384 // z // 4, 4096 // z
    x = randn(4 * rows, cols)
    y = taper.empty_like(x)
    ms = best(taper, lambda: y.copy_(x))
    gb = 2 * x.numel() * 2 / 1e9
    print(f"copy of {x.numel() * 2 >> 20} MB: {ms:.4f} ms = {gb / ms * 1e3:.0f} GB/s")
    w, b = randn(cols), randn(cols)
    narrow = cols // 4
    case(a, "rows: layer norm bf16 16384x4096", lambda x, w, b: F.layer_norm(x, (cols,), w, b), lambda: [x, w, b], gb=gb)
    case(a, "rows: softmax bf16 16384x4096", lambda x: F.softmax(x, -1), lambda: [x], gb=gb)
    case(a, "rows: softmax f32 8192x4096", lambda x: F.softmax(x, -1), lambda: [x[:2 * rows].float()], tol=1e-5, gb=gb)
    case(a, "rows: rms norm bf16 16384x4096", lambda x, w: F.rms_norm(x, (cols,), w), lambda: [x, w], gb=gb)
    case(a, "rows: layer norm bf16 65536x1024", lambda x, w, b: F.layer_norm(x, (narrow,), w, b), lambda: [x.view(-1, narrow), w[:narrow], b[:narrow]], gb=gb)
    m, n, k, words = 4096 // z, 3072 // z, 768 // z * (4 if z > 1 else 1), 50257 // z
    case(a, "rows: layer norm bf16 4096x768", lambda x, w, b: F.layer_norm(x, (k,), w, b), lambda: [randn(m, k), w[:k], b[:k]], gb=2 * m * k * 2 / 1e9)
    h, v = randn(m, k), randn(words, k, by=0.03)
    flop = 2 * m * k * words
    case(a, "product: logits 4096x768x50257", lambda h, v: F.linear(h, v), lambda: [h, v], flop=flop)
    case(a, "product: logits, aligned 50264", lambda h, v: F.linear(h, v), lambda: [h, randn((words + 7) // 8 * 8, k, by=0.03)], modes=("eager",), flop=flop)
    case(a, "product: loss of logits", lambda h, v: F.cross_entropy(F.linear(h, v).float(), taper.arange(m, device=h.device)), lambda: [h, v])
    flop = 2 * m * n * k
    p, q, r, s = randn(m, k), randn(n, k, by=0.05), randn(n), randn(m, n)
    case(a, "product: linear", lambda p, q: F.linear(p, q), lambda: [p, q], flop=flop)
    case(a, "product: linear with a bias", lambda p, q, r: F.linear(p, q, r), lambda: [p, q, r], flop=flop)
    case(a, "product: gelu of linear with a bias", lambda p, q, r: F.gelu(F.linear(p, q, r)), lambda: [p, q, r], flop=flop)
    case(a, "product: tanh gelu of linear with a bias", lambda p, q, r: F.gelu(F.linear(p, q, r), approximate="tanh"), lambda: [p, q, r], flop=flop)
    case(a, "product: relu of linear with a bias", lambda p, q, r: F.relu(F.linear(p, q, r)), lambda: [p, q, r], flop=flop)
    case(a, "product: linear with a bias and a summand", lambda p, q, r, s: s + F.linear(p, q, r), lambda: [p, q, r, s], flop=flop)
    case(a, "product: gelu of linear, max-autotune", lambda p, q, r: F.gelu(F.linear(p, q, r)), lambda: [p, q, r], modes=("eager", "max-autotune"), flop=flop)
    f, args = bench.conv(taper)
    if a.small:
        def args():
            return [randn(2, 16, 6, 6)] + [randn(*s, by=0.2) for s in [(8, 16, 1, 1), (8, 8, 3, 3), (16, 8, 1, 1)] * 2]
    case(a, "images: ResNet stage", f, args, tol=0.06)
    case(a, "images: ResNet stage, training", f, args, tol=0.12, train=True)
    kernels(a, "images: ResNet stage", steps(f, args, False))
    kernels(a, "images: ResNet stage, training", steps(f, args, True))
    import cuda_models as cm
    for title, build in cm.MODELS:
        if not any(word in title for word in ("ResNet", "GPT")):
            continue
        for train in (False, True):
            if (a.only in title or a.only == "models") and left(a) > 15 and not a.small:
                for mode in ("compiled", "reduce-overhead"):
                    call = cm.make(taper, build, False, train)(mode)
                    ms, first = bench.timed(taper, call, [])
                    print(f"{title + (', training' if train else ''):44} {mode} {ms:.4g} (first {first:.0f})", flush=True)
                kernels(a, title + (", training" if train else ""), call)
                del call
                taper.cuda.empty_cache()
    if not a.small:
        torch_times(a)
    print(f"{wrong} wrong, {time.perf_counter() - STARTED:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
