"""PyTorch's own operator samples (torch.testing._internal op database) run through Taper.

  python tests/oracle/opinfo.py [--max N] [--ops a,b,...] [--json FILE] [--state FILE] [--show K] [--grads]

Each operator runs in a child process of its own. A sample passes when values (tolerance by dtype), dtype, shape and
strides of all results agree with PyTorch's, or both refuse it. Where values of less than double precision differ by
more than the tolerance, Taper's must be at least as close to PyTorch's float64 result as PyTorch's are.
--max bounds the samples an operator and dtype; 0 means all.
"""
import argparse, json, os, re, select, signal, sys, time, unittest, warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
try:
    import torch
    import numpy  # noqa: F401
except ImportError:
    raise unittest.SkipTest("PyTorch or NumPy is not importable")
import taper
import taper.nn.functional
from exceptions import EXCEPTIONS

warnings.simplefilter("ignore")
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
TOL = {"float64": (1e-7, 1e-7), "float32": (2e-5, 2e-5), "float16": (4e-3, 4e-3), "bfloat16": (3e-2, 3e-2)}
RANDOM = {"bernoulli", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d", "multinomial",
          "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "normal", "rand_like", "randn_like",
          "randint_like", "randint", "randn", "uniform", "exponential", "cauchy", "geometric", "log_normal",
          "nn.functional.rrelu", "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty",
          "new_empty_strided", "rand", "randperm", "bernoulli_", "nn.functional.fractional_max_pool2d",
          "nn.functional.fractional_max_pool3d", "nn.functional.gumbel_softmax", "pca_lowrank", "svd_lowrank"}
# Results that are only defined up to a sign or an order.
UP_TO_SIGN = {"linalg.qr", "qr", "linalg.svd", "svd", "linalg.eigh", "eig", "linalg.eig"}
_T2P = {getattr(torch, d): getattr(taper, d) for d in DTYPES + ["complex64", "complex128"]}
_MEM = {torch.contiguous_format: "contiguous_format", torch.channels_last: "channels_last",
        torch.preserve_format: "preserve_format", torch.channels_last_3d: "channels_last_3d"}


class Unsupported(Exception):
    """A sample of a type Taper does not have (half complex numbers, sparse tensors)."""


def ours(v, memo):
    """A PyTorch value as Taper's: tensors keep strides and offset, and stay leaves that require grad."""
    if isinstance(v, torch.Tensor):
        if id(v) in memo:
            return memo[id(v)][1]
        if v.dtype not in _T2P or v.layout != torch.strided or v.is_quantized:
            raise Unsupported(str(v.dtype))
        s = v.detach()
        raw = bytes(s.untyped_storage().tolist()) if s.untyped_storage().nbytes() < 64 else \
            s.new_empty(0).view(torch.uint8).set_(s.untyped_storage()).numpy().tobytes()
        if s.is_conj() or s.is_neg():
            raise Unsupported("conj")
        place = s.untyped_storage().data_ptr() or id(v)  # tensors that share memory still do
        shared = memo.setdefault("storages", (None, {}))[1]
        if place not in shared:
            shared[place] = taper._C._storage_from_bytes(raw)
        t = taper._C._tensor_on(shared[place], _T2P[v.dtype], s.storage_offset(), tuple(s.shape),
                                tuple(s.stride()))
        if v.requires_grad:
            t.requires_grad_()
        memo[id(v)] = (v, t)
        return t
    if isinstance(v, torch.dtype):
        if v not in _T2P:
            raise Unsupported(str(v))
        return _T2P[v]
    if isinstance(v, torch.memory_format):
        return getattr(taper, _MEM[v])
    if isinstance(v, torch.device):
        return taper.device(str(v))
    if isinstance(v, torch.layout):
        if v != torch.strided:
            raise Unsupported(str(v))
        return taper.strided
    if isinstance(v, torch.Size):
        return taper.Size(tuple(v))
    if isinstance(v, tuple):
        return tuple(ours(x, memo) for x in v)
    if isinstance(v, list):
        return [ours(x, memo) for x in v]
    if isinstance(v, dict):
        return {k: ours(x, memo) for k, x in v.items()}
    if isinstance(v, torch.Generator):
        raise Unsupported("generator")
    if isinstance(v, torch.nn.Module) and not list(v.parameters()) and hasattr(taper.nn, type(v).__name__):
        return getattr(taper.nn, type(v).__name__)()
    if callable(v) and getattr(v, "__module__", "").startswith("torch"):  # a function of PyTorch's: ours of that name
        name = getattr(v, "__name__", "")
        if not hasattr(F, name) and not hasattr(taper, name or "?"):
            raise Unsupported(repr(v))
        return getattr(F, name, None) or getattr(taper, name)
    return v


F = taper.nn.functional
# Names under which the database calls something else than the function of that name.
ADAPT = {
    "where": lambda self, condition, other, **k: taper.where(condition, self, other, **k),
    "polygamma": lambda x, n, **k: taper.polygamma(n, x, **k),
    "special.polygamma": lambda x, n, **k: taper.special.polygamma(n, x, **k),
    "nn.functional.embedding": lambda weight, idx, **k: F.embedding(idx, weight, **k),
    "nn.functional.embedding_bag": lambda weight, idx, *a, **k: F.embedding_bag(idx, weight, *a, **k),
    "einsum": lambda tensors, equation: taper.einsum(equation, tensors),
    "zero_": lambda x: taper.zero_(x.clone()) if hasattr(taper, "zero_") else x.clone().zero_(),
    "normal.in_place": lambda x, *a, **k: x.clone().normal_(*a, **k),
    "linalg.lstsq.grad_oriented": lambda a, b, driver=None: taper.linalg.lstsq(a, b, driver=driver)[0:2],
    "linalg.pinv.singular": lambda a, b: taper.linalg.pinv(a @ b.mT),
    "linalg.eig": None, "linalg.eigvals": None,  # complex
    "max_pool2d_with_indices_backward": None,  # a function of the database's own
    "svd_lowrank": lambda a, b, **k: taper.svd_lowrank(a @ b.mT, **k),
    "pca_lowrank": lambda a, b, **k: taper.pca_lowrank(a @ b.mT, **k),
    "masked_fill": lambda x, m, v: x.masked_fill(m, v),
    "exponential": lambda x, *a, **k: x.clone().exponential_(*a, **k),
    "geometric": lambda x, *a, **k: x.clone().geometric_(*a, **k),
    "cauchy": lambda x, *a, **k: x.clone().cauchy_(*a, **k),
    "log_normal": lambda x, *a, **k: x.clone().log_normal_(*a, **k),
    "uniform": lambda x, *a, **k: x.clone().uniform_(*a, **k),
}
# Indices of equal elements may come in any order.
TIES = {"sort", "argsort", "topk", "kthvalue", "msort", "median", "nanmedian", "mode"}


def function_for(name, variant=""):
    """Taper's callable for an op database name, or None."""
    if name + "." + variant in ADAPT:
        return ADAPT[name + "." + variant]
    if name in ADAPT:
        return ADAPT[name]
    at = taper
    for part in name.split("."):
        try:
            at = getattr(at, part)
        except AttributeError:
            at = None
            break
    if getattr(at, "_refused", None):  # a name that exists to say why it is not supported
        return None
    if callable(at):
        return at
    m = getattr(taper.Tensor, name, None)
    if getattr(m, "_refused", None):
        return None
    if m is None:  # a row without a Python name
        row = getattr(taper.ops.aten, name, None) if "." not in name else None
        return getattr(row, "default", None) or getattr(row, "Tensor", None)
    return m if callable(m) else (lambda x, *a, **k: getattr(x, name))


def flat(v):
    if isinstance(v, (tuple, list)):
        return [x for e in v for x in flat(e)]
    return [v]


def same_number(a, b, tol):
    return a == b or (a != a and b != b) or (isinstance(a, (int, float)) and isinstance(b, (int, float))
                                             and abs(a - b) <= tol + tol * abs(a))


def differs(name, want, got, values=True, strides=True):
    """What differs between two results, or None."""
    want, got = flat(want), flat(got)
    if len(want) != len(got):
        return f"{len(got)} results instead of {len(want)}"
    for i, (w, g) in enumerate(zip(want, got)):
        if not isinstance(w, torch.Tensor):
            if isinstance(g, taper.Tensor):
                return f"result {i} is a tensor, not {type(w).__name__}"
            if isinstance(w, torch.dtype):
                if repr(w).split(".")[1] != repr(g).split(".")[1]:
                    return f"{w} != {g}"
            elif isinstance(w, (int, float, bool)) and values and not same_number(w, g, 1e-5):
                return f"number {g} instead of {w}"
            continue
        if not isinstance(g, taper.Tensor):
            return f"result {i} is {type(g).__name__}, not a tensor"
        if tuple(w.shape) != tuple(g.shape):
            return f"shape {tuple(g.shape)} instead of {tuple(w.shape)}"
        dt = str(w.dtype).split(".")[1]
        if str(g.dtype).split(".")[1] != dt:
            return f"dtype {g.dtype} instead of {w.dtype}"
        if strides and w.numel() > 1:
            a = [s for s, n in zip(w.stride(), w.shape) if n != 1]
            b = [s for s, n in zip(g.stride(), g.shape) if n != 1]
            if a != b:
                return f"strides {g.stride()} instead of {w.stride()}"
        if not values or not w.numel():
            continue
        h = torch.from_dlpack(g.detach()) if dt != "bool" else torch.from_dlpack(g.detach().byte()).bool()
        w = w.detach()
        if name in UP_TO_SIGN and w.is_floating_point():
            w, h = w.abs(), h.abs()
        if w.is_floating_point():
            rtol, atol = TOL[dt]
            ok = torch.isclose(h.double(), w.double(), rtol=rtol, atol=atol, equal_nan=True)
        else:
            ok = h == w
        if not bool(ok.all()):
            k = int((~ok).reshape(-1).nonzero()[0])
            return (f"{int((~ok).sum())} of {w.numel()} values, first {h.reshape(-1)[k].item()} instead of "
                    f"{w.reshape(-1)[k].item()}")
    return None


def widened(v):
    """The same value in float64."""
    if isinstance(v, torch.Tensor):
        return v.detach().double() if v.is_floating_point() else v.detach()
    if isinstance(v, torch.dtype):
        return torch.float64 if v.is_floating_point else v
    if isinstance(v, (tuple, list)):
        return type(v)(widened(x) for x in v) if not isinstance(v, torch.Size) else v
    if isinstance(v, dict):
        return {k: widened(x) for k, x in v.items()}
    return v


def nearer_truth(op, s, want, got):
    """Is each of our elements at least as close to the float64 result as PyTorch's?"""
    try:
        true = op.op(widened(s.input), *widened(s.args), **widened(s.kwargs))
    except Exception:
        return False
    true, want, got = flat(true), flat(want), flat(got)
    if len(true) != len(want):
        return False
    for t, w, g in zip(true, want, got):
        if not isinstance(w, torch.Tensor) or not w.numel() or w.shape != t.shape:
            continue
        if not w.is_floating_point():
            if not bool((torch.from_dlpack(g.detach().long()) == w.long()).all()):
                return False
            continue
        if w.dtype == torch.float64:
            return False
        eps = torch.finfo(w.dtype).eps
        t, w, h = t.double(), w.detach().double(), torch.from_dlpack(g.detach()).double()
        near = (h - t).abs() <= (w - t).abs() + eps * t.abs()
        if not bool((near | (h == w) | (h.isnan() & w.isnan())).all()):
            return False
    return True


def settle_ties(s, want, a, got):
    """The elements the indices point at."""
    dim = s.args[0] if s.args else s.kwargs.get("dim", -1)
    if not s.input.dim():
        return want, got
    return s.input.gather(dim, want), a[0].gather(dim, got)


def settle_svd(name, r):
    """Without the vectors of the null space, which may be any orthonormal ones."""
    u, s, v = r
    k = s.shape[-1]
    return u[..., :k], s, v[..., :k] if name == "svd" else v[..., :k, :]


def run_sample(op, fn, s, grads):
    """None when it agrees, 'skip', or what differs."""
    try:
        memo = {}
        a = ours((s.input, list(s.args), dict(s.kwargs)), memo)
    except Unsupported:
        return "skip"
    try:
        want = op.op(s.input, *s.args, **s.kwargs)
        failed = None
    except Exception as e:
        want, failed = None, e
    if failed is None and any(isinstance(w, torch.Tensor) and (w.dtype not in _T2P or w.layout != torch.strided)
                              for w in flat(want)):
        return "skip"
    try:
        got = fn(a[0], *a[1], **a[2])
    except Exception as e:
        return None if failed is not None else f"{type(e).__name__}: {str(e).splitlines()[0][:160] if str(e) else ''}"
    if failed is not None:
        return f"accepted what PyTorch refuses ({type(failed).__name__}: {str(failed)[:80]})"
    if op.name in TIES:
        if op.name == "argsort":
            want, got = settle_ties(s, want, a, got)
        elif isinstance(want, tuple):
            want, got = want[0], got[0]
    drops = any(isinstance(s.kwargs.get(k), float) and s.kwargs[k] > 0 for k in ("dropout_p",)) or (
        op.name == "nn.functional.multi_head_attention_forward" and any(isinstance(x, float) and 0 < x < 1 for x in s.args))
    if op.name in ("svd", "linalg.svd"):
        want, got = settle_svd(op.name, want), settle_svd(op.name, got)
    why = differs(op.name, want, got, values=op.name not in RANDOM and not drops)
    if why and " values, first " in why and nearer_truth(op, s, want, got):
        why = None
    if drops:
        return why
    if why or not grads:
        return why
    return run_grads(op, memo, want, got)


def run_grads(op, memo, want, got):
    w = [x for x in flat(want) if isinstance(x, torch.Tensor) and x.requires_grad]
    g = [x for x in flat(got) if isinstance(x, taper.Tensor) and x.requires_grad]
    if len(w) != len(g):
        return f"{len(g)} results require grad instead of {len(w)}"
    if not w or op.name in RANDOM or op.name in UP_TO_SIGN:
        return None
    torch.manual_seed(1)
    seeds = [torch.randn(x.shape, dtype=torch.float64).to(x.dtype) for x in w]
    leaves = [(t, u) for t, u in memo.values() if t is not None and t.requires_grad]
    try:
        dw = torch.autograd.grad(w, [t for t, _ in leaves], seeds, allow_unused=True)
    except Exception:
        return None
    try:
        dg = taper.autograd.grad(g, [u for _, u in leaves], [ours(x, {}) for x in seeds], allow_unused=True)
    except Exception as e:
        return f"backward: {type(e).__name__}: {str(e)[:160]}"
    for a, b in zip(dw, dg):
        if (a is None) != (b is None):
            if b is None and not bool(a.any()) or a is None and not bool(b.bool().any()):
                continue
            return "gradient missing" if b is None else "gradient where there is none"
        if a is not None:
            why = differs(op.name, a, b, strides=False)
            if why:
                return "gradient: " + why
    return None


def run_op(op, limit, grads, seconds):
    """{'dtypes': {dtype: [passed, failed, skipped]}, 'grads': [passed, failed], 'failures': [...]}"""
    fn, out, stop = function_for(op.name, op.variant_test_name), {"dtypes": {}, "grads": [0, 0], "failures": []}, time.time() + seconds
    jobs = [(d, False) for d in DTYPES if getattr(torch, d) in op.dtypes]
    if grads and op.supports_autograd and torch.float64 in op.dtypes:
        jobs.append(("float64", True))
    for d, g in jobs:
        row = [0, 0, 0]
        torch.manual_seed(0)
        try:
            samples = op.sample_inputs("cpu", getattr(torch, d), requires_grad=g)
            for i, s in enumerate(samples):
                if limit and i >= limit:
                    break
                if time.time() > stop:
                    out["cut"] = True
                    break
                r = run_sample(op, fn, s, g)
                row[0 if r is None else 2 if r == "skip" else 1] += 1
                if r not in (None, "skip"):
                    out["failures"].append([("grad " if g else "") + d, i, r])
        except Exception as e:
            if not row[0] + row[1]:
                out["failures"].append([d, -1, f"samples: {type(e).__name__}: {str(e)[:100]}"])
        if g:
            out["grads"] = row[:2]
        else:
            out["dtypes"][d] = row
    return out


def run_errors(op, out):
    """PyTorch's own wrong inputs: the class of the exception must be the same (or one derived from it)."""
    fn, row = function_for(op.name, op.variant_test_name), [0, 0, 0]
    try:
        cases = list(op.error_inputs("cpu")) if op.error_inputs_func else []
    except Exception:
        cases = []
    for i, e in enumerate(cases):
        s = e.sample_input
        try:
            op.op(s.input, *s.args, **s.kwargs)
            row[2] += 1  # not wrong on the CPU
            continue
        except Exception as x:
            want = x
        try:
            a = ours((s.input, list(s.args), dict(s.kwargs)), {})
        except Exception:
            row[2] += 1
            continue
        try:
            fn(a[0], *a[1], **a[2])
            got = None
        except Exception as x:
            got = x
        names = [c.__name__ for c in type(got).__mro__] if got is not None else []
        ok = type(want).__name__ in names
        row[0 if ok else 1] += 1
        if not ok:
            out["failures"].append(["error", i, f"{type(got).__name__ if got is not None else 'no error'}"
                                    f"{': ' + str(got).splitlines()[0][:100] if got is not None and str(got) else ''}"
                                    f" instead of {type(want).__name__}: {str(want)[:100]}"])
    out["errors"] = row


def in_child(op, limit, grads, seconds):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(r)
            torch.set_num_threads(1)
            signal.alarm(int(seconds * 2 + 30))
            res = run_op(op, limit, grads, seconds)
            run_errors(op, res)
            with os.fdopen(w, "w") as f:
                json.dump(res, f)
        finally:
            os._exit(0)
    os.close(w)
    return pid, r


def full_name(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def main(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--max", type=int, default=6)
    ap.add_argument("--ops", default="", help="names, comma-separated")
    ap.add_argument("--full-ops", default="", help="the same with the variant: nn.functional.interpolate.bicubic")
    ap.add_argument("--json")
    ap.add_argument("--docs", action="store_true", help="write docs/opinfo.json, which tools/gendocs.py reads")
    ap.add_argument("--show", type=int, default=3)
    ap.add_argument("--grads", action="store_true")
    ap.add_argument("--seconds", type=float, default=20, help="at most this long an operator")
    ap.add_argument("--budget", type=float, default=0, help="stop starting operators after this many seconds")
    ap.add_argument("--counts", action="store_true", help="print the counts of every operator")
    ap.add_argument("--state", help="a line an operator as soon as it is done; those already there are not run again")
    ap.add_argument("-j", type=int, default=2)
    a = ap.parse_args(argv)
    from torch.testing._internal.common_methods_invocations import op_db
    want = set(filter(None, a.ops.split(",")))
    exact = set(filter(None, a.full_ops.split(",")))
    ops = [o for o in op_db if function_for(o.name, o.variant_test_name) and (not want or o.name in want)
           and (not exact or full_name(o) in exact)]
    missing = sorted({o.name for o in op_db if not function_for(o.name)})
    results, live, start = {}, {}, time.time()
    if a.state and os.path.exists(a.state):
        with open(a.state) as f:
            results = {k: v for line in f for k, v in json.loads(line).items()}
    queue = [o for o in ops if full_name(o) not in results]
    while queue or live:
        while queue and len(live) < a.j and not (a.budget and time.time() - start > a.budget):
            o = queue.pop(0)
            pid, fd = in_child(o, a.max, a.grads, a.seconds)
            live[fd] = (o, pid, [])
        if a.budget and time.time() - start > a.budget:
            queue = []
        ready, _, _ = select.select(list(live), [], [], 1)
        for fd in ready:
            o, pid, chunks = live[fd]
            data = os.read(fd, 1 << 20)
            if data:
                chunks.append(data)
                continue
            os.close(fd)
            _, status = os.waitpid(pid, 0)
            del live[fd]
            name = full_name(o)
            try:
                results[name] = json.loads(b"".join(chunks))
            except ValueError:
                results[name] = {"dtypes": {"?": [0, 1, 0]}, "grads": [0, 0],
                                 "failures": [["?", -1, f"the process died (status {status})"]]}
            if a.state:
                with open(a.state, "a") as f:
                    f.write(json.dumps({name: results[name]}) + "\n")
    return report(a, results, missing)


def judge(results):
    """(differences no exception explains, how many differences each exception explains)"""
    unknown, used = [], [0] * len(EXCEPTIONS)
    for name, r in sorted(results.items()):
        for dt, i, why in r["failures"]:
            text = f"{dt}: {why}"
            hits = [k for k, (op, pattern, _) in enumerate(EXCEPTIONS) if op == name and re.search(pattern, text, re.S)]
            if hits:
                used[hits[0]] += 1
            else:
                unknown.append(f"{name} sample {i}, {text}")
    return unknown, used


def report(a, results, missing):
    tot, gr, er = [0, 0, 0], [0, 0], [0, 0]
    for name, r in sorted(results.items()):
        c = [sum(v[k] for v in r["dtypes"].values()) for k in range(3)]
        tot = [x + y for x, y in zip(tot, c)]
        gr = [x + y for x, y in zip(gr, r["grads"])]
        er = [x + y for x, y in zip(er, r.get("errors", [0, 0]))]
        if r["failures"] and a.show or a.counts:
            print(f"{name}: {c[0]} passed, {c[1]} failed; gradients {r['grads'][0]} passed, {r['grads'][1]} failed; "
                  f"wrong inputs {r.get('errors', [0, 0])[0]} passed, {r.get('errors', [0, 0])[1]} failed"
                  f"{'; cut short' if r.get('cut') else ''}")
            for f in r["failures"][:a.show]:
                print("    ", *f)
    n = max(1, tot[0] + tot[1])
    print(f"{len(results)} operators of the database ({len(missing)} names missing): {tot[0]} samples passed, {tot[1]} failed: "
          f"{100 * tot[0] / n:.2f} %; gradients {gr[0]} passed, {gr[1]} failed; wrong inputs {er[0]} passed, {er[1]} failed")
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"results": results, "missing": missing}, f)
    if a.docs:
        short = {}
        for name, r in sorted(results.items()):
            c = [sum(v[k] for v in r["dtypes"].values()) for k in range(2)]
            if sum(c) + sum(r["grads"]):
                short[name] = c + r["grads"] + r.get("errors", [0, 0])[:2]
        limit = f"at most {a.max} samples an operator and dtype" if a.max else "all samples"
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "opinfo.json"), "w") as f:
            head = json.dumps({"limit": limit, "missing": missing, "explained": judge(results)[1]})
            rows = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in short.items())
            f.write(head[:-1] + ',\n"results": {\n' + rows + "\n}}\n")
    return tot, gr, er, results, missing


if __name__ == "__main__":
    main()
