"""The autograd stage: its time for a training step of each model, what forward keeps for backward (and what PyTorch's
min-cut partitioner keeps, where PyTorch is importable), and by callgrind whether its cost grows as the graph does.

    PYTHONPATH=python python3 bench/aot.py [--instructions]

Fails when a promise is broken: gpt under 10 ms, gpt and resnet keep no more than PyTorch, instructions linear."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LINE = re.compile(r"__compiled_fn_\d+: (\d+) captured nodes became (\d+) in ([\d.]+) ms(?:; forward keeps (\d+) bytes in (\d+) "
                  r"values for backward, which reads (\d+) bytes)?")


def child(name, whole, times, layers=None):
    """Compiles a model (or its whole training step) some times; the log says what the stage did."""
    sys.path.insert(0, HERE)
    import models
    import taper
    for _ in range(times):
        taper._dynamo.reset()
        taper.manual_seed(0)
        if layers:
            model = models._gpt_module(taper, 64, 32, 2, layers, 16)
            args, target, loss = (taper.randint(0, 64, (2, 16)),), taper.randint(0, 64, (2, 16)), None
        else:
            model, args, target, loss = models.build(name, taper)
        if whole:
            opt = taper.optim.AdamW(model.parameters())
            taper.compile(lambda: models.train_step(model, args, target, loss, opt), backend="aot_eager_decomp_partition")()
        else:
            taper.compile(model, backend="aot_eager_decomp_partition")(*args)


def stage(name, whole):
    """The best time and the rest of the line, over some compiles."""
    p = subprocess.run([sys.executable, __file__, "--child", name, str(int(whole)), "6" if whole else "9"], stderr=subprocess.PIPE,
                       text=True, env=dict(os.environ, TAPER_LOGS="aot,-aot_graphs,-aot_joint_graph"))
    found = [m.groups() for m in LINE.finditer(p.stderr)]
    if not found:
        raise SystemExit(p.stderr[-2000:])
    return min(found, key=lambda m: float(m[2]))


def pytorch():
    """Bytes that PyTorch's forward graphs keep, by model; parameters and inputs count nothing, here as there."""
    try:
        import torch
        from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
        from torch._dynamo.backends.common import aot_autograd
        from torch._inductor.decomposition import select_decomp_table
    except ImportError:
        return {}
    sys.path.insert(0, HERE)
    import models
    kept = {}
    for name in models.NAMES:
        def bw(gm, example_inputs):
            vals = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder" and not n.name.startswith(("tangents", "primals"))]
            kept[name] = sum(v.numel() * v.element_size() for v in vals if hasattr(v, "numel"))
            return make_boxed_func(gm.forward)

        torch._dynamo.reset()
        model, args, target, loss = models.build(name, torch)
        f = torch.compile(model, backend=aot_autograd(fw_compiler=lambda gm, ex: make_boxed_func(gm.forward), bw_compiler=bw,
                                                      partition_fn=min_cut_rematerialization_partition, decompositions=select_decomp_table()))
        loss(f(*args), target).backward()
    return kept


def instructions(layers):
    with tempfile.TemporaryDirectory() as d:
        p = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={d}/out", "--collect-atstart=no",
                            "--toggle-collect=aot_trace", sys.executable, __file__, "--child", "gpt", "0", "1", str(layers)],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           env=dict(os.environ, TAPER_LOGS="aot,-aot_graphs,-aot_joint_graph", PYTHONMALLOC="malloc"))
        n, m = re.search(r"Collected : (\d+)", p.stdout), LINE.search(p.stdout)
        return (int(n[1]), int(m[2])) if n and m else (0, 0)


def main():
    sys.path.insert(0, HERE)
    import models
    there, bad = pytorch(), []
    print(f"{'model':<12} {'nodes':>6} {'stage ms':>9} {'whole step ms':>14} {'kept MB':>8} {'read MB':>8} {'PyTorch keeps MB':>17} {'ratio':>6}")
    for name in models.NAMES:
        _, nodes, ms, kept, _, read = stage(name, False)
        step = stage(name, True)[2]
        p = there.get(name)
        print(f"{name:<12} {nodes:>6} {float(ms):>9.2f} {float(step):>14.2f} {int(kept) / 1e6:>8.2f} {int(read) / 1e6:>8.2f} "
              f"{p / 1e6 if p else float('nan'):>17.2f} {int(kept) / p if p else float('nan'):>6.2f}")
        if name == "gpt" and float(ms) >= 10:
            bad.append(f"gpt takes {ms} ms")
        if p and name in ("gpt", "resnet") and int(kept) > p:
            bad.append(f"{name} keeps {kept} bytes, PyTorch {p}")
    if "--instructions" in sys.argv and shutil.which("valgrind"):
        (a, na), (b, nb) = instructions(2), instructions(16)
        print(f"instructions: {a} for {na} nodes, {b} for {nb} nodes: {b / a:.2f}x for {nb / na:.2f}x the nodes")
        if b / a > 1.2 * nb / na:
            bad.append("the stage is not linear in the nodes")
    for b in bad:
        print("BROKEN:", b)
    return bool(bad)


if __name__ == "__main__":
    if "--child" in sys.argv:
        a = sys.argv[sys.argv.index("--child") + 1:]
        child(a[0], a[1] == "1", int(a[2]), int(a[3]) if len(a) > 3 else None)
    else:
        sys.exit(main())
