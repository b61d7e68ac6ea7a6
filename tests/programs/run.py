"""make programs: public packages with PyTorch and with Taper, side by side; writes docs/programs.md.

    python tests/programs/run.py [PACKAGE ...]     all packages, or these; the page keeps the rows of the others

Packages are installed once, at the versions of requirements.txt, into build/programs (no dependencies: none of them may bring PyTorch along).
PyTorch comes from the interpreter that TAPER_ORACLE names (default: one in which `import torch` works), as a folder on the path of the
children that run it. Without a registry or without PyTorch it says so and ends with status 0: nothing was tested."""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
ENV = os.environ.get("TAPER_PROGRAMS_ENV") or os.path.join(ROOT, "build", "programs")
PYTHON = os.path.join(ENV, "bin", "python")
TOLERANCE = {"forward": 2e-4, "loss": 2e-4, "grad": 2e-3}


def skip(why):
    print(f"SKIPPED, nothing was tested: {why}", file=sys.stderr)
    sys.exit(0)


def environment():
    if os.path.exists(PYTHON):
        return
    subprocess.run([sys.executable, "-m", "venv", ENV], check=True)
    r = subprocess.run([PYTHON, "-m", "pip", "install", "-q", "--no-deps", "-r", os.path.join(HERE, "requirements.txt")], capture_output=True, text=True)
    if r.returncode:
        import shutil
        shutil.rmtree(ENV)
        skip("the packages cannot be installed: " + r.stderr.strip()[-300:])


def oracle():
    """A folder with PyTorch and nothing else: what else its interpreter has would hide the packages at our versions."""
    for python in filter(None, (os.environ.get("TAPER_ORACLE"), sys.executable, PYTHON)):
        r = subprocess.run([python, "-c", "import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))"], capture_output=True, text=True)
        if r.returncode == 0:
            site, alone = r.stdout.strip(), os.path.join(ENV, "pytorch")
            os.makedirs(alone, exist_ok=True)
            for name in os.listdir(site):
                link = os.path.join(alone, name)
                if name in ("torch", "torchgen", "functorch") or (name.startswith("torch-") and name.endswith(".dist-info")):
                    if not os.path.lexists(link):
                        os.symlink(os.path.join(site, name), link)
            return alone
    skip("PyTorch is not importable; TAPER_ORACLE=/path/to/python names an interpreter that has it")


def child(package, which, site):
    """Rows by model, and the numbers."""
    out = os.path.join(ENV, f"{which}-{package}.npz")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    env["PYTHONPATH"] = site if which == "torch" else os.path.join(ROOT, "python")
    cmd = [PYTHON] + (["-m", "taper"] if which == "taper" else []) + [os.path.join(HERE, "child.py"), package, out]
    if os.path.exists(out):
        os.remove(out)
    try:
        r = subprocess.run(cmd, env=env, capture_output=True, text=True, timeout=float(os.environ.get("TAPER_TEST_SECONDS", 1200)))
        text, err = r.stdout, r.stderr
    except subprocess.TimeoutExpired as e:
        text, err = (e.stdout or b"").decode(), "time is up"
    rows = {d["model"]: d for d in (json.loads(line[4:]) for line in text.splitlines() if line.startswith("ROW "))}
    return rows, out if os.path.exists(out) else None, err


def compare(package, model, ours, theirs):
    """{what: (agrees, largest relative error)}"""
    import numpy as np
    if not ours or not theirs:
        return {}
    a, b, result = np.load(ours), np.load(theirs), {}
    for what, tol in TOLERANCE.items():
        keys = [k for k in b.files if k.startswith(f"{package}/{model}|{what}|")]
        if not keys:
            continue
        if any(k not in a.files or a[k].shape != b[k].shape for k in keys):
            result[what] = (False, float("inf"))
            continue
        scale = 1.0 if what != "grad" else max(float(np.abs(b[k]).max(initial=0)) for k in keys) or 1.0
        worst = max(float(np.abs(a[k] - b[k]).max(initial=0)) / (scale if what == "grad" else 1 + float(np.abs(b[k]).max(initial=0))) for k in keys)
        result[what] = (worst <= tol, worst)
    return result


def mark(ok):
    return "yes" if ok else "-" if ok is None else "**no**"


def main():
    import cases
    environment()
    site = oracle()
    wanted = sys.argv[1:] or list(cases.CASES)
    versions = dict(line.strip().split("==") for line in open(os.path.join(HERE, "requirements.txt")) if "==" in line)
    path = os.path.join(ENV, "results.json")  # of earlier runs, for the packages that are not run now
    kept = json.load(open(path)) if os.path.exists(path) else {}
    for package in wanted:
        kept.pop(package, None)
    for package in wanted:
        theirs, b, err = child(package, "torch", site)
        ours, a, err2 = child(package, "taper", site)
        rows = kept[package] = []
        for model, _ in cases.CASES[package]:
            o, t = ours.get(model, {"error": "ended early: " + err2.strip()[-200:]}), theirs.get(model, {"error": "ended early: " + err.strip()[-200:]})
            seen = compare(package, model, a, b)
            same = seen.get("forward", (None,))[0]
            train = all(seen[k][0] for k in ("loss", "grad") if k in seen) if "loss" in seen or "grad" in seen else None
            compiled = o.get("compiled")
            if t.get("error"):  # PyTorch itself does not run it here: there is nothing to compare with
                same = None
            note = o.get("error") or ("PyTorch: " + t["error"] if t.get("error") else "")
            wrong = None
            if note or same is False or train is False or compiled is False:
                wrong = f"{package} {model}: {note or {k: v[1] for k, v in seen.items() if not v[0]} or o.get('compiled_error')}"
            graphs, their_graphs = ((f"{r['graphs']} / {r['breaks']}" if "graphs" in r else "-") for r in (o, t))
            v = versions.get(package, versions.get(package.replace("-", "_"), ""))
            line = (f"| {package} {v} | {model} | {mark(o.get('imports'))} | {mark(same if o.get('forward') else False)} | {mark(train)} | {graphs} | {their_graphs} | {mark(compiled)} |")
            print(line, note, flush=True)
            rows.append({"line": line, "bad": wrong, "ran": bool(o.get("forward")), "more": o.get("breaks", 0) > t.get("breaks", o.get("breaks", 0))})
        with open(path, "w") as f:
            json.dump(kept, f, indent=0)
    rows = [r for package in cases.CASES for r in kept.get(package, [])]
    bad = [r["bad"] for r in rows if r["bad"]]
    write([r["line"] for r in rows], bad, len(rows), sum(r["ran"] for r in rows), sum(r["more"] for r in rows))
    print(f"{sum(r['ran'] for r in rows)} of {len(rows)} run; {len(bad)} with something to say")
    for b in bad:
        print("  " + b)
    sys.exit(any("PyTorch:" not in b for b in bad))


def names():
    """How many names of PyTorch that these packages use exist here."""
    import names as n
    packages = os.path.join(ENV, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
    folders = [os.path.join(packages, p) for p in ("transformers", "timm", "diffusers", "accelerate", "peft", "lightning", "pytorch_lightning", "torchmetrics", "einops",
                                                   "einx", "x_transformers", "vit_pytorch", "kornia", "gpytorch", "linear_operator", "pyro", "torch_geometric",
                                                   "torchdiffeq", "captum", "safetensors", "ema_pytorch")]
    used = {os.path.basename(f): n.names_of(f) for f in folders if os.path.isdir(f)}
    path = os.path.join(ENV, "used.json")
    with open(path, "w") as f:
        json.dump(used, f)
    out = {}
    for which, site in (("torch", oracle()), ("taper", os.path.join(ROOT, "python"))):
        env = {**os.environ, "PYTHONPATH": site}
        r = subprocess.run([PYTHON] + (["-m", "taper"] if which == "taper" else []) + [os.path.join(HERE, "names.py"), "check", path] +
                           ([os.path.join(ENV, "gone.json")] if which == "taper" else []), env=env, capture_output=True, text=True)
        out[which] = json.loads(r.stdout)
        if which == "torch":
            with open(os.path.join(ENV, "gone.json"), "w") as f:
                json.dump(sorted(out[which]["missing"]), f)
    return out["taper"], len(used)


def write(lines, bad, total, ran, more):
    found, packages = names()
    share = 100 * (found["have"] + found["refused"]) / found["total"]
    text = f"""# Programs written for PyTorch

Written by `make programs` (`tests/programs/run.py`): packages from the registry at pinned versions, each model built from one seed and run with
PyTorch 2.13 and with Taper standing in for it. *forward*: the same outputs; *train*: the same loss and gradients in training mode, dropout
included, for the random numbers are the same ([random.md](random.md)); *graphs*: graphs / graph breaks of `torch.compile` over the forward pass;
*compiled*: compiled outputs equal eager's. A dash: the case has no such part. PyTorch counts no break where a function that it compiles itself
jumps by data (two graphs, no break); Taper counts one, which is most of the difference for torchdiffeq.

{ran} of {total} run. {more} have more graph breaks than with PyTorch.

| package | model | imports | forward | train | graphs | PyTorch's | compiled |
| --- | --- | --- | --- | --- | --- | --- | --- |
""" + "\n".join(lines) + f"""

## What is not right yet

""" + ("\n".join(f"- {b}" for b in bad) if bad else "Nothing known.") + f"""

## Names

`tests/programs/names.py` reads the sources of {packages} packages: of {found["total"]} uses of names that PyTorch 2.13 has (a name counts once a
package), {found["have"]} exist here, {found["refused"]} more exist and are refused by name when they are used (several processes,
quantized tensors, ONNX, GPUs), {found["total"] - found["have"] - found["refused"]} are missing: {share:.1f} % are there to import.
Missing in more than one package: {", ".join(f"`{k}`" for k, v in found["missing"].items() if len(v) > 1) or "none"}.
"""
    with open(os.path.join(ROOT, "docs", "programs.md"), "w") as f:
        f.write(text)


if __name__ == "__main__":
    main()
