"""Runs the cases of one package with the `torch` of this process and writes what came out: python child.py PACKAGE OUT.npz [names ...]

For each case: imports, forward and its loss, gradients, graphs and breaks of torch.compile, compiled beside eager. Numbers go into the
file; one line of JSON a case goes to the standard output."""
import json
import os
import sys
import time
import traceback
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
warnings.simplefilter("ignore")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import cases  # noqa: E402

TAPER = hasattr(torch, "debug_print")


def tensors(x, out):
    """All floating tensors in a result, in order."""
    if isinstance(x, torch.Tensor):
        if x.is_floating_point():
            out.append(x)
    elif isinstance(x, dict):
        for v in x.values():
            tensors(v, out)
    elif isinstance(x, (list, tuple)):
        for v in x:
            tensors(v, out)
    elif hasattr(x, "__dataclass_fields__"):
        for k in x.__dataclass_fields__:
            tensors(getattr(x, k), out)
    return out


def loss_of(out):
    loss = getattr(out, "loss", None)
    return loss if loss is not None else sum((t.float() ** 2).mean() for t in tensors(out, []) if t.requires_grad)


def graphs_of(call):
    """(graphs, breaks) that capture makes of the call."""
    torch._dynamo.reset()
    if hasattr(torch._dynamo.utils, "counters"):
        torch._dynamo.utils.counters.clear()
    n = []

    def backend(gm, inputs):
        n.append(1)
        return gm.forward
    with torch.no_grad():
        torch.compile(call, backend=backend)()
    c = torch._dynamo.utils.counters
    return len(n), sum(c["graph_break"].values())


def numbers(ts):
    return [t.detach().float().numpy().copy() for t in ts]


def one(package, name, build, store):
    row = {"package": package, "model": name}
    key = f"{package}/{name}"

    def save(what, arrays):
        for i, a in enumerate(arrays):
            store[f"{key}|{what}|{i}"] = a
    step = "imports"
    try:
        torch.manual_seed(0)
        f, args, kwargs = build(torch)
        row[step] = True
        step = "forward"
        module = isinstance(f, torch.nn.Module)
        if module:
            f.eval()
        torch.manual_seed(1)
        t0 = time.time()
        out = f(*args, **kwargs)
        row["seconds"] = round(time.time() - t0, 3)
        eager = tensors(out, [])
        save("forward", numbers(eager))
        row[step] = True
        step = "train"
        if module:
            f.train()
            torch.manual_seed(2)
            loss = loss_of(f(*args, **kwargs))
            loss.backward()
            save("loss", [np.array(float(loss))])
            grads = [p.grad for p in f.parameters() if p.grad is not None]
            save("grad", numbers(grads))
            f.zero_grad()
            f.eval()
        row[step] = True if module else None
        step = "compile"
        if module:
            row["graphs"], row["breaks"] = graphs_of(lambda: f(*args, **kwargs))
            if TAPER:
                torch._dynamo.reset()
                with torch.no_grad():
                    torch.manual_seed(1)
                    eager = tensors(f(*args, **kwargs), [])  # once more: training has changed what normalisation keeps
                    torch.manual_seed(1)
                    got = tensors(torch.compile(f)(*args, **kwargs), [])
                worst = max((float((a.detach() - b.detach()).abs().max() / (1 + b.detach().abs().max())) for a, b in zip(got, eager)), default=0.0)
                row["compiled"] = worst < 1e-4 and len(got) == len(eager)
                row["compiled_error"] = worst
        row[step] = True
    except BaseException as e:
        row[step] = False
        row["error"] = f"{step}: {type(e).__name__}: {str(e).splitlines()[0][:200] if str(e) else ''}"
        row["traceback"] = traceback.format_exc()[-1500:]
        if isinstance(e, KeyboardInterrupt):
            raise
    return row


def main():
    package, path, *names = sys.argv[1:]
    if "taper" not in sys.modules:  # torchvision registers shapes for operators of its extension; PyTorch wants them to be there
        lib = torch.library.Library("torchvision", "DEF")
        for op in ("nms", "qnms"):
            lib.define(op + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    store = {}
    for name, build in cases.CASES[package]:
        if not names or name in names:
            print("ROW " + json.dumps(one(package, name, build, store)), flush=True)
    np.savez(path, **store)


if __name__ == "__main__":
    main()
