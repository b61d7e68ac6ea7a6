"""What tracing (TAPER_TRACE) adds to compile time: the training step of the GPT of bench/models.py, compile time by
taper.compiler.metrics(), best of several processes each way in turn. Fails from 5 % on."""
import os, shutil, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import taper, taper.compiler, models
model, args, target, loss = models.build("gpt", taper)
step = taper.compile(lambda *a: loss(model(*a), target))
step(*args).backward()
print(taper.compiler.metrics()["compile_us"])
"""


def once(trace):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TAPER_")}
    env["PYTHONPATH"] = os.path.join(ROOT, "python")
    if trace:
        env["TAPER_TRACE"] = trace
    p = subprocess.run([sys.executable, "-c", PROGRAM, os.path.join(ROOT, "bench")], env=env, stdout=subprocess.PIPE, text=True, check=True)
    return float(p.stdout.split()[-1])


def main():
    plain, traced, size = [], [], 0
    for _ in range(int(os.environ.get("TAPER_BENCH_RUNS", "15"))):
        d = tempfile.mkdtemp()
        plain.append(once(None))
        traced.append(once(d))
        size = sum(os.path.getsize(os.path.join(d, f)) for f in os.listdir(d))
        shutil.rmtree(d)
    more = min(traced) / min(plain) - 1
    print(f"trace: GPT training step compiles in {min(plain) / 1e3:.2f} ms, {min(traced) / 1e3:.2f} ms with a trace of {size / 1e3:.0f} kB: {more:+.1%}")
    return 1 if more >= 0.05 else 0


if __name__ == "__main__":
    sys.exit(main())
