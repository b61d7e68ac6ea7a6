"""PyTorch's operator database through taper.torch: results and gradients of each sample against PyTorch's eager.

  python tests/oracle/bridge_ops.py [--max N] [--ops a,b,...] [--every K] [--dtype float32] [--json FILE] [--show]

Each sample is traced by AOTAutograd and compiled by Taper, forward and backward. Kinds of outcome:
  native   every operator of the graphs is Taper's
  opaque   some operators were called back in PyTorch (the ledger names them)
  graph    a whole graph stayed in PyTorch
  wrong    results, gradients, types or strides differ
  error    an exception, or the process died
  refused  PyTorch's own tracing, with compilers that do nothing, fails too, or eager refuses the sample
"""
import argparse, collections, json, os, signal, sys, unittest, warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
try:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
except ImportError as e:
    raise unittest.SkipTest(f"PyTorch's operator database is not importable: {e}")
import taper.torch as bridge
from taper.torch import _backend
from torch._functorch.aot_autograd import aot_function
from torch.utils import _pytree as tree

warnings.simplefilter("ignore")
UP_TO_SIGN = {"svd_lowrank", "pca_lowrank", "linalg.eigh"}  # the vectors of a decomposition
UNDEFINED = UP_TO_SIGN | {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}  # values


def fresh(t, grad):
    """A leaf like t, with its strides."""
    c = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype).copy_(t) if t.layout is torch.strided and not t.is_quantized \
        and 0 not in t.stride() else t.detach().clone()
    return c.requires_grad_(t.requires_grad and grad)


def run(fn, leaves, make, seed=0):
    """-> (results, gradients)"""
    xs = [make(t) for t in leaves]
    torch.manual_seed(seed)
    out = [o for o in tree.tree_leaves(fn(*xs)) if isinstance(o, torch.Tensor)]
    held = [o for o in out if o.requires_grad]
    grads = []
    if held:
        gen = torch.Generator().manual_seed(7)
        way = [torch.randn(o.shape, generator=gen, dtype=torch.float64).to(o.dtype) for o in held]
        want = [x for x in xs if x.requires_grad]
        grads = torch.autograd.grad(held, want, way, allow_unused=True) if want else []
    return [o.detach() for o in out], grads


def differs(got, want, tol):
    if len(got) != len(want):
        return f"{len(got)} results, not {len(want)}"
    for i, (a, b) in enumerate(zip(got, want)):
        if a is None or b is None:
            if (a is None) != (b is None) and (b if a is None else a).count_nonzero():
                return f"{i}: None or not"
            continue
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{i}: {a.dtype} {tuple(a.shape)}, not {b.dtype} {tuple(b.shape)}"
        if tol is not None and a.layout is torch.strided and not torch.allclose(a, b, *tol, equal_nan=True):
            return f"{i}: values differ by {(a.double() - b.double()).abs().max().item() if not a.is_complex() else '?'}"
    return None


def steps(t):
    """Strides that matter."""
    return [s for n, s in zip(t.size(), t.stride()) if n > 1] if t.layout is torch.strided and t.numel() else []


def declared(fn, tensors):
    """Results as PyTorch's rules describe them; some kernels choose other strides."""
    with torch._subclasses.FakeTensorMode() as mode:
        return [o for o in tree.tree_leaves(fn(*[mode.from_tensor(t.detach()) for t in tensors])) if isinstance(o, torch.Tensor)]


def closer(got, want, exact):
    """Is got about as close to the float64 results as eager is?"""
    return all(a is None or b is None or not a.is_floating_point() or
               (a.double() - e).abs().nan_to_num().max() <= 3 * (b.double() - e).abs().nan_to_num().max() + 1e-6
               for g, w, x in zip(got, want, exact) for a, b, e in zip(g, w, x) if e is not None and e.numel())


def sample(op, s, dtype, noop, seed=0):
    """-> (kind, text, [(operator, reason)])"""
    leaves, spec = tree.tree_flatten((s.input, s.args, s.kwargs))
    at = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
    grad = op.supports_autograd

    def fn(*ts):
        full = list(leaves)
        for i, t in zip(at, ts):
            full[i] = t
        x, a, k = tree.tree_unflatten(full, spec)
        return op(x, *a, **k)

    tensors, make = [leaves[i] for i in at], lambda t: fresh(t, grad)
    tol = None if op.name in UNDEFINED else {torch.float64: (1e-7, 1e-7), torch.float32: (1e-4, 1e-4)}.get(dtype, (2e-2, 2e-2))
    try:
        want = run(fn, tensors, make, seed)
    except Exception as e:
        return "refused", f"eager: {type(e).__name__}", []
    bridge.reset()
    try:
        got = run(traced(fn, _backend._compiler({"resolved": {}})), tensors, make, seed)
    except Exception as e:
        try:
            run(traced(fn, noop), tensors, make, seed)
        except Exception:
            return "refused", type(e).__name__, []
        return "error", f"{type(e).__name__}: {str(e).strip().splitlines()[0][:200] if str(e).strip() else ''}", []
    rows = [(r[2], r[3]) for r in bridge.ledger()]
    def far(got, want):
        return differs(got[0], want[0], tol) or differs(got[1], want[1], tol)

    bad, strides = far(got, want), None
    if not bad and tol is not None:
        ref = run(traced(fn, noop), tensors, make, seed)[0] if any(steps(a) != steps(b) for a, b in zip(got[0], want[0])) else []
        said = declared(fn, tensors) if any(steps(a) != steps(b) for a, b in zip(got[0], ref)) else ref
        strides = next((f"{i}: strides {a.stride()}, not {b.stride()}" for i, (a, b, c) in enumerate(zip(got[0], ref, said))
                        if steps(a) not in (steps(b), steps(c))), None)
    if bad or strides:
        try:  # is it PyTorch's own tracing that differs from eager?
            ref = run(traced(fn, noop), tensors, make, seed)
            if bad and far(ref, want):
                return "refused", "traced and eager PyTorch differ", rows
            if bad and dtype is torch.float32 and closer(got, want, run(fn, tensors, lambda t: fresh(t.double() if t.dtype is dtype else t, grad), seed)):
                bad = None
        except Exception:
            pass
        if bad or strides:
            return "wrong", bad or strides, rows
    if any(o == "the whole graph" for o, _ in rows):
        return "graph", "", rows
    return "opaque" if rows else "native", "", rows


def noop(gm, examples):
    return torch._functorch.aot_autograd.make_boxed_func(gm.forward)


def traced(fn, one):
    if _backend._decompositions is None:
        _backend._decompositions = _backend.table()
    return aot_function(fn, fw_compiler=one, bw_compiler=one, inference_compiler=one, decompositions=_backend._decompositions,
                        partition_fn=torch._functorch.partitioners.min_cut_rematerialization_partition)


def one_op(op, dtype, most):
    use = dtype if dtype in op.dtypes else next((d for d in (torch.float32, torch.int64, torch.bool) if d in op.dtypes), None)
    if use is None:
        return []
    rows = []
    try:
        samples = list(op.sample_inputs("cpu", use, requires_grad=op.supports_autograd and use.is_floating_point))
    except Exception as e:
        return [("refused", f"samples: {e}", [])]
    if most and len(samples) > most:  # spread over the list
        samples = [samples[i * len(samples) // most] for i in range(most)]
    for s in samples:
        try:
            rows.append(sample(op, s, use, noop))
        except Exception as e:
            rows.append(("error", f"{type(e).__name__}: {str(e)[:200]}", []))
    return rows


def name_of(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def sweep(ops, dtype, most, seconds=120):
    """(name, rows) of each operator. A child process works through the list; where it dies, the next goes on behind it."""
    i = 0
    while i < len(ops):
        r, w = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(r)
            torch.set_num_threads(1)
            with os.fdopen(w, "w") as f:
                for k in range(i, len(ops)):
                    signal.alarm(seconds)
                    f.write(json.dumps([k, one_op(ops[k], dtype, most)]) + "\n")
                    f.flush()
            os._exit(0)
        os.close(w)
        with os.fdopen(r) as f:
            for line in f:
                k, rows = json.loads(line)
                yield name_of(ops[k]), rows
                i = k + 1
        status = os.waitpid(pid, 0)[1]
        if i < len(ops):
            yield name_of(ops[i]), [("error", f"the process ended with status {status}", [])]
            i += 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--max", type=int, default=2)
    p.add_argument("--ops", default="")
    p.add_argument("--every", type=int, default=1)
    p.add_argument("--from", type=int, default=0, dest="first")
    p.add_argument("--dtype", default="float32")
    p.add_argument("--json")
    p.add_argument("--show", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(1)
    ops = [o for o in op_db if not a.ops or name_of(o) in a.ops.split(",") or o.name in a.ops.split(",")][a.first::a.every]
    count, lacking, everything = collections.Counter(), collections.Counter(), {}
    for name, rows in sweep(ops, getattr(torch, a.dtype), a.max):
        everything[name] = rows
        for kind, text, ledger in rows:
            count[kind] += 1
            lacking.update({tuple(x) for x in ledger})
            if kind in ("wrong", "error") or a.show:
                print(f"{kind:8} {name}: {text} {ledger if a.show else ''}", flush=True)
    print("\nleft to PyTorch (samples, operator, reason):")
    for (o, why), n in lacking.most_common():
        print(f"  {n:4} {o}: {why}")
    print("\n" + ", ".join(f"{n} {k}" for k, n in count.most_common()))
    if a.json:
        with open(a.json, "w") as f:
            json.dump(everything, f)


if __name__ == "__main__":
    main()
