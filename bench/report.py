"""`taper report` on large traces: seconds of processor time, memory, and that both grow as they should.
A real trace is repeated under other compile ids to 256 MiB and 1 GiB (TAPER_BENCH_MB for another size).
Fails when 1 GiB takes 10 s or 200 MiB, or when four times the trace takes more than five times the time."""
import os, re, resource, shutil, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import taper, models
for name in ("gpt", "convnet"):
    model, args, target, loss = models.build(name, taper, small=True)
    step = taper.compile(lambda *a: loss(model(*a), target))
    step(*args).backward()
"""


def measure(log, out):
    code = ("import resource, subprocess, sys\nsubprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
            "r = resource.getrusage(resource.RUSAGE_CHILDREN)\nprint(r.ru_utime + r.ru_stime, r.ru_maxrss)")
    p = subprocess.run([sys.executable, "-c", code, TAPER, "report", log, "--no-browser", "-o", out], stdout=subprocess.PIPE, text=True, check=True)
    seconds, kb = p.stdout.split()
    return float(seconds), int(kb) / 1024


def main():
    d = tempfile.mkdtemp()
    try:
        traces = os.path.join(d, "t")
        env = dict(os.environ, TAPER_TRACE=traces, PYTHONPATH=os.path.join(ROOT, "python"))
        subprocess.run([sys.executable, "-c", PROGRAM, os.path.join(ROOT, "bench")], env=env, check=True)
        with open(os.path.join(traces, os.listdir(traces)[0])) as f:
            one = f.read()
        whole, rows = int(os.environ.get("TAPER_BENCH_MB", "1024")), []
        for mb in (whole // 4, whole):
            log = os.path.join(d, "big.log")
            with open(log, "w") as f:
                size = n = 0
                while size < mb << 20:
                    size += f.write(re.sub(r'"frame_id": (\d+)', lambda m: f'"frame_id": {int(m.group(1)) + 10 * n}', one))
                    n += 1
            rows.append(measure(log, os.path.join(d, "out.html")))
            print(f"report: {mb} MiB of trace, {n * 2} compiles: {rows[-1][0]:.2f} s of processor time, {rows[-1][1]:.0f} MiB")
        (t1, _), (t4, mem) = rows
        bad = t4 * 1024 / whole >= 10 or mem >= 200 or t4 > 5 * t1
        print(f"report: four times the trace takes {t4 / t1:.1f} times the time" + (": too slow or too large" if bad else ""))
        return 1 if bad else 0
    finally:
        shutil.rmtree(d)


if __name__ == "__main__":
    sys.exit(main())
