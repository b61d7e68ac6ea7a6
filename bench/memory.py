"""Most bytes a training step holds beyond what was alive before it, eager and compiled in three forms, and what an eager
backward pass holds and leaves behind beside PyTorch.

    python bench/memory.py [--small] [--backward] [MODEL ...]

The forms: the model compiled; the model and the loss; one compiled function with `backward()` inside; one with
`zero_grad()` and the optimizer's step (SGD with momentum, AdamW) inside, too. PyTorch's bytes (--backward) are the allocations its profiler
sees (profile_memory), Taper's those of its storage allocator.
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

OPTIMIZERS = {"sgd": lambda p: taper.optim.SGD(p, lr=0.01, momentum=0.9), "adamw": lambda p: taper.optim.AdamW(p, lr=1e-3)}


FORMS = ["model", "loss", "backward", *OPTIMIZERS]  # how much of a step one compiled function holds


def step_of(name, form, compiled, small=False):
    """One step of training in one of the forms, and what is to be done after it."""
    model, args, target, loss_fn = models.build(name, taper, small=small)
    wrap = lambda fn, at: taper.compile(fn, fullgraph=True) if compiled and form == at else fn
    if form in OPTIMIZERS:
        opt = OPTIMIZERS[form](model.parameters())
        return wrap(lambda: models.train_step(model, args, target, loss_fn, opt).detach(), form), lambda: None
    call = wrap(model, "model")
    loss = wrap(lambda: loss_fn(call(*args), target), "loss")
    return wrap(lambda: loss().backward(), "backward"), model.zero_grad


def peak(name, form, compiled, small=False):
    taper._dynamo.reset()
    step, after = step_of(name, form, compiled, small)
    for _ in range(3):
        step()
        after()
    before = taper._C._memory(True)[0]
    step()
    return taper._C._memory()[1] - before


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


def backward_table(names):
    print(f"{'':12} {'Taper, MB':>10} {'PyTorch, MB':>12} {'ratio':>6}   left: Taper, PyTorch")
    for name in names:
        a, la = ours(name)
        b, lb = theirs(name) if torch else (0, 0)
        print(f"{name:12} {a / 1e6:10.2f} {b / 1e6:12.2f} {a / b if b else 0:5.2f}x   {la / 1e6:.2f} {lb / 1e6:.2f}", flush=True)


def step_table(names, small):
    print("MB of a training step, eager and compiled\n" + f"{'':12}" + "".join(f"{f:>12} {'compiled':>9}" for f in FORMS))
    for name in names:
        line = f"{name:12}"
        for form in FORMS:
            e, c = (peak(name, form, compiled, small) for compiled in (False, True))
            line += f"{e / 1e6:12.3f} {c / 1e6:8.3f}{'*' if c > e else ' '}"
        print(line, flush=True)


if __name__ == "__main__":
    names = [a for a in sys.argv[1:] if not a.startswith("--")] or models.NAMES
    if "--backward" in sys.argv:
        backward_table(names)
    else:
        step_table(names, "--small" in sys.argv)
