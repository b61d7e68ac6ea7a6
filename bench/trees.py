#!/usr/bin/env python3
"""Two builds of Taper beside each other: the models of bench/models.py, compiled, forward and training.

    python3 bench/trees.py OLD NEW [--rounds=N] [--seconds=S] [model ...]

OLD and NEW are checkouts that were built. Both run at once, a process and two cores each, and change cores every round; the best time of
each counts. Prints new over old, and geometric means. Needs four cores; on fewer the two take turns.
"""
import json
import math
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def child(names):
    import taper
    import compiled
    print(json.dumps({name: compiled.measure(taper, name, False, lambda m: taper.compile(m)) for name in names}))


def start(tree, cores, seconds, names):
    env = dict(os.environ, PYTHONPATH=os.path.join(os.path.abspath(tree), "python"), TAPER_CACHE_DIR="", PYTHONDONTWRITEBYTECODE="1")
    pin = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
    return subprocess.Popen(pin + [sys.executable, os.path.abspath(__file__), f"--seconds={seconds}", "--child", *names], env=env, stdout=subprocess.PIPE, text=True)


def main():
    options = dict(a[2:].split("=") for a in sys.argv[1:] if a.startswith("--") and "=" in a)
    words = [a for a in sys.argv[1:] if not a.startswith("--")]
    if "--child" in sys.argv:
        return child(words)
    if len(words) < 2:
        sys.exit(__doc__)
    import models
    (old, new), names = words[:2], words[2:] or models.NAMES
    cores = sorted(os.sched_getaffinity(0))
    pairs = [cores[0:2], cores[2:4]] if len(cores) >= 4 else None
    best = {}
    for r in range(int(options.get("rounds", 4))):
        turn = []
        for i, tree in enumerate((old, new)):
            p = start(tree, pairs[(i + r) % 2] if pairs else None, options.get("seconds", "0.3"), names)
            turn.append(p)
            if not pairs:
                p.wait()
        for i, p in enumerate(turn):
            out, _ = p.communicate()
            if p.returncode:
                sys.exit(f"the {('old', 'new')[i]} tree failed")
            for name, times in json.loads(out.splitlines()[-1]).items():
                for k, t in enumerate(times):
                    best[name, k, i] = min(t, best.get((name, k, i), math.inf))
    ratios = {1: [], 3: []}
    print("| model | forward, ms: old | new | ratio | training, ms: old | new | ratio |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        cells = []
        for k in (1, 3):
            a, b = best[name, k, 0], best[name, k, 1]
            ratios[k].append(b / a)
            cells.append(f"{a * 1e3:.3f} | {b * 1e3:.3f} | {b / a:.3f}")
        print(f"| {name} | " + " | ".join(cells) + " |")
    means = [math.exp(sum(map(math.log, r)) / len(r)) for r in (ratios[1], ratios[3], ratios[1] + ratios[3])]
    print("geometric mean of new/old: forward {:.3f}, training {:.3f}, both {:.3f}".format(*means))


if __name__ == "__main__":
    main()
