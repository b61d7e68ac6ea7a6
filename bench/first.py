"""The first call of a compiled GPT of four blocks in a cold process: capture, compilation and one run.

    python3 bench/first.py [--threads 2] [--runs 7] [--small-pages]

Each measurement is a process of its own with an empty cache directory; the rows "kept" are those of a second process that finds in it
what the first compiled. Printed are best and median over the processes, and beside them
the second call, so that what is left is the cost of compiling and of touching memory for the first time.
--small-pages forbids huge pages to the process.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def child(what, threads, small_pages):
    if small_pages:
        import ctypes
        ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE
    sys.path[:0] = [HERE, os.path.join(HERE, "..", "python")]
    import models
    import resource
    import taper
    taper.set_num_threads(threads)
    model, args, target, loss = models.build("gpt", taper)
    params = list(model.parameters())
    fn = taper.compile(model)
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF)
        t = time.perf_counter()
        if what == "forward":
            with taper.no_grad():
                fn(*args)
        else:
            loss(fn(*args), target).backward()
        wall = time.perf_counter() - t
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(wall * 1e3, cpu * 1e3, after.ru_minflt - before.ru_minflt)
        for p in params:
            p.grad = None


def option(name, default):
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


def main():
    threads, small = option("--threads", 2), "--small-pages" in sys.argv
    if "--child" in sys.argv:
        child(sys.argv[sys.argv.index("--child") + 1], threads, small)
        return
    print(f"{'':14s} {'first ms':>18s} {'second ms':>18s} {'first cpu ms':>18s} {'second cpu ms':>18s} {'page faults':>12s}")
    for what, kept in (("forward", False), ("training", False), ("forward", True), ("training", True)):
        rows = []
        for _ in range(option("--runs", 7)):
            with tempfile.TemporaryDirectory() as d:
                cmd = [sys.executable, os.path.abspath(__file__), "--child", what, "--threads", str(threads)] + ["--small-pages"] * small
                for _ in range(1 + kept):
                    out = subprocess.run(cmd, env={**os.environ, "TAPER_CACHE_DIR": d}, capture_output=True, text=True, check=True).stdout
            first, second = ([float(x) for x in line.split()] for line in out.strip().splitlines())
            rows.append((first[0], second[0], first[1], second[1], first[2]))
        cells = [f"{min(c):8.1f} {statistics.median(c):9.1f}" for c in list(zip(*rows))[:4]]
        print(f"{what + ', kept' * kept:14s} " + " ".join(cells) + f" {int(statistics.median([r[4] for r in rows])):12d}", flush=True)
    print("each pair: best, median")


if __name__ == "__main__":
    main()
