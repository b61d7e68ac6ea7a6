#!/usr/bin/env python3
"""Faults planted in Inductor's own Python files: found, made small, and shown by a script that needs only PyTorch?

  tests/bugs/inductor.py [-v] [--jobs N] [--pytorch SECONDS] [NAME ...]

A copy of PyTorch is made of links (torch/_inductor and torch/_decomp are real copies), one fault is planted, and a user's program runs under
`torch.compile(backend=taper.torch.debug("inductor"))`. What it saves goes through `taper minify`, and the script of the answer runs in a fresh
process. --pytorch also lets PyTorch's own minifier try each fault for so long. Needs PyTorch 2.13 and a C++ compiler. Prints a table.
"""
import argparse
import concurrent.futures
import importlib.util
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# name, file below torch/, text as it is, text with the fault, program of a model `f` and its arguments `args`
LOWER, CPP, DEC = "_inductor/lowering.py", "_inductor/codegen/cpp.py", "_inductor/decomposition.py"
MLP = "f = lambda x, w, v: {} ; args = [torch.randn(6, 16), torch.randn(16, 24), torch.randn(24, 5)]"
BUGS = [
    ("mean-divides-by-less", LOWER, "    denom = sympy_product(size[i] for i in axis)\n    denom = ir.IndexingConstant(index=denom, dtype=x.get_dtype(), device=x.get_device())\n"
     "    denom = ExpandView.create(denom, list(sum_result.get_size()))\n    return to_dtype(div",
     "    denom = sympy_product(size[i] for i in axis) + 1\n    denom = ir.IndexingConstant(index=denom, dtype=x.get_dtype(), device=x.get_device())\n"
     "    denom = ExpandView.create(denom, list(sum_result.get_size()))\n    return to_dtype(div",
     MLP.format("torch.tanh(x @ w).mean(-1).exp() + 1")),
    ("odd-powers-lose-a-factor", LOWER, "    if (y % 2) == 1:\n        result = ops.mul(result, x)\n    return result", "    return result",
     MLP.format("((x @ w).sigmoid() ** 3) @ v")),
    ("glu-halves-swapped", LOWER, "    return mul(a, sigmoid(b))", "    return mul(b, sigmoid(a))", MLP.format("F.glu(torch.tanh(x @ w), -1).abs()")),
    ("gather-of-the-neighbour", LOWER, "            idx[dim] = gather_idx\n        return x_loader(idx)", "            idx[dim] = (gather_idx + 1) % size[dim]\n        return x_loader(idx)",
     "i = torch.randint(0, 16, (6, 4)); f = lambda x: (x * 2).gather(1, i.clamp(0, 15)).cos(); args = [torch.randn(6, 16)]"),
    ("padding-one-short", LOWER, "                mask.append(range_mask_low(idx, 0))", "                mask.append(range_mask_low(idx, 1))",
     "f = lambda x: F.pad(x.sin(), (2, 1), value=0.5).exp() - 1; args = [torch.randn(5, 9)]"),
    ("unfold-ignores-step", LOWER, "        dim_idx = idx[-1] + idx[dim] * step", "        dim_idx = idx[-1] + idx[dim]",
     "f = lambda x: (x.cos().unfold(1, 3, 2) * 1.5).sum(-1); args = [torch.randn(4, 11)]"),
    ("variance-without-correction", LOWER, "        denom = Max(denom - correction, 0)", "        denom = Max(denom, 0)", MLP.format("(x @ w).exp().var(-1) / 3")),
    ("embedding-off-by-one", LOWER, "            ops.indirect_indexing(var_index, weight_size[0], wrap_neg=False)\n        ] + [*idx[indices_ndim:]]",
     "            ops.indirect_indexing(ops.maximum(ops.sub(var_index, ops.constant(1, torch.int64)), ops.constant(0, torch.int64)), weight_size[0], wrap_neg=False)\n"
     "        ] + [*idx[indices_ndim:]]", "f = lambda i, w: F.embedding(i, w).tanh().sum(1); args = [torch.randint(0, 9, (3, 4)), torch.randn(9, 6)]"),
    ("silu-sign", DEC, "    return x / (1 + x.neg().exp())", "    return x / (1 + x.exp())", MLP.format("F.silu(x @ w) @ v")),
    ("clamp-forgets-the-top", DEC, "    if max is not None:\n        x = x.clamp_max(max)\n    return x", "    return x", MLP.format("(x @ w).clamp(-1.0, 1.0).square()")),
    ("softmax-gradient", DEC, "    grad_input = inductor_prims.fma(-output, sum_new_grad, new_grad_output)", "    grad_input = inductor_prims.fma(output, sum_new_grad, new_grad_output)",
     "f = lambda x, w: (x @ w).softmax(-1).log1p(); args = [torch.randn(6, 16), torch.randn(16, 8, requires_grad=True)]"),
    ("lerp-weight", DEC, "    return torch.add(start, diff, alpha=weight)", "    return torch.add(start, diff, alpha=1.0 - weight)",
     "f = lambda x, y: torch.lerp(x.sin(), y.cos(), 0.25) * 3; args = [torch.randn(7, 9), torch.randn(7, 9)]"),
    ("vector-sine", CPP, '        return f"{x}.sin()"', '        return f"{x}.cos()"', "f = lambda x: (x * 2).sin().sum(-1) + 1; args = [torch.randn(4, 64)]"),
    ("vector-sigmoid", CPP, '        return f"decltype({x})(1)/(decltype({x})(1) + {x}.neg().exp())"', '        return f"decltype({x})(1)/(decltype({x})(1) + {x}.exp())"',
     "f = lambda x: torch.sigmoid(x - 1) * x; args = [torch.randn(4, 64)]"),
    ("vector-minimum", CPP, '            return f"at::vec::minimum({a}, {b})"', '            return f"at::vec::maximum({a}, {b})"',
     "f = lambda x, y: torch.minimum(x.exp(), y.abs()).sqrt(); args = [torch.randn(4, 64), torch.randn(4, 64)]"),
    ("product-starts-at-zero", CPP, '    if reduction_type == "prod":\n        return 1\n', '    if reduction_type == "prod":\n        return 0\n',
     "f = lambda x: (x.abs() + 0.5).prod(-1).log(); args = [torch.randn(4, 64)]"),
    ("max-starts-at-zero", CPP, '        init_var = min_var if reduction_type in ("max", "argmax") else max_var', '        init_var = "0" if reduction_type == "max" else min_var if reduction_type == "argmax" else max_var',
     "f = lambda x: (x.abs().neg() - 1).amax(-1) * 2; args = [torch.randn(5, 64)]"),
    ("vector-tanh-does-not-compile", CPP, '            return f"{a}.tanh()"', '            return f"{a}.tanhh()"', "f = lambda x: torch.tanh(x * 0.5).cos(); args = [torch.randn(4, 64)]"),
    ("vector-log1p-does-not-compile", CPP, '        return f"{x}.log1p()"', '        return f"{x}.log1q()"', "f = lambda x: torch.log1p(x.abs()).sin(); args = [torch.randn(4, 64)]"),
    ("lowering-asserts", LOWER, "def cumsum(x, axis=None, dtype=None):\n", "def cumsum(x, axis=None, dtype=None):\n    assert axis != 1, 'axis'\n",
     "f = lambda x: x.relu().cumsum(1).sin(); args = [torch.randn(4, 9)]"),
    ("square-taken-for-nothing", "_inductor/fx_passes/post_grad.py", "    return isinstance(b, int) and b == 1\n", "    return isinstance(b, int) and b in (1, 2)\n",
     MLP.format("(x.sin().pow(2) + 1) @ w")),
    ("permute-the-wrong-way", "_inductor/ir.py", "            return [index[i] for i in inv]\n\n        return reindex", "            return [index[i] for i in self.dims]\n\n        return reindex",
     "f = lambda x: (x.sin().permute(2, 0, 1) + 1).reshape(4, -1) * 2; args = [torch.randn(4, 4, 4)]"),
    ("scheduler-asserts", "_inductor/scheduler.py", "    def decide_inplace_update(self) -> None:\n", "    def decide_inplace_update(self) -> None:\n        assert len(self.read_writes.reads) < 3, 'too many reads'\n",
     "f = lambda x, y, z: (x.sin() + y * z).tanh() - 1; args = [torch.randn(8), torch.randn(8), torch.randn(8)]"),
    ("reuse-of-buffers-too-small", "_inductor/codegen/wrapper.py", "        sympy_str(V.graph.sizevars.simplify(storage_size)),\n        alignment,\n        stream,\n    )\n\n\ndef comm",
     "        '',\n        alignment,\n        stream,\n    )\n\n\ndef comm",
     "f = lambda x, w, v: ((((x.sin() @ w).cos() @ v).exp() @ v.t()).tanh() @ w.t()).sin(); args = [torch.randn(6, 4), torch.randn(4, 24), torch.randn(24, 96)]"),
    ("sum-loses-the-last", CPP, "                if self.tail_size:\n                    return f\"cascade_sum_combine({next_value}, {cexpr_index(self.tail_size)}, &{helper_val})\"\n",
     "                if self.tail_size:\n                    return f\"cascade_sum_combine({next_value}, {cexpr_index(self.tail_size)} - 1, &{helper_val})\"\n",
     "t = torch.randn(3, 4099); t[:, -1] = 6; f = lambda x: x.exp().sum(-1) / 2; args = [t]"),
]
PROGRAM = """import os, sys, time
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
import torch
import torch.nn.functional as F
torch.manual_seed(0)
torch.set_num_threads(1)
{body}
pid = os.fork()
if pid == 0:
    import taper.torch, taper.torch._case as c
    c.no_caches()
    try:
        out = torch.compile(f, backend=taper.torch.debug("inductor", out={out!r}))(*args)
        if out.requires_grad:
            out.sum().backward()
    except Exception as e:
        print("raised", type(e).__name__)
    sys.stdout.flush()
    os._exit(0 if taper.torch.saved() else 9)
found = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
if found == 9:
    sys.exit("nothing was saved")
import glob
import taper.torch._minify as m
folder = sorted(glob.glob(os.path.join({out!r}, "taper_compile_debug", "*", "*")))[0]
sys.exit(m.minify(folder, timeout=240, jobs={jobs}))
"""
PYTORCH = """import os, torch
import torch.nn.functional as F
torch.manual_seed(0)
torch.set_num_threads(1)
{body}
out = torch.compile(f)(*args)
if out.requires_grad:
    out.sum().backward()
"""


def environment(where):
    """A PyTorch of links whose compiler is a copy."""
    spec = importlib.util.find_spec("torch")
    if spec is None:
        print("SKIPPED: PyTorch is not importable by this Python")
        sys.exit(0)
    real = os.path.dirname(spec.origin)
    os.makedirs(os.path.join(where, "torch"))
    for name in os.listdir(real):
        here, there = os.path.join(real, name), os.path.join(where, "torch", name)
        if name in ("_inductor", "_decomp"):
            shutil.copytree(here, there, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            os.symlink(here, there)
    return where


def plant(where, bug):
    _, file, old, new, _ = bug
    path = os.path.join(where, "torch", file)
    text = open(path, encoding="utf-8").read()
    if text.count(old) < 1:
        return None
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace(old, new, 1))
    return lambda: open(path, "w", encoding="utf-8").write(text)


def ours(where, bug, cache, verbose, jobs):
    out = tempfile.mkdtemp(prefix="inductor-bug-")
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([where, os.path.join(ROOT, "python")]), TORCHINDUCTOR_CACHE_DIR=cache, PYTHONDONTWRITEBYTECODE="1")
    path = os.path.join(out, "program.py")
    open(path, "w", encoding="utf-8").write(PROGRAM.format(body=bug[4].replace(" ; ", "\n").replace("; ", "\n"), out=out, jobs=jobs))
    t = time.monotonic()
    try:
        p = subprocess.run([sys.executable, path], env=env, cwd=out, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1800)
        said = p.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as e:
        said = (e.stdout or b"").decode(errors="replace") + "\nno answer in 1800 s"
    if verbose:
        print(said)
    m = re.search(r"(\d+) operators? before, (\d+) after; (\d+) trials, ([\d.]+) s(.*)", said)
    kind = re.search(r"(?m)^(wrong result|compile error|exception|signal|time-out|comes and goes)", said)
    shutil.rmtree(out, ignore_errors=True)
    if not m:
        last = [l for l in said.splitlines() if l.strip()][-1:]
        return {"found": "nothing was saved" not in said, "before": None, "after": None, "trials": None, "seconds": time.monotonic() - t, "verified": False, "kind": (last or [""])[0][:90]}
    return {"found": True, "before": int(m[1]), "after": int(m[2]), "trials": int(m[3]), "seconds": float(m[4]), "verified": "shows it in a fresh" in m[5] and "does not" not in m[5],
            "kind": kind[1] if kind else "?"}


def theirs(where, bug, cache, seconds):
    """PyTorch's minifier: (what became of it, nodes, seconds)."""
    out = tempfile.mkdtemp(prefix="inductor-bug-")
    env = dict(os.environ, PYTHONPATH=where, TORCHINDUCTOR_CACHE_DIR=cache, PYTHONDONTWRITEBYTECODE="1", TORCHDYNAMO_REPRO_AFTER="aot", TORCHDYNAMO_REPRO_LEVEL="4",
               TORCH_COMPILE_DEBUG_DIR=out, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
    path = os.path.join(out, "program.py")
    open(path, "w", encoding="utf-8").write(PYTORCH.format(body=bug[4].replace(" ; ", "\n").replace("; ", "\n")))
    t = time.monotonic()
    try:
        subprocess.run([sys.executable, path], env=env, cwd=out, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=seconds)
        launcher = next((os.path.join(b, n) for b, _, fs in os.walk(out) for n in fs if n == "minifier_launcher.py"), None)
        if launcher is None:
            return "saves nothing", None, time.monotonic() - t
        env = {k: v for k, v in env.items() if not k.startswith("TORCHDYNAMO_REPRO")}
        p = subprocess.run([sys.executable, launcher, "minify"], env=env, cwd=out, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=max(5, seconds - (time.monotonic() - t)))
        ended = "done" if p.returncode == 0 else "fails"
    except subprocess.TimeoutExpired:
        ended = "not finished"
    best = None
    script = os.path.join(out, "repro.py")
    if os.path.exists(script):
        best = len(re.findall(r"(?m)^        \w+ = (?:torch|operator|\w+\.)", open(script, encoding="utf-8").read().partition("def forward")[2].partition("return")[0]))
    shutil.rmtree(out, ignore_errors=True)
    return ended, best, time.monotonic() - t


def row(where, bug, cache, a):
    """Tries one fault; True when it was found, is small and is shown again."""
    undo = plant(where, bug)
    if undo is None:
        print(f"| {bug[0]} | this PyTorch has no such line | | | | | | |", flush=True)
        return False
    r = ours(where, bug, cache, a.v, 2 if a.jobs == 1 else 1)
    t = theirs(where, bug, cache, a.pytorch) if a.pytorch else None
    undo()
    other = "" if t is None else f"{t[0]}{'' if t[1] is None else f', {t[1]} left'}, {t[2]:.0f} s"
    show = lambda v: "" if v is None else v
    print(f"| {bug[0]} | {r['kind'] if r['found'] else 'not found'} | {show(r['before'])} | {show(r['after'])} | {show(r['trials'])} | {r['seconds']:.0f} | "
          f"{'shows it' if r['verified'] else 'does not'} | {other} |", flush=True)
    return bool(r["found"] and r["verified"] and r["after"] <= 3)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("-v", action="store_true")
    a.add_argument("--jobs", type=int, default=1)
    a.add_argument("--pytorch", type=float, default=0)
    a.add_argument("names", nargs="*")
    a = a.parse_args()
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.mkdtemp(prefix="inductor-cache-")
    todo = queue.SimpleQueue()
    chosen = [b for b in BUGS if not a.names or any(n in b[0] for n in a.names)]
    for b in chosen:
        todo.put(b)
    good = []

    def work(_):
        where = environment(tempfile.mkdtemp(prefix="inductor-copy-"))
        try:
            while True:
                good.append(row(where, todo.get_nowait(), cache, a))
        except queue.Empty:
            pass
        finally:
            shutil.rmtree(where, ignore_errors=True)
    print("| fault | found as | operators | left | trials | seconds | repro.py in a fresh process | PyTorch's minifier |\n| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        list(pool.map(work, range(a.jobs)))
    print(f"\n{sum(good)} of {len(chosen)} faults found, reduced to at most 3 operators and shown by repro.py in a fresh process")
    return 0 if sum(good) == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
