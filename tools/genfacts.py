#!/usr/bin/env python3
"""Records facts about PyTorch's operators in tests/facts/ops.json: calls with their arguments and results. The tests
(tests/py/test_facts.py) hold Taper to them where PyTorch is not installed.

  tools/genfacts.py            needs PyTorch

Calls come from PyTorch's own operator samples: the sample itself under the name of the operator, and every call of an
ATen overload made on the way, forward and backward. For each name the smallest few are kept. Rows that no sample calls
get the arguments with which test_out_of_memory.py calls them. Of results that are random or defined only up to signs,
dtype, sizes and strides are kept."""
import base64, json, math, os, re, sys, warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))
import taper  # noqa: E402  only for the list of rows and dtypes

warnings.simplefilter("ignore")
torch.set_num_threads(1)
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128"]
NAMES = {getattr(torch, d): d for d in DTYPES}
MEMORY = {torch.contiguous_format: "contiguous_format", torch.channels_last: "channels_last",
          torch.preserve_format: "preserve_format", torch.channels_last_3d: "channels_last_3d"}
LARGEST, KEEP = 150, 3  # elements in a call, where there are any so small; calls a name, besides one with complex tensors
# Results that are random, undefined, or defined only up to signs or order.
SKIP = re.compile(r"rand|bernoulli|multinomial|normal|dropout|empty|uniform|exponential|cauchy|geometric|svd|_qr|\bqr|eigh|geqrf|"
                  r"unique|_local_scalar|item|rrelu|gumbel|resize|_unsafe|jiterator|fractional|lstsq|poisson|_foreach|record|multi_head_attention|lowrank")


class Skip(Exception):
    pass


def size(v):
    if isinstance(v, torch.Tensor):
        return v.numel()
    return sum(map(size, v)) if isinstance(v, (tuple, list)) else sum(map(size, v.values())) if isinstance(v, dict) else 0


def pack(v):
    """A value as JSON: tensors as dtype, sizes, strides where they are not the usual ones, and bytes."""
    if isinstance(v, torch.Tensor):
        if v.dtype not in NAMES or v.layout != torch.strided or v.is_conj() or v.is_neg():
            raise Skip
        c = v.detach().clone(memory_format=torch.contiguous_format)
        data = (c.view(torch.int16) if v.dtype == torch.bfloat16 else c).numpy().tobytes()
        out = {"t": NAMES[v.dtype], "s": list(v.shape), "b": base64.b64encode(data).decode()}
        if not v.is_contiguous():
            out["st"] = list(v.stride())
        return out
    if isinstance(v, bool) or v is None or isinstance(v, (int, str)):
        return v
    if isinstance(v, float):
        return v if math.isfinite(v) else {"f": repr(v)}
    if isinstance(v, complex):
        return {"c": [pack(v.real), pack(v.imag)]}
    if isinstance(v, (tuple, list, torch.Size)):
        return [pack(x) for x in v]
    if isinstance(v, torch.dtype):
        if v not in NAMES:
            raise Skip
        return {"d": NAMES[v]}
    if isinstance(v, torch.memory_format):
        return {"m": MEMORY[v]}
    raise Skip


class Watch(TorchDispatchMode):
    """Remembers calls of ATen overloads that Taper has a row for."""

    def __init__(self, facts, rows):
        super().__init__()
        self.facts, self.rows = facts, rows

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.name().replace("aten::", "")
        wanted = name in self.rows and not func._schema.is_mutable and not SKIP.search(name)
        before = None
        if wanted:
            try:
                named = [(k, v) for k, v in kwargs.items() if k not in ("device", "layout", "pin_memory")]
                before = pack(list(args)), pack(named)
            except Skip:
                wanted = False
        r = func(*args, **kwargs)
        if wanted:
            keep(self.facts, "aten." + name, size(args) + size(kwargs) + size(r), before, r)
        return r


def keep(facts, name, n, before, result):
    special = '"t": "complex' in json.dumps(before)
    most = 1 if special else KEEP
    kept = facts.setdefault(name + (" complex" if special else ""), [])
    if n > (LARGEST if kept or special else 1000) or (len(kept) >= most and n >= kept[-1][0]) or not n:
        return
    try:
        fact = [name, before[0], dict(before[1]), pack(result)]
    except Skip:
        return
    if any(k[1] == fact for k in kept):
        return
    kept.append((n, fact))
    kept.sort(key=lambda k: k[0])
    del kept[most:]
    if kept[0][0] <= LARGEST < kept[-1][0]:
        kept.pop()


def types_only(v):
    return [types_only(x) for x in v] if isinstance(v, list) else {k: x for k, x in v.items() if k != "b"} if isinstance(v, dict) else None


def theirs(v):
    """One of our values as PyTorch's."""
    if isinstance(v, taper.Tensor):
        t = torch.tensor(v.detach().tolist(), dtype=getattr(torch, str(v.dtype).split(".")[1])).reshape(tuple(v.shape))
        return torch.empty_strided(tuple(v.shape), v.stride(), dtype=t.dtype).copy_(t)
    if isinstance(v, taper.dtype):
        return getattr(torch, str(v).split(".")[1])
    return [theirs(x) for x in v] if isinstance(v, (list, tuple)) else v


def given():
    """Arguments where ours are no use: positional ones and keywords."""
    x, img = torch.linspace(-2, 3, 6).view(2, 3), torch.linspace(-1, 1, 32).view(1, 2, 4, 4)
    return {
        "searchsorted.Tensor": ([torch.tensor([1.0, 2.0, 4.0]), x], {}), "multilabel_margin_loss": ([x, torch.tensor([[2, 0, -1], [1, -1, 0]])], {}),
        "norm.ScalarOpt_dim_dtype": ([x, 2, [1], False], {"dtype": torch.float64}), "resize_as_": ([x.clone(), torch.zeros(3, 2)], {}),
        "conv2d.padding": ([img, torch.linspace(0, 1, 54).view(3, 2, 3, 3), None, [1, 1], "same"], {}),
        "conv3d.padding": ([img.view(1, 2, 4, 2, 2), torch.linspace(0, 1, 16).view(1, 2, 2, 2, 2), None, [1, 1, 1], "valid"], {}),
        "normal.Tensor_Tensor": ([x, x.abs()], {}), "normal.float_Tensor": ([0.5, x.abs()], {}),
    }


def from_our_samples(facts):
    """Facts about the rows that have none yet."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "py"))
    import test_out_of_memory as ours

    hand = given()
    for row in taper._C._schemas():
        base, _, over = row[0].partition(".")
        op = getattr(getattr(torch.ops.aten, base, None), over or "default", None)
        if facts.get("aten." + row[0]) or facts.get("aten." + row[0] + " complex") or op is None:
            continue
        every = ours.params(row[1])
        if row[0] in hand:
            pos, kw = hand[row[0]]
            before = pack(pos), pack(list(kw.items()))
            fact = ["aten." + row[0], before[0], dict(before[1]), pack(op(*pos, **kw))]
            facts["aten." + row[0]] = [(size(pos), fact[:3] + [types_only(fact[3]) if SKIP.search(row[0]) else fact[3]])]
            continue
        for make, _ in ours.samples(row)[:2]:
            args = theirs(list(make()))
            for names in (every[:len(args)], [p for p in every if p[2] is None]):
                if len(names) != len(args):
                    continue
                pos = [a for a, p in zip(args, names) if not p[3]]
                kw = [(p[1], a) for a, p in zip(args, names) if p[3]]
                try:
                    before = pack(pos), pack(kw)
                    torch.manual_seed(0)
                    r = op(*pos, **dict(kw))
                    fact = ["aten." + row[0], before[0], dict(before[1]), pack(r.resolve_conj() if row[0] == "conj" else r)]
                except Exception:
                    continue
                if SKIP.search(row[0]):
                    fact[3] = types_only(fact[3])
                facts.setdefault("aten." + row[0], []).append((size(args), fact))
                break


def samples(op, dt, grad):
    try:
        for i, s in enumerate(op.sample_inputs("cpu", getattr(torch, dt), requires_grad=grad)):
            if i >= 12:
                return
            yield s
    except Exception:
        return


def main():
    rows = {r[0] for r in taper._C._schemas()}
    facts = {}
    for op in op_db:
        name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
        for dt, grad in (("float32", True), ("int64", False), ("float64", False), ("bool", False), ("complex128", True)):
            if getattr(torch, dt) not in op.dtypes:
                continue
            torch.manual_seed(0)
            for s in samples(op, dt, grad and op.supports_autograd):
                if size([s.input, s.args, s.kwargs]) > 1500:
                    continue
                direct = not SKIP.search(name) and not op.variant_test_name
                try:
                    before = pack([s.input, *s.args]), pack(list(s.kwargs.items()))
                except Skip:
                    direct = False
                try:
                    with Watch(facts, rows):
                        r = op.op(s.input, *s.args, **s.kwargs)
                        w = [x for x in (r if isinstance(r, (tuple, list)) else [r]) if isinstance(x, torch.Tensor) and x.requires_grad]
                        leaves = [x for x in [s.input, *s.args, *s.kwargs.values()] if isinstance(x, torch.Tensor) and x.requires_grad and x.is_leaf]
                        if w and leaves:
                            torch.autograd.grad(w, leaves, [torch.ones_like(x) for x in w], allow_unused=True)
                except Exception:
                    continue
                if direct:
                    keep(facts, op.name, size([s.input, s.args, s.kwargs]) + size(r), before, r)
    from_our_samples(facts)
    out = [f for name in sorted(facts) for _, f in facts[name]]
    path = os.path.join(ROOT, "tests", "facts", "ops.json")
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(x, separators=(",", ":")) for x in out) + "\n]\n")
    print(f"{len(out)} facts under {len({f[0] for f in out})} names, {os.path.getsize(path)} bytes; {len(rows & {f[0][5:] for f in out})} of {len(rows)} rows")


if __name__ == "__main__":
    main()
