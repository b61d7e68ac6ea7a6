"""The tour that `make demo` gives: train a small model, compile it, and watch a recompile, a graph break and a planted
fault being explained. Needs nothing but this checkout."""
import os, re, subprocess, sys, tempfile, time

import taper
from taper import nn

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TAPER = os.path.join(os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build")), "taper")


def title(text):
    print(f"\n--- {text}", flush=True)


def milliseconds(fn, *args, times=1):
    t = time.perf_counter()
    for _ in range(times):
        fn(*args)
    return (time.perf_counter() - t) * 1e3 / times


def program(source, folder, **env):
    """Runs a program in a process of its own and shows what it prints, without the time at the head of log lines."""
    path = os.path.join(folder, "program.py")
    with open(path, "w") as f:
        f.write(source)
    print("".join(f"    {line}\n" for line in source.strip().splitlines()))
    if env:
        print("$ " + " ".join(f"{k}={v}" for k, v in env.items()) + " python program.py")
    p = subprocess.run([sys.executable, path], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"), **env))
    print(re.sub(r"^\w\d{4} .*?\] (?=\[)", "", p.stdout.replace(folder + "/", ""), flags=re.M), end="", flush=True)


title("A network learns xor")
taper.manual_seed(0)
a = taper.tensor([[0., 0.], [0., 1.], [1., 0.], [1., 1.]])
b = taper.tensor([[0.], [1.], [1.], [0.]])
net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
opt = taper.optim.Adam(net.parameters(), lr=0.05)
for step in range(200):
    loss = ((net(a) - b) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"step {step:3}  loss {loss.item():.6f}")
print("prediction", [round(v, 3) for v in net(a).flatten().tolist()])

title("The same network, compiled")
compiled = taper.compile(net, fullgraph=True)
with taper.no_grad():
    first, warm, eager = milliseconds(compiled, a), milliseconds(compiled, a, times=200), milliseconds(net, a, times=200)
    off = (compiled(a) - net(a)).abs().max().item()
print(f"first call (captures and compiles) {first:.2f} ms, later calls {warm:.4f} ms, eager {eager:.4f} ms")
print(f"largest difference from eager {off:.1e}")

with tempfile.TemporaryDirectory() as d:
    title("Another size compiles again, and the log says which check failed; the third size finds a dynamic graph")
    program("""
import taper

@taper.compile
def f(x):
    return taper.sin(x) + 1

for n in (3, 4, 5):
    f(taper.ones(n))
""", d, TAPER_LOGS="recompiles")

    title("What cannot be captured splits the graph; the log says where, why and what to do")
    program("""
import taper

@taper.compile
def f(x):
    y = taper.sin(x)
    print("half way")
    return y + 1

f(taper.ones(3))
""", d, TAPER_LOGS="graph_breaks")

    title("A fault is planted in the code for relu: level 4 notices the wrong result and saves it")
    program("""
import taper

@taper.compile
def f(x, w):
    for _ in range(5):
        x = taper.sin(x)
    return taper.cos(taper.relu(x @ w)).sum()

try:
    f(taper.ones(4, 4), taper.ones(4, 4))
except taper._dynamo.exc.AccuracyError as e:
    print("AccuracyError:", e)
""", d, TAPER_INJECT="relu:accuracy@gen", TAPER_REPRO_AFTER="dynamo", TAPER_REPRO_LEVEL="4")
    bundles = [f for f, _, files in os.walk(d) if "failure.json" in files]
    if not bundles:
        sys.exit("the failure was not saved")

    title("taper minify cuts the saved graph down to the operator at fault")
    p = subprocess.run([TAPER, "minify", os.path.relpath(bundles[0], d)], cwd=d, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True)
    print(p.stdout.replace(d + "/", ""), end="")
    if p.returncode or "taper.relu(" not in p.stdout:
        sys.exit("the fault was not found")
print("\nMore: README.md, docs/debugging.md, docs/ARCHITECTURE.md")
