"""repro.py: one file that needs only PyTorch and shows the failure alone."""
import base64
import inspect
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import zlib

import torch
from . import _case, _compare, _graph

INLINE = 64  # elements that are written out as numbers


def _numbers(x):
    v = x.detach().cpu()
    if v.dtype in (torch.bfloat16, torch.float16):
        v = v.float()
    return repr(v.tolist()).replace("inf", "float('inf')").replace("nan", "float('nan')")


def _input(x):
    """An expression for an input."""
    if not isinstance(x, torch.Tensor):
        return _graph.literal(x)
    t, dtype = x.detach(), "" if x.dtype is torch.float32 else f", dtype={x.dtype}"
    device = "" if x.device.type == "cpu" else f", device='{x.device}'"
    grad = ".requires_grad_()" if x.requires_grad else ""
    shape = ", ".join(map(str, x.shape)) if x.dim() else "()"
    if x.layout is not torch.strided or x.is_quantized or x.dtype.itemsize == 1 and x.dtype.is_floating_point:
        raise _graph.NoName(f"an input of type {x.dtype}, {x.layout}")
    first = t.flatten()[0].item() if t.numel() else 0
    if t.numel() and (t == first).all() and first in (0, 1) and x.dtype is not torch.bool and t.is_contiguous():
        return f"torch.{'ones' if first else 'zeros'}({shape}{dtype}{device}){grad}"
    if t.is_contiguous() and t.numel() <= INLINE:
        text = _numbers(t) if t.numel() else None
        made = f"torch.tensor({text}{dtype}{device})" if text else f"torch.empty({shape}{dtype}{device})"
        return made + grad
    if t.is_contiguous():
        step = (torch.arange(t.numel()) % 7 - 3).to(t.dtype).reshape(t.shape)
        if torch.equal(step, t.cpu()):
            return f"(torch.arange({t.numel()}) % 7 - 3).to({x.dtype}).reshape({shape})" + (f".to('{x.device}')" if device else "") + grad
    whole = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
    flat = torch.empty(0, dtype=t.dtype).set_(whole.untyped_storage(), 0, (whole.untyped_storage().nbytes() // t.element_size(),), (1,)).zero_()
    whole.copy_(t)
    data = base64.b85encode(zlib.compress(flat.view(torch.uint8).numpy().tobytes(), 9)).decode()
    return f"data({data!r}, {x.dtype}, {tuple(x.shape)}, {tuple(x.stride())}{device}){grad}"


def source(case, outcome, before):
    how, backend = case.how, case.how["backend"]
    lines = [f'"""torch.compile(backend={backend!r}): {_plain(str(outcome))}']
    places = dict.fromkeys(op.line for op in case.graph.ops if op.line)
    if places:
        lines.append("In the program: " + "; ".join(places)[:500].replace('"""', "'''").replace("\\", "/"))
    v = _case.versions()
    lines += [f"PyTorch {v['torch']} ({v['git'][:12]}), Python {v['python']}, {v['system']} {v['machine']}"
              + (f", CUDA {v['cuda']}" if v["cuda"] else "") + f". {before} operators before, {case.size} here.", '"""']
    used = _graph.function(case.graph)
    expressions = [_input(x) for x in case.inputs]
    packed = any(e.startswith("data(") for e in expressions)
    lines += [f"import {m}" for m in ("base64", "zlib") if packed] + [f"import {m}" for m in ("math", "operator", "builtins") if m + "." in used]
    lines += ["import torch"]
    own = backend.startswith("__main__:")
    if ":" in backend and not own:
        lines.append(f"import {backend.split(':')[0]}")
    elif backend == "taper":
        lines.append("import taper.torch")
    modules = sorted({m for s in how["settings"] for m in _case.CONFIGS if s.startswith(m)})
    lines += [f"import {m}" for m in modules]
    if how["fallback_random"]:
        lines.append("import torch._inductor.config")
    lines += how["settings"] + (["torch._inductor.config.fallback_random = True"] if how["fallback_random"] else [])
    if how["threads"] != 1:
        lines.append(f"torch.set_num_threads({how['threads']})")
    if own:
        lines += ["", "", textwrap.dedent(inspect.getsource(_case.find_backend(backend))).rstrip()]
    if packed:
        lines += ["", "", "def data(text, dtype, shape, stride, device='cpu'):",
                  "    raw = torch.frombuffer(bytearray(zlib.decompress(base64.b85decode(text))), dtype=dtype)",
                  "    return raw.as_strided(shape, stride).to(device)"]
    lines += ["", "", used, "", "", "def inputs():", "    return [" + (",\n            ".join(expressions)) + "]", "", ""]
    if case.grad:
        lines += ["def results(fn):", "    xs = inputs()", "    out = [o for o in fn(*xs) if o is not None]",
                  "    ends = [o for o in out if isinstance(o, torch.Tensor) and o.grad_fn is not None]",
                  "    leaves = [x for x in xs if isinstance(x, torch.Tensor) and x.requires_grad]",
                  "    weights = [(torch.cos(torch.arange(o.numel(), dtype=torch.float64)).reshape(o.shape) + 1.5).to(o) for o in ends]",
                  "    grads = torch.autograd.grad(ends, leaves, weights, allow_unused=True)",
                  "    return [v.detach() for v in out + list(grads) if isinstance(v, torch.Tensor)]"]
    else:
        lines += ["@torch.no_grad()", "def results(fn):", "    xs = inputs()",
                  "    return [v for v in list(fn(*xs)) + xs if isinstance(v, torch.Tensor)]"]
    name = {"taper": "taper.torch.backend"}.get(backend, backend.split(":")[1] if own else backend.replace(":", ".") if ":" in backend else repr(backend))
    extra = "".join(f", {k}={how[k]!r}" for k in ("dynamic", "mode", "options") if how.get(k) is not None)
    seeded = how["fallback_random"]
    compiled = f"torch.compile(f, backend={name}{extra})"
    lines += ["", ""]
    if outcome.kind in ("wrong result", "comes and goes"):
        lines += ["torch.manual_seed(0)"] * seeded + ["expected = results(f)"]
        lines += [f"compiled = {compiled}"]
        again = outcome.kind == "comes and goes"
        body = ["torch.manual_seed(0)"] * seeded + ["actual = results(compiled)", "for a, e in zip(actual, expected):", "    print('eager:   ', e.flatten()[:8])",
                                                    "    print('compiled:', a.flatten()[:8])", *_close()]
        lines += ["for _ in range(10):"] * again + [("    " if again else "") + b for b in body]
    else:
        lines += ["results(f)  # without the compiler it runs", f"results({compiled})"]
    return "\n".join(lines) + "\n"


def _close():
    return ["    scale = min(1.0, float(e.abs().max())) if e.numel() and e.dtype.is_floating_point else 1.0",
            f"    tol = {{torch.float64: {_compare.tolerance(torch.float64)}, torch.float16: {_compare.tolerance(torch.float16)}, "
            f"torch.bfloat16: {_compare.tolerance(torch.bfloat16)}}}.get(e.dtype, {_compare.tolerance(torch.float32)})",
            "    torch.testing.assert_close(a, e, rtol=tol, atol=tol * scale, equal_nan=True)"]


def _plain(text):
    return text.replace('"""', "'''").replace("\\", "/")


def write(folder, case, outcome, before):
    path = os.path.join(folder, "repro.py")
    with open(path, "w", encoding="utf-8") as f:
        f.write(source(case, outcome, before))
    return path


EXPECT = {"wrong result": "AssertionError", "comes and goes": "AssertionError"}


def verify(script, outcome, timeout=120.0):
    """Does the script fail as it should in a fresh process? (yes or no, what it did)"""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TAPER_")}
    with tempfile.TemporaryDirectory() as cwd:
        p = subprocess.Popen([sys.executable, os.path.abspath(script)], cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            said = p.communicate(timeout=timeout + 60)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            p.communicate()
            return outcome.kind == "time-out", "it does not end"
    last = next((l for l in reversed(said.splitlines()) if l.strip()), "")
    if outcome.kind == "signal":
        return (p.returncode < 0 and signal.Signals(-p.returncode).name == outcome.identity) or outcome.identity == "exit", f"exit status {p.returncode}"
    if outcome.kind in EXPECT:
        return p.returncode == 1 and EXPECT[outcome.kind] in said, last
    name = outcome.identity.split(":")[0]
    return p.returncode != 0 and (not name or name in said), last
