"""What tracing (TAPER_TRACE) adds to compile time, on the training step of the GPT of bench/models.py (its size, its graph; a
short input, as nothing of what is measured depends on the length). Pairs of processes, one with a trace, compile it in turns, again
and again after a reset; of each process the first compile is one number, and the lower eighth of the others another. What
is added is the mean over the pairs, and how far that is off by chance (one standard error) stands next to it: where the stack of a process
lies alone changes times by several percent, so processes differ in the size of their environment. "Calls" are the wall time of
the first call and its backward, less that without a trace, divided by the time of the compile without: with what is waited for after
the compile. Then instructions (callgrind), which do not depend on what else the machine does: of the compiling thread, and
of the records handed to the other. Wall time means something on a machine with a free second core only.
The same for the small GPT of the tests, whose compile is short, and whose run is too short for anything to happen beside it.
Fails when tracing adds 5 % or more to compiles of the GPT: to the best of the first ones, of which there is one a process, and a virtual machine is
stopped by its host now and then, more often when both of its cores work; to the others by the median of the pairs."""
import os, random, re, shutil, statistics, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = """
import gc, os, sys, time, types
sys.path.insert(0, sys.argv[1])
import taper, taper.compiler, models
small = sys.argv[2] == "small"
model, args, target, loss = models.build("gpt", taper, small=small)
if not small:
    args, target = (args[0][:1, :16],), target[:1, :16]
for line in sys.stdin:
    taper.compiler.reset()
    step = lambda *a: loss(model(*a), target)
    step = taper.compile(types.FunctionType(step.__code__.replace(), globals()))
    gc.collect() # the next collection is as far away with a trace as without
    time.sleep(0.005)
    wall = time.perf_counter()
    step(*args).backward()
    wall = time.perf_counter() - wall
    m = taper.compiler.metrics()["compiles"][-2:]
    print(wall * 1e3, sum(c["duration_us"] for c in m) / 1e3, sum(c["structured_logging_overhead_us"] for c in m) / 1e3, flush=True)
"""


def environment(trace):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TAPER_")}
    env.update(PYTHONPATH=os.path.join(ROOT, "python"), TAPER_NUM_THREADS="1", TAPER_CACHE="0", OPENBLAS_NUM_THREADS="1", PYTHONHASHSEED="0",
               PADDING="x" * random.randrange(4096))
    if trace:
        env["TAPER_TRACE"] = trace
    return env


def start(trace, size, before=()):
    return subprocess.Popen([*before, os.path.realpath(sys.executable), "-c", PROGRAM, os.path.join(ROOT, "bench"), size], env=environment(trace),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def compile_once(p):
    p.stdin.write("\n")
    p.stdin.flush()
    return [float(x) for x in p.stdout.readline().split()]


def end(p):
    p.stdin.close()
    assert p.wait(timeout=600) == 0


def instructions(trace, out):
    """-> of the compiles, without what is handed over; of that"""
    def run(*flags):
        p = start(trace, "whole", ("valgrind", "--tool=callgrind", "--callgrind-out-file=" + out, *flags))
        compile_once(p)
        end(p)
        text = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", out], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        def of(name):
            return max((int(m.replace(",", "")) for m in re.findall(rf"^ *([\d,]+) .*{name}(?: \[|$)", text, re.M)), default=0)
        return of
    compiles, all = run("--toggle-collect=capture_region", "--toggle-collect=step_apply"), run()
    # valgrind runs one thread at a time, so the compiling one often makes the large records itself
    return compiles("PROGRAM TOTALS") - compiles("[:/]run_job"), all("[:/]run_job") - all("[:/]text_ready") + all("[:/]do_chores")


def pair(d, size, n):
    """-> for each of plain and traced: the first compile, and the lower eighth of the others; (call, compile, on records) in ms"""
    ps = [start(None, size), start(os.path.join(d, "t"), size)]
    times = [[], []]
    for i in range(n):
        for k in random.sample((0, 1), 2):
            times[k].append(compile_once(ps[k]))
    for p in ps:
        end(p)
    shutil.rmtree(os.path.join(d, "t")) # the system would write it to disk meanwhile
    return [(t[0], [sorted(c)[len(c) // 8] for c in zip(*t[1:])]) for t in times]


def measure(d, size, pairs, n):
    got = [pair(d, size, n) for _ in range(pairs)]
    added = []
    for when, which in (("first in a process", 0), ("again", 1)):
        plain, traced = ([g[k][which] for g in got] for k in (0, 1))
        out, middle = [], None
        for i, what in ((1, "compile"), (0, "calls")):
            more = [(t[i] - p[i]) / p[1] for p, t in zip(plain, traced)]
            middle = statistics.median(more) if i else middle
            out.append(f"{what} {statistics.mean(more):+.1%} +- {statistics.stdev(more) / len(more) ** 0.5:.1%}, median {statistics.median(more):+.1%}")
        best = [min(x[1] for x in v) for v in (plain, traced)]
        added.append(middle if which else best[1] / best[0] - 1)
        print(f"trace: {size} GPT, {when}: compiles in {statistics.mean(x[1] for x in plain):.2f} ms, {statistics.mean(x[1] for x in traced):.2f} with a trace "
              f"(best {best[0]:.2f}, {best[1]:.2f}: {best[1] / best[0] - 1:+.1%}); added: {'; '.join(out)}; "
              f"clocked on records and waiting {statistics.mean(x[2] for x in traced):.3f} ms")
    return added


def main():
    d = tempfile.mkdtemp()
    try:
        if shutil.which("valgrind"):
            (plain, _), (traced, handed) = instructions(None, os.path.join(d, "a")), instructions(os.path.join(d, "v"), os.path.join(d, "b"))
            print(f"trace: whole GPT compiles in {plain / 1e6:.1f} million instructions; with a trace {traced / 1e6:.1f} on the compiling thread "
                  f"({traced / plain - 1:+.1%}) and {handed / 1e6:.1f} on the thread that writes ({handed / plain:+.1%})")
        pairs, n = int(os.environ.get("TAPER_BENCH_RUNS", "24")), 16
        added = measure(d, "whole", pairs, n)
        measure(d, "small", pairs, n)
        return 1 if max(added) >= 0.05 else 0
    finally:
        shutil.rmtree(d)


if __name__ == "__main__":
    sys.exit(main())
