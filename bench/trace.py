"""What tracing (TAPER_TRACE) adds to compile time, on the training step of the GPT of bench/models.py. Time: compile time of
taper.compiler.metrics(), best of several processes, on a machine that should be quiet. Instructions (callgrind), of capture
with the forward compile and of the first backward: those of the compiling thread, and all, as large records are made by a
thread of their own. Fails when 5 % of time or more are added."""
import os, re, shutil, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import taper, taper.compiler, models
model, args, target, loss = models.build("gpt", taper, small=True)
step = taper.compile(lambda *a: loss(model(*a), target))
step(*args).backward()
print(taper.compiler.metrics()["compile_us"])
"""


def run(trace, before=()):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TAPER_")}
    env.update(PYTHONPATH=os.path.join(ROOT, "python"), TAPER_NUM_THREADS="1", TAPER_CACHE="0", OPENBLAS_NUM_THREADS="1", PYTHONHASHSEED="0")
    if trace:
        env["TAPER_TRACE"] = trace
    p = subprocess.run([*before, os.path.realpath(sys.executable), "-c", PROGRAM, os.path.join(ROOT, "bench")], env=env, stdout=subprocess.PIPE,
                       stderr=subprocess.DEVNULL, text=True, check=True, timeout=600)
    return float(p.stdout.split()[-1])


def instructions(trace, out):
    run(trace, ("valgrind", "--tool=callgrind", "--callgrind-out-file=" + out))
    text = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", out], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    def of(name):
        m = re.search(rf"^ *([\d,]+) .*[:/]{name}(?: \[|$)", text, re.M)
        return int(m.group(1).replace(",", "")) if m else 0
    total = int(re.search(r"^ *([\d,]+) .*PROGRAM TOTALS", text, re.M).group(1).replace(",", ""))
    # valgrind runs one thread at a time, so the compiling one often makes the large records itself, in ev_wait
    return of("capture_region") + of("step_apply") - of("ev_wait"), total


def main():
    d = tempfile.mkdtemp()
    try:
        trace = os.path.join(d, "t")
        if shutil.which("valgrind"):
            (plain, all_plain), (traced, all_traced) = instructions(None, os.path.join(d, "a")), instructions(trace, os.path.join(d, "b"))
            print(f"trace: GPT training step compiles in {plain / 1e6:.1f} million instructions, {traced / 1e6:.1f} with a trace "
                  f"({traced / plain - 1:+.1%}) on the compiling thread; {(all_traced - all_plain) / 1e6:.1f} more altogether "
                  f"({(all_traced - all_plain) / plain:+.1%})")
        n = int(os.environ.get("TAPER_BENCH_RUNS", "15"))
        times = [(run(None), run(os.path.join(d, f"t{i}"))) for i in range(n)]
        plain, traced = min(t[0] for t in times) / 1e3, min(t[1] for t in times) / 1e3
        more = traced / plain - 1
        print(f"trace: GPT training step compiles in {plain:.1f} ms, {traced:.1f} with a trace: {more:+.1%}")
        return 1 if more >= 0.05 else 0
    finally:
        shutil.rmtree(d)


if __name__ == "__main__":
    sys.exit(main())
