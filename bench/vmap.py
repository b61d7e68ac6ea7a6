"""vmap of 1,000 elements over small functions: this tree, eager and compiled, and PyTorch where an interpreter has it.

  python3 bench/vmap.py [--torch PYTHON]    microseconds a call, the best of several rounds
"""
import argparse
import json
import subprocess
import sys
import time

BODY = """
import json, time
def cases(T, vmap, grad, jacrev):
    T.manual_seed(0)
    x, w, m = T.randn(1000, 16), T.randn(16, 8), T.randn(8)
    loss = lambda w, r: (r @ w).tanh().sum()
    return {"sin * x, sum": (lambda a: vmap(lambda r: (r.sin() * r).sum())(a), (x,)),
            "layer": (lambda a: vmap(lambda r: ((r @ w) + m).relu())(a), (x,)),
            "softmax": (lambda a: vmap(lambda r: r.softmax(0))(a), (x,)),
            "gradient of each": (lambda a: vmap(grad(loss), in_dims=(None, 0))(w, a), (x,)),
            "jacobian of each": (lambda a: vmap(jacrev(lambda r: (r @ w).tanh()))(a), (x[:100],))}
def best(f, args):
    f(*args); f(*args)
    t = []
    for _ in range(7):
        n, t0 = 0, time.perf_counter()
        while time.perf_counter() - t0 < 0.1:
            f(*args); n += 1
        t.append((time.perf_counter() - t0) / n)
    return min(t) * 1e6
"""


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--torch", default=sys.executable, help="an interpreter with PyTorch (this one)")
    args = p.parse_args()
    env = {}
    exec(BODY, env)
    import taper
    taper.set_num_threads(1)
    cases = env["cases"](taper, taper.vmap, taper.func.grad, taper.func.jacrev)
    mine = {k: env["best"](f, a) for k, (f, a) in cases.items()}
    compiled = {k: env["best"](taper.compile(f), a) for k, (f, a) in cases.items()}
    theirs = {}
    script = BODY + "import torch\ntorch.set_num_threads(1)\nprint(json.dumps({k: best(f, a) for k, (f, a) in cases(torch, torch.vmap, torch.func.grad, torch.func.jacrev).items()}))"
    try:
        theirs = json.loads(subprocess.run([args.torch, "-c", script], capture_output=True, text=True, timeout=300, check=True).stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as e:
        print("no PyTorch:", e, file=sys.stderr)
    print(f"{'vmap over 1000':22}{'eager us':>10}{'compiled us':>13}{'PyTorch us':>12}")
    for k in mine:
        print(f"{k:22}{mine[k]:10.1f}{compiled[k]:13.1f}{theirs.get(k, float('nan')):12.1f}")


main()
