"""Every row of the op table, compiled against eager: all element types, layouts, sizes, alone and between other steps.

  python3 tests/py/table_compiled.py [--rows TEXT] [--part I/N]        everything; what differs is printed

Arguments come from the samples of the other tests that walk the table. A variant that eager refuses is left out; what
eager does, compiled must do. Results have the same type and sizes; floats may differ as far as another order of the same
operations allows, everything else not at all. Rows that draw random numbers must draw the same ones."""
import argparse
import os
import signal
import sys

import taper
import taper._dynamo as dynamo

taper._C._counted_draws(True)  # eager operators draw what kernels draw
import test_grad_table as table
from taper import _C
from test_grad_table import MUT, PW, RAND
from test_out_of_memory import detached, samples, tensors

DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
TOL = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}
SIZES = (0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 97, 4099)
LAYOUTS = ("plain", "turned", "stepped", "shifted", "spread", "last")
FILLED_BY_NOBODY = ("empty", "new_empty", "resize")  # only the form of the result is known
ERRORS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, OverflowError, ZeroDivisionError, ArithmeticError)
# Rows whose answer is not determined by the arguments alone to the precision of the comparison: any basis, any order.
FREE = {"_linalg_svd", "linalg_svd", "svd", "_linalg_eigh", "linalg_eigh", "linalg_qr", "qr", "linalg_eig", "geqrf", "linalg_lstsq",
        "sort", "argsort", "topk", "median", "nanmedian", "mode", "kthvalue", "unique_dim"}


def mapped(args, f):
    return [mapped(a, f) if isinstance(a, list) else f(a) if isinstance(a, taper.Tensor) else a for a in args]


def as_type(t, name):
    """Floats become the type; numbers that index or mask stay what they are."""
    if not t.is_floating_point():
        return t
    if name == "bool":
        return t > 0
    if name == "uint8":
        return t.abs().to(taper.uint8)
    return (t if "float" in name else t * 2).to(getattr(taper, name))


def laid(t, how):
    """The same values in memory another way."""
    if how == "turned" and t.dim() > 1:
        p = list(range(t.dim()))[::-1]
        return t.permute(p).contiguous().permute(p)
    if how == "stepped" and t.dim():
        wide = taper.zeros(list(t.shape[:-1]) + [2 * t.shape[-1] + 1], dtype=t.dtype)
        v = wide[..., 1::2]
        return v.copy_(t)
    if how == "shifted":
        flat = taper.zeros(t.numel() + 3, dtype=t.dtype)
        return flat[3:].view(t.shape).copy_(t)
    if how == "spread" and t.dim() and t.shape[0] > 0:  # one row seen many times
        return t[:1].expand(t.shape)
    if how == "last" and t.dim() == 4:
        return t.contiguous(memory_format=taper.channels_last)
    return t


def grown(args, dim, size):
    """Every tensor whose size along dim is the first one's gets another."""
    first = next((t for t in tensors(args) if t.dim()), None)
    if first is None:
        return args
    n = first.shape[dim]

    def one(t):
        if not t.dim() or t.shape[dim] != n or (n == 0 and size):
            return t
        return t.index_select(dim % t.dim(), taper.arange(size) % max(n, 1))
    return mapped(args, one)


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-40, -1e-40, 1e10, -3e38, 3.4e38, float("inf"), float("-inf"), float("nan"), 20.0, -100.0]


def special(args):
    """Every pair of the numbers that functions treat in their own way."""
    n, k = len(SPECIAL), 0
    both = [taper.tensor(SPECIAL, dtype=taper.float64).view(n, 1).expand(n, n).reshape(-1), taper.tensor(SPECIAL * n, dtype=taper.float64)]
    out = []
    for a in args:
        if isinstance(a, taper.Tensor) and a.is_floating_point():
            a, k = both[k % 2], k + 1
        elif isinstance(a, taper.Tensor):
            return None
        out.append(a)
    return out if k else None


def variants(row, full):
    """(what, arguments, call): everything, or a sample of it that differs from row to row."""
    pick = 0
    for s, (make, call) in enumerate(samples(row)):
        base = detached(list(make()))
        given = [("as is", base)]
        for dim in (0, -1):
            for size in SIZES if full else (SIZES[(hash_of(row[0]) + s + dim) % len(SIZES)],):
                if size > 97 and row[0].startswith("prod"):  # long products leave the range, in another order elsewhere
                    continue
                if size * max([t.numel() // max(t.shape[dim], 1) for t in tensors(base) if t.dim()] or [1]) <= 1 << 17:
                    given.append((f"size {size} at {dim}", grown(base, dim, size)))
        if row[3] & PW and not row[3] & RAND and row[0] != "gelu" and special(base):  # gelu of infinity: eager takes the limit in float32
            given.insert(1, ("special", special(base)))
        for g, (what, args) in enumerate(given):
            for d, name in enumerate(DTYPES):
                for h, how in enumerate(LAYOUTS):
                    pick += 1
                    if full and g and what != "special" and (g + d + h) % len(LAYOUTS):  # sizes: every type and every layout, not every pair
                        continue
                    if what == "special" and (how != "plain" or "float" not in name):
                        continue
                    if not full and (pick * 7 + hash_of(row[0])) % (7 if what == "special" else 97):
                        continue
                    yield f"{what}, {name}, {how}", args, name, how, call, pick


def hash_of(name):
    return sum((i + 1) * ord(c) for i, c in enumerate(name))


def same(a, b, name, tol):
    if isinstance(a, (tuple, list)):
        if not isinstance(b, (tuple, list)) or len(a) != len(b):
            return "another number of results"
        return next((w for w in (same(x, y, name, tol) for x, y in zip(a, b)) if w), None)
    if not isinstance(a, taper.Tensor):
        ok = type(a) is type(b) and (a == b or a != a or (isinstance(a, float) and abs(a - b) <= tol * max(1, abs(a))))
        return None if ok else f"{b} instead of {a}"
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{b.dtype} {tuple(b.shape)} instead of {a.dtype} {tuple(a.shape)}"
    if name.startswith(FILLED_BY_NOBODY):
        return None
    if not a.is_floating_point():
        return None if taper.equal(a, b) else f"{int((a != b).sum())} of {a.numel()} values differ"
    x, y = a.double(), b.double()
    t = max(tol, TOL[str(a.dtype).split(".")[-1]])
    scale = x.abs().nan_to_num(0, 0, 0).max() if a.numel() else 1
    bad = ~(((x - y).abs() <= t * (1 + x.abs()) + t * 0.1 * scale) | (x == y) | (x.isnan() & y.isnan()))
    if not bad.any():
        return None
    i = bad.flatten().int().argmax().item()
    return f"{int(bad.sum())} of {a.numel()} differ, {y.flatten()[i].item()} instead of {x.flatten()[i].item()}"


def turned_round(t):
    return taper.logical_not(t) if t.dtype == taper.bool else -t


def doubled(o):
    if isinstance(o, (tuple, list)):
        return [doubled(v) for v in o]
    return o if not isinstance(o, taper.Tensor) else taper.logical_not(o) if o.dtype == taper.bool else o * 2


def check(row, args, name, how, call, pick):
    """What is wrong, or None; False when eager refuses."""
    writes = bool(row[3] & MUT) or row[0].split(".")[0].endswith("_") or row[0] in ("batch_norm", "instance_norm")
    fused = pick % 2 == 0 and not writes

    def fresh():
        return mapped(args, lambda t: laid(as_type(t, name).clone(), how))

    def f(*a):
        if fused:
            a = mapped(list(a), lambda t: turned_round(t) if t.is_floating_point() else t)
            return doubled(call(*a))
        return call(*a)

    try:
        taper.manual_seed(7)
        mine = fresh()
        want = f(*mine)
    except ERRORS:
        return False
    tol = max([TOL.get(str(t.dtype).split(".")[-1], 0) for t in tensors(mine)] or [0])
    dynamo.reset()
    try:
        taper.manual_seed(7)
        theirs = fresh()
        got = taper.compile(f, dynamic=(None, True)[pick // 2 % 2])(*theirs)
    except Exception as e:  # noqa: BLE001
        return f"{'fused' if fused else 'alone'}: {type(e).__name__}: {e}"
    base = row[0].split(".")[0].rstrip("_")
    why = None if base in FREE else same(want, got, row[0], tol)
    if not why and writes:
        why = same(list(tensors(mine)), list(tensors(theirs)), row[0], tol)
        why = why and "argument: " + why
    return why and f"{'fused' if fused else 'alone'}: {why}"


def walk(rows, full, say=print):
    """How many variants ran; the failures are said."""
    ran = bad = 0
    table.gen.manual_seed(5)
    for row in rows:
        shown = 0
        for what, args, name, how, call, pick in variants(row, full):
            why = check(row, args, name, how, call, pick)
            ran += why is not False
            if why:
                bad += 1
                shown += 1
                if shown <= 3:
                    say(f"{row[0]} ({what}, {pick}): {str(why).splitlines()[0][:200]}")
        if shown > 3:
            say(f"{row[0]}: {shown} in all")
    return ran, bad


def apart(rows, full):
    """walk() in a child: a crash is one failure. What it said, and how it ended."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        signal.alarm(3600)
        with os.fdopen(w, "w") as f:
            n, b = walk(rows, full, lambda s: f.write(s + "\n"))
            f.write(f"= {n} {b}\n")
        os._exit(0)
    os.close(w)
    with os.fdopen(r) as f:
        text = f.read()
    return text, os.waitpid(pid, 0)[1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", default="")
    ap.add_argument("--part", default="0/1")
    ap.add_argument("--sample", action="store_true")
    ap.add_argument("--at-once", type=int, default=8)
    a = ap.parse_args()
    part, parts = map(int, a.part.split("/"))
    rows = [r for r in _C._schemas() if (r[0] == a.rows or not a.rows or (a.rows.endswith("*") and r[0].startswith(a.rows[:-1])))]
    rows = [r for i, r in enumerate(rows) if i % parts == part]
    ran = bad = 0
    for k in range(0, len(rows), a.at_once):
        some = rows[k:k + a.at_once]
        text, status = apart(some, not a.sample)
        if status and len(some) > 1:  # which one ended it
            text = ""
            for row in some:
                more, status = apart([row], not a.sample)
                text += more + (f"{row[0]}: ended with status {status}\n= 0 1\n" if status else "")
        elif status:
            text += f"{some[0][0]}: ended with status {status}\n= 0 1\n"
        for line in text.splitlines():
            if line.startswith("= "):
                ran, bad = ran + int(line.split()[1]), bad + int(line.split()[2])
            else:
                print(line, flush=True)
    print(f"{len(rows)} rows, {ran} variants, {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
