#!/usr/bin/env python3
"""torch.compile(backend="taper") beside PyTorch's own backends: first steps with empty and with warm caches, what a call costs, and steps after that.

  bench/bridge.py [--models N] [--steady [--threads N]] [--jobs N] [NAME ...]

Each cell is a process of its own; processor time (with that of compilers it starts) is printed, because it means the same on a busy machine. "capture" is
Dynamo and AOTAutograd with compilers that do nothing. Skips loudly without PyTorch.
--steady: the models of bench/models.py (NAME: some of them; tv:NAME: one of torchvision's) at --threads (2), Taper and Inductor turn by turn in one process,
wall-clock milliseconds; a process is held on as many cores of its own, --jobs of them at a time.
"""
import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = {
    "mlp": "n.Sequential(n.Linear(32, 64), n.GELU(), n.LayerNorm(64), n.Linear(64, 8)), torch.randn(4, 32)",
    "encoder layer": "n.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True), torch.randn(2, 6, 32)",
    "convnet": "n.Sequential(n.Conv2d(3, 8, 3, padding=1), n.BatchNorm2d(8), n.ReLU(), n.MaxPool2d(2), n.Flatten(), n.Linear(128, 5)), torch.randn(2, 3, 8, 8)",
}


def cpu():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def backend_of(name):
    if name == "taper":
        import taper.torch
        return taper.torch.backend
    if name == "capture":
        import torch
        from torch._dynamo.backends.common import aot_autograd
        from torch._functorch.aot_autograd import make_boxed_func
        return aot_autograd(fw_compiler=lambda gm, ex: make_boxed_func(gm.forward), partition_fn=torch._functorch.partitioners.min_cut_rematerialization_partition)
    return name


def first(name, model):
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(0)
    n = torch.nn
    backend = backend_of(name)
    torch.compile(lambda x: x * 2 + 1, backend=backend)(torch.ones(2))  # imports and probes, of training too
    torch.compile(lambda x: x.sin() * 2, backend=backend)(torch.ones(2, requires_grad=True)).sum().backward()
    m, x = eval(MODELS[model])
    x.requires_grad_()
    f = torch.compile(m, backend=backend)
    before = cpu()
    f(x).square().sum().backward()
    return cpu() - before


def call(name, inputs):
    import torch
    torch.set_num_threads(1)
    f = torch.compile((lambda x: x.sin() + 1) if inputs == 1 else (lambda *xs: torch.stack([a.sum() for a in xs])), backend=backend_of(name))
    xs = [torch.randn(8) for _ in range(inputs)]
    with torch.no_grad():
        for _ in range(20):
            f(*xs)
        best = []
        for _ in range(30):
            t = time.process_time_ns()
            for _ in range(100):
                f(*xs)
            best.append((time.process_time_ns() - t) / 1e5)
    return sorted(best)[len(best) // 4]


def build(model):
    """-> (module, inputs, target, loss function)"""
    import torch
    if not model.startswith("tv:"):
        import models
        return models.build(model, torch)
    import torchvision
    torch.manual_seed(0)
    return torchvision.models.get_model(model[3:], weights=None), (torch.randn(2, 3, 224, 224),), torch.tensor([1, 2]), torch.nn.functional.cross_entropy


def steady(model, threads):
    """-> {"inference": (taper, inductor), "training": (taper, inductor)}, milliseconds a step"""
    import torch
    torch.set_num_threads(threads)
    runs = {}
    for name in ("taper", "inductor"):
        m, args, target, loss = build(model)
        torch._dynamo.reset()
        f = torch.compile(m, backend=backend_of(name))
        g = torch.compile(lambda *a, m=m, target=target, loss=loss: loss(m(*a), target), backend=backend_of(name))

        def infer(f=f, m=m, args=args):
            with torch.no_grad():
                f(*args)

        def train(g=g, m=m, args=args):
            m.zero_grad()
            g(*args).backward()
        train()
        m.eval()
        infer()
        runs[name] = m, infer, train
    answer = {}
    for what, at in (("inference", 1), ("training", 2)):
        blocks = {name: [] for name in runs}
        for name, r in runs.items():
            r[0].train(what == "training")
            r[at]()
        t = time.perf_counter()
        runs["inductor"][at]()
        k = max(1, int(0.04 / (time.perf_counter() - t)))
        for _ in range(12):
            for name, r in runs.items():
                r[at]()
                t = time.perf_counter()
                for _ in range(k):
                    r[at]()
                blocks[name].append((time.perf_counter() - t) / k * 1e3)
        answer[what] = [statistics.median(blocks[name]) for name in ("taper", "inductor")]
    return answer


def all_steady(names, jobs, threads):
    import concurrent.futures
    import math
    import queue
    usable = sorted(os.sched_getaffinity(0))
    pairs = queue.Queue()
    for i in range(jobs):
        pairs.put(usable[threads * i:threads * (i + 1)])

    def one(name):
        pair = pairs.get()
        try:
            return name, child("steady", threads, name, cores=pair, TORCHINDUCTOR_COMPILE_THREADS=str(threads))
        except subprocess.CalledProcessError:
            return name, None
        finally:
            pairs.put(pair)
    ratios = {"inference": [], "training": []}
    print(f"| a step, ms, {threads} threads | inference: taper | inductor | ratio | training: taper | inductor | ratio |\n| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for name, got in pool.map(one, names):
            cells = []
            for what in ratios:
                t, i = got[what] if got else (math.nan, math.nan)
                if got:
                    ratios[what].append(t / i)
                cells.append(f"{t:.3g} | {i:.3g} | {t / i:.2f}")
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    every = ratios["inference"] + ratios["training"]
    print("geometric mean of ratios: " + ", ".join(f"{what} {math.exp(sum(map(math.log, r)) / max(1, len(r))):.3f}" for what, r in (*ratios.items(), ("both", every))))


def child(*args, cores=None, **env):
    p = subprocess.run((["taskset", "-c", ",".join(map(str, cores))] if cores else []) + [sys.executable, os.path.abspath(__file__), "--child", *map(str, args)], env=dict(os.environ, **env), stdout=subprocess.PIPE, check=True)
    return json.loads(p.stdout.decode().splitlines()[-1])


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--child", nargs=3)
    a.add_argument("--models", type=int, default=len(MODELS))
    a.add_argument("--steady", action="store_true")
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--jobs", type=int, default=1)
    a.add_argument("names", nargs="*")
    a = a.parse_args()
    if a.child:
        what, name, arg = a.child
        print(json.dumps(first(name, arg) if what == "first" else steady(arg, int(name)) if what == "steady" else call(name, int(arg))))
        return 0
    try:
        import torch  # noqa: F401
    except ImportError:
        print("SKIPPED: PyTorch is not importable by this Python")
        return 0
    if a.steady:
        import models
        all_steady(a.names or models.NAMES + models.MORE, a.jobs, a.threads)
        return 0
    print("| first step, processor seconds | Dynamo alone | capture | taper, cold | taper, warm | inductor, cold | inductor, warm |\n| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for model in list(MODELS)[:a.models]:
        row = [child("first", "eager", model), child("first", "capture", model)]
        for name in ("taper", "inductor"):
            d = tempfile.mkdtemp(prefix="bridge-")
            env = {"TORCHINDUCTOR_CACHE_DIR": os.path.join(d, "t"), "TAPER_CACHE_DIR": os.path.join(d, "c"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
            row += [child("first", name, model, **env), child("first", name, model, **env)]
            shutil.rmtree(d, ignore_errors=True)
        print(f"| {model} | " + " | ".join(f"{v:.2f}" for v in row) + " |", flush=True)
    print("\n| a call, processor microseconds | Dynamo alone | taper | inductor |\n| --- | --- | --- | --- |", flush=True)
    for inputs in (1, 50):
        print(f"| {inputs} input{'s' * (inputs > 1)} | " + " | ".join(f"{child('call', b, inputs):.1f}" for b in ("eager", "taper", "inductor")) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
