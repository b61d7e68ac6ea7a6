"""What mode="max-autotune" finds: time of the models of bench/models.py beside the default mode's, in turns, and what was chosen.

    PYTHONPATH=python python3 bench/autotune.py [--threads N] [--seconds S] [--models a,b] [--what forward,training] [--functions]

With one thread processor time is measured, else wall time; best of the runs, the two modes in turns.
"""
import argparse
import math
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))
os.environ.setdefault("TAPER_CACHE_DIR", tempfile.mkdtemp(prefix="taper-tune-"))
import models  # noqa: E402
import taper  # noqa: E402


def steps(name, what, options):
    model, args, target, loss = models.build(name, taper)
    compiled = taper.compile(model, options=options)
    if what == "forward":
        model.eval()

        def step():
            with taper.no_grad():
                return compiled(*args)
    else:
        def step():
            model.zero_grad()
            loss(compiled(*args), target).backward()
    return step


def functions():
    F = taper.nn.functional
    x, y, im = taper.randn(1024, 768), taper.randn(768, 1024), taper.randn(8, 16, 64, 64)
    a, b, w, k = taper.randn(1 << 20), taper.randn(1 << 20), taper.randn(768, 768), taper.randn(64, 16, 3, 3)
    return {
        "im.permute(0, 2, 3, 1).contiguous() * 2, 8x16x64x64": lambda: im.permute(0, 2, 3, 1).contiguous() * 2,
        "x.t() + y, 1024x768": lambda: x.t() + y,
        "softmax(x, 1).sum(0)": lambda: taper.softmax(x, 1).sum(0),
        "x.sum(0)": lambda: x.sum(0),
        "layer_norm(x)": lambda: F.layer_norm(x, (768,)),
        "relu(a * b + 1) * 2 - a, 1M": lambda: taper.relu(a * b + 1) * 2 - a,
        "gelu(x @ w)": lambda: F.gelu(x @ w),
        "relu(conv of im by 64 windows 3x3)": lambda: F.conv2d(im, k, None, 1, 1).relu(),
        "cat of x and sin(x) along columns": lambda: taper.cat([x, x.sin()], 1),
    }


def pairs(a, tuned):
    """(name, what, default, max-autotune), each made when its turn comes."""
    for name in a.models.split(",") if a.models else []:
        for what in a.what.split(","):
            yield name, what, *(steps(name, what, o) for o in ({}, tuned))
    for name, f in functions().items() if a.functions else []:
        def step(options, f=f):
            c = taper.compile(f, options=options)

            def run():
                with taper.no_grad():
                    return c()
            return run
        yield name, "", step({}), step(tuned)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seconds", default="none", help="autotune_seconds")
    p.add_argument("--models", default=",".join(models.NAMES))
    p.add_argument("--what", default="forward,training")
    p.add_argument("--functions", action="store_true", help="single functions, too")
    p.add_argument("--runs", type=int, default=40)
    a = p.parse_args()
    taper.set_num_threads(a.threads)
    clock = time.thread_time if a.threads == 1 else time.perf_counter
    print("| model | what | search s | default ms | max-autotune ms | ratio |\n| --- | --- | ---: | ---: | ---: | ---: |")
    ratios = []
    for name, what, *fns in pairs(a, {"max_autotune": True, "autotune_seconds": a.seconds}):
        t0 = time.time()
        fns[0]()
        t1 = time.time()
        fns[1]()
        search = time.time() - t1 - (t1 - t0)
        best = [1e9, 1e9]
        for i in range(a.runs):
            for k in (0, 1) if i % 2 else (1, 0):
                t = clock()
                fns[k]()
                best[k] = min(best[k], clock() - t)
        ratios.append(best[1] / best[0])
        print(f"| {name} | {what} | {search:.1f} | {best[0] * 1e3:.3f} | {best[1] * 1e3:.3f} | {ratios[-1]:.2f} |", flush=True)
        taper._dynamo.reset()
    print(f"\nGeometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}")


if __name__ == "__main__":
    main()
