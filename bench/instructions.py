"""Instructions, by callgrind, of what must not become slower: eager `x + 1` on 8 floats, a later call of a compiled function, the
first compile of the GPT of the benches (forward, and with its backward). Each is the difference of two runs, so that start-up does
not count; a run before them leaves the bytecode of the modules, so that Python's parser does not count either; what else the machine
does has no influence.

  bench/instructions.py [TREE ...]     TREE: checkouts that were built (default: this one); from the second on, with the ratio to the first
"""
import os, re, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CALLS = """
import sys, taper
n = int(sys.argv[1])
x = taper.ones(8)
f = {}
f(x)
for _ in range(n):
    f(x)
"""
GPT = """
import sys, taper
sys.path.insert(0, {!r})
import models

m, args, target, loss = models.build("gpt", taper, small=True)
if int(sys.argv[1]):
    y = taper.compile(m)(*args)
    if {}:
        (y[0] if isinstance(y, tuple) else y).sum().backward()
"""
ROWS = {"eager x + 1": (CALLS.format("lambda x: x + 1"), 2000, 6000),
        "compiled call": (CALLS.format("taper.compile(lambda x: taper.sin(x) * x + 1)"), 2000, 6000),
        "GPT forward, first compile": (GPT.format(HERE, False), 0, 1),
        "GPT forward and backward": (GPT.format(HERE, True), 0, 1)}

def count(tree, text, n):
    with tempfile.TemporaryDirectory(prefix="count") as d:
        with open(os.path.join(d, "program.py"), "w") as f:
            f.write(text)
        os.symlink(tree, os.path.join(d, "tree"))  # paths of equal length: their hashes and buffers cost the same
        env = dict(os.environ, PYTHONPATH=os.path.join(d, "tree", "python"), TAPER_NUM_THREADS="1", PYTHONHASHSEED="0",
                   TAPER_CACHE_DIR=os.path.join(d, "first"), OMP_NUM_THREADS="1", PYTHONPYCACHEPREFIX=os.path.join(d, "pyc"))
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        subprocess.run([sys.executable, f"{d}/program.py", "1"], check=True, env=env)
        env["TAPER_CACHE_DIR"] = os.path.join(d, "cache")
        p = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={d}/out", sys.executable, f"{d}/program.py", str(n)],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        m = re.search(r"Collected : (\d+)", p.stdout)
        if p.returncode or not m:
            raise SystemExit(p.stdout[-3000:])
        return int(m[1])

def main():
    trees = [os.path.abspath(t) for t in sys.argv[1:]] or [os.path.dirname(HERE)]
    for name, (text, a, b) in ROWS.items():
        got = [(count(t, text, b) - count(t, text, a)) / (b - a) for t in trees]
        print(f"{name:28}" + "".join(f"{g:16,.0f}" for g in got) + "".join(f"{g / got[0]:8.3f}x" for g in got[1:]), flush=True)

main()
