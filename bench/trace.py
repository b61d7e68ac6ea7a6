"""What tracing (TAPER_TRACE) adds to compile time, on the training step of the GPT of bench/models.py: the wall time of the
first call and its backward with a trace, less that without, divided by the time of the compile without. So records that
are waited for after the compile count, and what runs does not make the share smaller. Best and median of processes that
take turns. Also: processor time of the calling thread and of the whole process, as large records are made by a thread of their own;
what the calling thread itself clocked for records and waiting (structured_logging_overhead_us), which noise changes least;
and instructions (callgrind), which do not depend on what else the machine does: of the compiling thread, and of the records
handed to the other. Wall time means something on a machine with a free second core only, so where that is allowed (to root) the
processes and their threads go before all others.
Fails when tracing adds 5 % or more, by the best of each."""
import os, re, shutil, statistics, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
except OSError:
    pass
import gc, time, taper, taper.compiler, models
model, args, target, loss = models.build("gpt", taper, small=True)
step = taper.compile(lambda *a: loss(model(*a), target))
cpus = sorted(os.sched_getaffinity(0))
for t in os.listdir("/proc/self/task"): # the thread that writes has a core of its own
    os.sched_setaffinity(int(t), cpus[:1] if int(t) == os.getpid() else cpus[1:] or cpus)
gc.collect() # the next collection is as far away with a trace as without
time.sleep(0.01)
thread, process, wall = time.thread_time(), time.process_time(), time.perf_counter()
step(*args).backward()
wall, thread, process = time.perf_counter() - wall, time.thread_time() - thread, time.process_time() - process
m = taper.compiler.metrics()
spent = sum(c["structured_logging_overhead_us"] for c in m["compiles"])
print(wall * 1e3, m["compile_us"] / 1e3, thread * 1e3, process * 1e3, spent / 1e3)
"""


def run(trace, before=()):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TAPER_")}
    env.update(PYTHONPATH=os.path.join(ROOT, "python"), TAPER_NUM_THREADS="1", TAPER_CACHE="0", OPENBLAS_NUM_THREADS="1", PYTHONHASHSEED="0")
    if trace:
        env["TAPER_TRACE"] = trace
    p = subprocess.run([*before, os.path.realpath(sys.executable), "-c", PROGRAM, os.path.join(ROOT, "bench")], env=env, stdout=subprocess.PIPE,
                       stderr=subprocess.DEVNULL, text=True, check=True, timeout=600)
    return [float(x) for x in p.stdout.split()[-5:]]


def instructions(trace, out):
    run(trace, ("valgrind", "--tool=callgrind", "--callgrind-out-file=" + out))
    text = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", out], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    def of(name):
        return max((int(m.replace(",", "")) for m in re.findall(rf"^ *([\d,]+) .*[:/]{name}(?: \[|$)", text, re.M)), default=0)
    # valgrind runs one thread at a time, so the compiling one often makes the large records itself, or while it waits
    here = of("ev_later") + of("ev_wait")
    return of("capture_region") + of("step_apply") - here, here + of("worker") - of("text_ready")


def main():
    d = tempfile.mkdtemp()
    try:
        trace = os.path.join(d, "t")
        if shutil.which("valgrind"):
            (plain, _), (traced, handed) = instructions(None, os.path.join(d, "a")), instructions(trace, os.path.join(d, "b"))
            print(f"trace: GPT training step compiles in {plain / 1e6:.1f} million instructions; with a trace {traced / 1e6:.1f} on the compiling thread "
                  f"({traced / plain - 1:+.1%}) and {handed / 1e6:.1f} on the thread that writes ({handed / plain:+.1%})")
        n = int(os.environ.get("TAPER_BENCH_RUNS", "24"))
        times = []
        for i in range(n):
            if i % 2: # which of them comes after which matters, too
                times.append((run(None), run(trace)))
            else:
                times.append((run(trace), run(None))[::-1])
            shutil.rmtree(trace) # the system would write it to disk meanwhile
        for i, what in enumerate(("wall time of the first call and its backward", "wall time of the compile", "processor time of the calling thread", "processor time of the process", "of it on records, and waiting for them")):
            plain, traced = (min(t[k][i] for t in times) for k in (0, 1))
            print(f"trace: {what}: {plain:.2f} ms, {traced:.2f} with a trace" + (f": {traced / plain - 1:+.1%}" if plain else ""))
        added = [(of(t[1][0] for t in times) - of(t[0][0] for t in times)) / of(t[0][1] for t in times) for of in (min, statistics.median)]
        print(f"trace: added to the first call, of the compile's time: {added[0]:+.1%} (best), {added[1]:+.1%} (median)")
        return 1 if added[0] >= 0.05 else 0
    finally:
        shutil.rmtree(d)


if __name__ == "__main__":
    sys.exit(main())
