"""Planted faults, saved and minimised: how many, how small, how fast.

    python bench/minify.py [--only TEXT] [--markdown] [--torch]

For each fault: a model runs with the debug wrapper on and saves a bundle; the bundle is replayed in a fresh process;
`taper minify` cuts it down; the answer must have at most as many operators as the fault needs, keep its signature, and fail
alike as repro.py in a fresh Python process and, where kernels were generated, as repro.c.
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TAPER = os.environ.get("TAPER_BIN", os.path.join(ROOT, "build", "taper"))

PROGRAM = """
import sys
sys.path.insert(0, {bench!r})
import minify_models
model, args = minify_models.build({model!r}, {lib})
{lib}._dynamo.reset()
f = {lib}.compile(model, backend="inductor", dynamic={dynamic})
out = f(*args)
if {train}:
    sum(o.sum() for o in (out if isinstance(out, tuple) else (out,))).backward()
print("finished")
"""

# model -> operators that occur in it
MODELS = {"mlp": ("relu", "tanh"), "convnet": ("relu", "tanh"), "gpt": ("relu", "tanh"), "lstm": ("sigmoid", "tanh"), "chain": ("relu", "cos"),
          "deep": ("relu", "tanh")}
ACCURACY = ("accuracy", "nan", "flaky")
ENDS = {"segv": "signal", "abort": "signal", "hang": "time-out", "oom": "out of memory", "accuracy": "accuracy", "nan": "accuracy",
        "flaky": "accuracy", "late": "exception", "runtime_error": "exception", "compile_error": "compile error"}


def cases():
    """(model, operator, kind, stage, after, train, operators that must be left)"""
    for model, (op, other) in MODELS.items():
        yield model, op, "compile_error", "gen", "dynamo", True, 1
        yield model, other, "compile_error", "lower", "aot", True, 1
        yield model, op, "compile_error", "aot", "dynamo", False, 1
        yield model, op, "runtime_error", "gen", "dynamo", True, 1
        yield model, other, "runtime_error", "lower", "aot", False, 1
        yield model, op, "accuracy", "gen", "dynamo", True, 1
        yield model, other, "accuracy", "gen", "aot", True, 1
        yield model, op, "accuracy", "fuse", "dynamo", False, 3
        yield model, other, "accuracy", "aot", "dynamo", False, 1
        yield model, op, "nan", "lower", "dynamo", False, 1
        yield model, op, "segv", "gen", "dynamo", False, 1
    for model, kind, stage, after, left in (("mlp", "segv", "lower", "aot", 1), ("convnet", "abort", "gen", "dynamo", 1), ("gpt", "oom", "gen", "dynamo", 1),
                                            ("lstm", "hang", "gen", "dynamo", 1), ("chain", "flaky", "gen", "dynamo", 1), ("mlp", "segv", "aot", "dynamo", 1)):
        yield model, MODELS[model][0], kind, stage, after, False, left
    # operators that are decomposed, run-time errors of the autograd stage, late errors, sizes that must stay symbolic, and failures that come and go
    for row in (("gpt", "softmax", "oom", "gen", "dynamo", False, 1), ("gpt", "softmax", "accuracy", "gen", "dynamo", True, 1),
                ("gpt", "layer_norm", "runtime_error", "lower", "aot", True, 1), ("gpt", "matmul", "nan", "gen", "dynamo", False, 1),
                ("convnet", "batch_norm", "accuracy", "gen", "dynamo", True, 1), ("convnet", "mean", "segv", "gen", "dynamo", False, 1),
                ("lstm", "chunk", "accuracy", "gen", "dynamo", False, 2), ("mlp", "relu", "runtime_error", "aot", "dynamo", True, 1),
                ("deep", "tanh", "runtime_error", "aot", "dynamo", False, 1), ("mlp", "tanh", "late", "gen", "dynamo", False, 1),
                ("chain", "cos", "late", "lower", "aot", False, 1), ("mlp", "relu", "accuracy", "gen/dynamic", "dynamo", True, 1),
                ("gpt", "softmax", "runtime_error", "gen/dynamic", "dynamo", False, 1), ("convnet", "tanh", "accuracy", "lower/dynamic", "aot", False, 1),
                ("mlp", "relu", "flaky", "lower", "dynamo", False, 1), ("gpt", "relu", "flaky", "gen", "aot", False, 1),
                ("lstm", "sigmoid", "flaky", "fuse", "dynamo", False, 3), ("convnet", "tanh", "flaky", "aot", "dynamo", False, 1)):
        yield row


def run(cmd, cwd, timeout=300, **env):
    base = {k: v for k, v in os.environ.items() if not k.startswith(("TAPER_", "TORCH"))}
    t = time.time()
    try:
        p = subprocess.run(cmd, cwd=cwd, capture_output=True, text=True, timeout=timeout, env=dict(base, PYTHONPATH=os.path.join(ROOT, "python"), **env))
        return p.returncode, p.stdout, p.stderr, time.time() - t
    except subprocess.TimeoutExpired as e:
        text = [x.decode(errors="replace") if isinstance(x, bytes) else x or "" for x in (e.stdout, e.stderr)]
        return "time-out", *text, time.time() - t


def level(kind):
    return "4" if kind in ACCURACY else "3" if kind in ("segv", "abort", "hang") else "2"


def one(model, op, kind, stage, after, train, most):
    """A row of the table; 'why' is empty when everything holds."""
    row = dict(fault=f"{op}:{kind}@{stage}", model=model, after=after, nodes=0, left=0, trials=0, seconds=0.0, script="", c="", why="")
    d = tempfile.mkdtemp(prefix="taper_minify_")
    try:
        code = PROGRAM.format(bench=os.path.join(ROOT, "bench"), model=model, lib="taper", train=train, dynamic="dynamic" in stage or None)
        code = "import taper\n" + code
        limit = 8 if kind == "hang" else 300
        for _ in range(12 if kind == "flaky" else 1):
            rc, out, err, _ = run([sys.executable, "-c", code], d, limit, TAPER_INJECT=row["fault"], TAPER_REPRO_AFTER=after, TAPER_REPRO_LEVEL=level(kind))
            if rc != 0:
                break
        if rc == 0:
            return dict(row, why="the program did not fail")
        bundles = glob.glob(os.path.join(d, "taper_compile_debug", "*", "minifier", "failure.json"))
        if not bundles:
            return dict(row, why="no bundle: " + err.strip().split("\n")[-1][:80])
        bundle = os.path.dirname(max(bundles, key=os.path.getmtime))
        rc, out, err, _ = run([TAPER, "repro", bundle], d) if kind != "hang" else (1, "", "", 0)
        if rc != 1 and kind != "flaky":
            return dict(row, why="the bundle does not replay: " + (out + err).strip().split("\n")[-1][:80])
        rc, out, err, secs = run([TAPER, "minify", bundle] + (["--timeout", "1"] if kind == "hang" else []), d, 600)
        m = re.search(r"(\d+) operators before, (\d+) after; (\d+) trials, ([\d.]+) s", out)
        if rc != 0 or not m:
            return dict(row, why="minify: " + (err.strip().split("\n") or [""])[-1][:80])
        row.update(nodes=int(m[1]), left=int(m[2]), trials=int(m[3]), seconds=secs)
        with open(os.path.join(bundle, "minimal", "failure.json")) as f:
            got = json.load(f)
        if got["kind"] != ENDS[kind]:
            return dict(row, why=f"another failure: {got['kind']}")
        if row["left"] > most:
            return dict(row, why=f"{row['left']} operators, {most} suffice")
        tries = 12 if kind == "flaky" else 1
        rcs = [run([sys.executable, os.path.join(d, "repro.py")], d, 3 if kind == "hang" else 60) for _ in range(tries)]
        want = {"segv": lambda r: r[0] == -11, "abort": lambda r: r[0] == -6, "hang": lambda r: r[0] == "time-out"}.get(kind, lambda r: r[0] == 1)
        if not any(want(r) for r in rcs):
            return dict(row, why="repro.py does not fail alike: " + rcs[0][2].strip().split("\n")[-1][:80])
        with open(os.path.join(d, "repro.py")) as f:
            row["script"] = f"{len(f.read().splitlines())} lines"
        kernel = stage in ("gen", "lower", "fuse") and kind not in ("compile_error", "flaky", "late") and not (stage == "lower" and kind in ("segv", "abort"))
        if kernel and os.path.exists(os.path.join(d, "repro.c")):
            rc, out, err, _ = run(["cc", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "repro.c", "-lm", "-o", "a.out"], d)
            rc = run([os.path.join(d, "a.out")], d, 3)[0] if rc == 0 else f"cc: {err[:60]}"
            if rc not in ((-11, -6) if kind in ("segv", "abort") else ("time-out",) if kind == "hang" else (1,)):
                return dict(row, why=f"repro.c does not show it ({rc})")
            row["c"] = "shows it"
        elif kernel:
            return dict(row, why="no repro.c")
        return row
    finally:
        shutil.rmtree(d, ignore_errors=True)


def torch_row(model):
    """PyTorch's own minifier on its own injected relu bug: seconds, nodes left."""
    d = tempfile.mkdtemp(prefix="torch_minify_")
    try:
        code = "import torch, torch._inductor.config\ntorch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = 'accuracy'\ntorch.set_num_threads(2)\n"
        code += PROGRAM.format(bench=os.path.join(ROOT, "bench"), model=model, lib="torch", train=False, dynamic=None)
        env = dict(TORCHDYNAMO_REPRO_AFTER="aot", TORCHDYNAMO_REPRO_LEVEL="4", TORCHINDUCTOR_CACHE_DIR=os.path.join(d, "cache"))
        rc, out, err, _ = run([sys.executable, "-c", code], d, 600, **env)
        launchers = glob.glob(os.path.join(d, "torch_compile_debug", "*", "minifier", "minifier_launcher.py"))
        if not launchers:
            return dict(model=model, seconds=0, left=0, why="no launcher: " + (err.strip().split("\n") or [""])[-1][:80])
        rc, out, err, secs = run([sys.executable, launchers[0], "minify"], d, float(os.environ.get("TORCH_MINIFY_LIMIT", "900")), **dict(env, TORCHDYNAMO_REPRO_AFTER=""))
        left = 0
        if os.path.exists(os.path.join(d, "repro.py")):
            with open(os.path.join(d, "repro.py")) as f:
                left = len(re.findall(r"= torch\.ops\.", f.read()))
        return dict(model=model, seconds=secs, left=left, why="" if rc == 0 else str(rc) + ": " + (err.strip().split("\n") or [""])[-1][:60])
    finally:
        shutil.rmtree(d, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", help="faults or models that contain this text")
    p.add_argument("--markdown", action="store_true", help="a table for docs/debugging.md")
    p.add_argument("--torch", action="store_true", help="PyTorch's minifier over the same models instead (run it where torch is importable)")
    o = p.parse_args()
    if o.torch:
        for model in MODELS:
            if o.only in model:
                r = torch_row(model)
                print(f"| {model} | {r['left']} | {r['seconds']:.1f} | {r['why']} |" if o.markdown else r, flush=True)
        return 0
    rows = []
    if o.markdown:
        print("| model | fault | saved after | operators | left | trials | seconds | repro.py | repro.c |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for c in cases():
        if o.only not in f"{c[0]} {c[1]}:{c[2]}@{c[3]}":
            continue
        r = one(*c)
        rows.append(r)
        if o.markdown:
            print("| {model} | {fault} | {after} | {nodes} | {left} | {trials} | {seconds:.1f} | {script} | {c} |{why}".format(**r), flush=True)
        else:
            print("{model:8} {fault:24} {after:6} {nodes:5} -> {left}  {trials:4} trials {seconds:6.1f} s  {script:9} {c:8} {why}".format(**r), flush=True)
    good = [r for r in rows if not r["why"]]
    print(f"\n{len(good)} of {len(rows)} faults found; {sum(r['trials'] for r in rows)} trials, {sum(r['seconds'] for r in rows):.1f} s in minify")
    return 0 if len(good) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
