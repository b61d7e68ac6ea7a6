"""What tracing (TAPER_TRACE) adds to compile time, on the training step of the GPT of bench/models.py. Instructions
(callgrind) of capture with the forward compile and of the first backward, with and without a trace, because time is noisy;
where valgrind is missing, the compile time of taper.compiler.metrics(), best of several processes. Fails from 5 % on."""
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
    env.update(PYTHONPATH=os.path.join(ROOT, "python"), TAPER_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONHASHSEED="0")
    if trace:
        env["TAPER_TRACE"] = trace
    p = subprocess.run([*before, os.path.realpath(sys.executable), "-c", PROGRAM, os.path.join(ROOT, "bench")], env=env, stdout=subprocess.PIPE,
                       stderr=subprocess.DEVNULL, text=True, check=True, timeout=600)
    return float(p.stdout.split()[-1])


def instructions(trace, out):
    run(trace, ("valgrind", "--tool=callgrind", "--callgrind-out-file=" + out))
    text = subprocess.run(["callgrind_annotate", "--inclusive=yes", out], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    found = [re.search(rf"^ *([\d,]+) .*:{name} \[", text, re.M) for name in ("capture_region", "step_apply")]
    return sum(int(m.group(1).replace(",", "")) for m in found)


def main():
    d = tempfile.mkdtemp()
    try:
        trace = os.path.join(d, "t")
        if shutil.which("valgrind"):
            plain, traced, unit = instructions(None, os.path.join(d, "a")) / 1e6, instructions(trace, os.path.join(d, "b")) / 1e6, "million instructions"
        else:
            n = int(os.environ.get("TAPER_BENCH_RUNS", "15"))
            times = [(run(None), run(os.path.join(d, f"t{i}"))) for i in range(n)]
            plain, traced, unit = min(t[0] for t in times) / 1e3, min(t[1] for t in times) / 1e3, "ms"
        more = traced / plain - 1
        print(f"trace: GPT training step compiles in {plain:.1f} {unit}, {traced:.1f} with a trace: {more:+.1%}")
        return 1 if more >= 0.05 else 0
    finally:
        shutil.rmtree(d)


if __name__ == "__main__":
    sys.exit(main())
