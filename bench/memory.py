"""Most bytes a backward pass holds beyond what was alive before it, and bytes it leaves behind: Taper and PyTorch side by
side.

    python bench/memory.py [MODEL ...]

PyTorch's are the allocations its profiler sees (profile_memory), Taper's those of its storage allocator.
"""
import os, sys, warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "python")]
import models, taper

try:
    import torch
except ImportError:
    torch = None
warnings.simplefilter("ignore")


def ours(name):
    model, args, target, loss_fn = models.build(name, taper)
    for _ in range(2):
        model.zero_grad()
        loss = loss_fn(model(*args), target)
        live = taper._C._memory(True)[0]
        loss.backward()
    return taper._C._memory()[1] - live, taper._C._memory()[0] - live


def theirs(name):
    model, args, target, loss_fn = models.build(name, torch)
    for _ in range(2):
        model.zero_grad()
        with torch.autograd.profiler.profile(profile_memory=True) as p:  # frees are seen only of what it saw allocated
            loss = loss_fn(model(*args), target)
            with torch.autograd.profiler.record_function("the backward pass"):
                loss.backward()
    events = sorted(p.kineto_results.events(), key=lambda e: e.start_ns())
    begin = next(e.start_ns() for e in events if e.name() == "the backward pass")
    now = live = peak = 0
    for e in events:
        if e.name() != "[memory]":
            continue
        now += e.nbytes()
        if e.start_ns() < begin:
            live = peak = now
        peak = max(peak, now)
    return peak - live, now - live


if __name__ == "__main__":
    print(f"{'':12} {'Taper, MB':>10} {'PyTorch, MB':>12} {'ratio':>6}   left: Taper, PyTorch")
    for name in sys.argv[1:] or models.NAMES:
        a, la = ours(name)
        b, lb = theirs(name) if torch else (0, 0)
        print(f"{name:12} {a / 1e6:10.2f} {b / 1e6:12.2f} {a / b if b else 0:5.2f}x   {la / 1e6:.2f} {lb / 1e6:.2f}", flush=True)
