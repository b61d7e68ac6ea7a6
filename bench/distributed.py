"""Collectives and data-parallel training over several processes.

    python bench/distributed.py [--ranks 2] [--only all_reduce,model,steps,scaling]

all_reduce: microseconds of taper.distributed over shared memory and over MPI, beside bare MPI_Allreduce (compiled with mpicc here) and
PyTorch's gloo where they are found, 1 KB to 64 MB. steps: milliseconds of a training step of the small models, alone and under
DistributedDataParallel, Taper eager and compiled, and PyTorch. model: the alpha-beta model of all_reduce fitted to this machine, and what it says of
more ranks, also for a network of --alpha microseconds and --gbits. scaling: the same work a rank on 1, 2, 4, 8 ranks of --threads
threads; "apart" are the same steps at the same times with nothing exchanged: what the machine itself costs. Best of many everywhere; children print JSON.
"""
import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PAPER = (2, 8, 64, 256, 1024)
SIZES = [1 << k for k in (10, 13, 16, 19, 22, 24, 26)]  # bytes
BARE = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 1; i < argc; i++) {
        int n = atoi(argv[i]) / 4;
        float *p = calloc(n, 4);
        double best = 1e9;
        for (int k = 0; k < (n > 1 << 20 ? 8 : 60); k++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double t = MPI_Wtime();
            MPI_Allreduce(MPI_IN_PLACE, p, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            t = MPI_Wtime() - t;
            best = t < best ? t : best;
        }
        if (!rank)
            printf("{\"bytes\": %d, \"us\": %.3f}\n", n * 4, best * 1e6);
        free(p);
    }
    MPI_Finalize();
}
"""


# --- what a rank does
def library(torch):
    if torch:
        import torch as lib
        import torch.distributed as dist
    else:
        import taper as lib
        import taper.distributed as dist
    return lib, dist


def best(fn, dist, times):
    least = 1e9
    for _ in range(times):
        if dist.is_initialized():
            dist.barrier()
        t = time.perf_counter()
        fn()
        least = min(least, time.perf_counter() - t)
    return least


def child(a):
    lib, dist = library(a.torch)
    sys.path.insert(0, HERE)
    import models
    alone = os.environ.get("WORLD_SIZE") == "1"
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0
    if a.child == "all_reduce":
        for size in SIZES:
            x = lib.zeros(size // 4)
            s = best(lambda: dist.all_reduce(x), dist, 8 if size > 1 << 22 else 60)
            if first:
                print(json.dumps({"bytes": size, "us": s * 1e6}), flush=True)
    else:
        for name in a.models.split(","):
            model, args, target, loss = models.build(name, lib, small=False)
            if not alone and not a.apart:
                model = lib.nn.parallel.DistributedDataParallel(model)
            opt = lib.optim.SGD(model.parameters(), lr=1e-3)
            forward = (lambda *xs: loss(model(*xs), target))
            if a.compiled:
                forward = lib.compile(forward)

            def step():
                opt.zero_grad()
                forward(*args).backward()
                opt.step()
            for _ in range(3):
                step()
            s = best(step, dist, a.times)
            if first:
                print(json.dumps({"model": name, "ms": s * 1e3}), flush=True)
    dist.destroy_process_group()


# --- what starts them
def ranks(n, what, *options, torch=False, threads=1, mpi=False, local="shm"):
    env = dict(os.environ, TAPER_COMM_LOCAL=local, OMP_NUM_THREADS=str(threads), TAPER_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads))
    env["PYTHONPATH"] = os.path.join(os.path.dirname(HERE), "python") + os.pathsep + env.get("PYTHONPATH", "")
    cmd = [sys.executable, os.path.abspath(__file__), "--child", what, *options]
    if torch:
        port = str(20000 + secrets.randbelow(20000))
        ps = [subprocess.Popen(cmd + ["--torch"], env=dict(env, RANK=str(r), WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1", MASTER_PORT=port), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True) for r in range(n)]
        outs = [p.communicate(timeout=900) for p in ps]
        status, out, err = max(p.returncode for p in ps), outs[0][0], outs[0][1]
    else:
        p = subprocess.run([sys.executable, "-m", "taper.distributed.run", "--launcher", "mpi" if mpi else "processes", "--nproc-per-node", str(n), *cmd[1:]],
                           env=env, capture_output=True, text=True, timeout=900)
        status, out, err = p.returncode, p.stdout, p.stderr
    if status:
        print(f"{what} {' '.join(options)}: failed: {err.strip().splitlines()[-1] if err.strip() else status}", file=sys.stderr)
        return {}
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {r.get("bytes") or r.get("model"): r.get("us") or r.get("ms") for r in rows}


def bare(n):
    mpicc, mpirun = shutil.which("mpicc"), shutil.which("mpirun")
    if not mpicc or not mpirun:
        return {}
    with tempfile.TemporaryDirectory() as tmp:
        with open(os.path.join(tmp, "bare.c"), "w") as f:
            f.write(BARE)
        if subprocess.run([mpicc, "-O2", "-o", os.path.join(tmp, "bare"), os.path.join(tmp, "bare.c")]).returncode:
            return {}
        more = ["--oversubscribe", "--bind-to", "none"] if "Open MPI" in subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout else []
        p = subprocess.run([mpirun, "-n", str(n), *more, os.path.join(tmp, "bare"), *map(str, SIZES)], capture_output=True, text=True,
                           env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"), timeout=900)
    return {r["bytes"]: r["us"] for r in map(json.loads, p.stdout.splitlines())}


# --- on paper
def fitted(rows, n):
    """alpha and beta, microseconds a message and a byte, of `rows` {bytes: microseconds} on n ranks: least squares of relative errors, and the largest.
    What is fitted is a ring: 2 (n - 1) messages of 1/n of the bytes, one after the other."""
    a, b = [2 * (n - 1) / t for t in rows.values()], [2 * (n - 1) / n * m / t for m, t in rows.items()]
    aa, ab, bb = sum(x * x for x in a), sum(x * y for x, y in zip(a, b)), sum(x * x for x in b)
    det = aa * bb - ab * ab
    alpha, beta = (sum(a) * bb - sum(b) * ab) / det, (sum(b) * aa - sum(a) * ab) / det
    return alpha, beta, max(abs(alpha * x + beta * y - 1) for x, y in zip(a, b))


def on_paper(alpha, beta, p, size):
    """Microseconds of an all-reduce on p ranks, and how: a ring, or halves that are exchanged and doubled again (p a power of two)."""
    import math
    rounds, moved = math.ceil(math.log2(p)), 2 * (p - 1) / p * size * beta
    return min((2 * (p - 1) * alpha + moved, "ring"), (2 * rounds * alpha + moved, "halves"), (rounds * (alpha + size * beta), "doubling"))


def paper(n, alpha, gbits):
    links = {}  # "MPI": its own transport
    for name, mpi in (("shared memory", False), ("MPI", True)):
        rows = ranks(n, "all_reduce", mpi=mpi, local="mpi") if not mpi or shutil.which("mpirun") else {}
        if rows:
            a, b, worst = fitted(rows, n)
            links[name] = a, b
            print(f"{name}, {n} ranks: alpha {a:.3g} us, beta {b * 1e3:.3g} us a KB ({1e-3 / b:.3g} GB/s), relative error of a size at most {worst:.2f}")
    links[f"network of {alpha:g} us, {gbits:g} Gbit/s"] = alpha, 8e-3 / gbits
    print("\nmilliseconds of an all-reduce by these numbers")
    table(["link", "bytes", *[f"{p} ranks" for p in PAPER]],
          [[link, f"{size:,}", *[f"{t / 1e3:.3g} {how}" for t, how in (on_paper(a, b, p, size) for p in PAPER)]] for link, (a, b) in links.items() for size in (4096, 1 << 22, 1 << 29)])


def have_torch():
    return subprocess.run([sys.executable, "-c", "import torch, torch.distributed as d; assert d.is_gloo_available()"], capture_output=True).returncode == 0


def table(heads, rows):
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads))
    for r in rows:
        print("| " + " | ".join("-" if c is None else c if isinstance(c, str) else f"{c:,.3g}" for c in r) + " |")
    print(flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--times", type=int, default=20)
    p.add_argument("--models", default="gpt,resnet")
    p.add_argument("--only", default="all_reduce,model,steps,scaling")
    p.add_argument("--alpha", type=float, default=5.0)
    p.add_argument("--gbits", type=float, default=100.0)
    p.add_argument("--child", help=argparse.SUPPRESS)
    p.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--compiled", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--apart", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.child:
        return child(a)
    n, torch, common = a.ranks, have_torch(), ["--models", a.models, "--times", str(a.times)]
    if "all_reduce" in a.only:
        print(f"all_reduce of float32 on {n} ranks, microseconds")
        under = shutil.which("mpirun")
        mpi, through, c = ranks(n, "all_reduce", mpi=True) if under else {}, ranks(n, "all_reduce", mpi=True, local="mpi") if under else {}, bare(n)
        shm, gloo = ranks(n, "all_reduce"), ranks(n, "all_reduce", torch=True) if torch else {}
        table(["bytes", "without mpirun", "under mpirun", "TAPER_COMM_LOCAL=mpi", "bare MPI_Allreduce", "under mpirun / bare", "PyTorch gloo"],
              [[f"{s:,}", shm.get(s), mpi.get(s), through.get(s), c.get(s), mpi[s] / c[s] if s in mpi and s in c else None, gloo.get(s)] for s in SIZES])
    if "model" in a.only:
        paper(n, a.alpha, a.gbits)
    if "steps" in a.only:
        print(f"training step, milliseconds: alone, then DistributedDataParallel on {n} ranks of {a.threads} threads with the same batch a rank")
        rows = []
        for label, options, t in [("Taper eager", [], False), ("Taper compiled", ["--compiled"], False)] + ([("PyTorch eager", [], True)] if torch else []):
            one = ranks(1, "steps", *common, *options, torch=t, threads=a.threads)
            many = ranks(n, "steps", *common, *options, torch=t, threads=a.threads)
            rows += [[m, label, one.get(m), many.get(m), many[m] - one[m] if m in one and m in many else None] for m in a.models.split(",")]
        table(["model", "library", "alone", f"{n} ranks", "more"], sorted(rows))
    if "scaling" in a.only:
        counts = [k for k in (1, 2, 4, 8) if k * a.threads <= (os.cpu_count() or 1)]
        print(f"fixed work a rank, {a.threads} threads each: milliseconds of a compiled step")
        rows = []
        for label, options in (("DistributedDataParallel", []), ("apart", ["--apart"])):
            got = {k: ranks(k, "steps", *common, "--compiled", *options, threads=a.threads) for k in counts}
            rows += [[m, label, *[got[k].get(m) for k in counts], got[1][m] / got[counts[-1]][m] if m in got[1] and m in got[counts[-1]] else None] for m in a.models.split(",")]
        table(["model", "gradients", *[f"{k} ranks" for k in counts], "efficiency"], sorted(rows))


if __name__ == "__main__":
    main()
