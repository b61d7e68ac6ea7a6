"""Shape rules against PyTorch: for every row PyTorch has too, and many layouts, both give results of the same dtype,
sizes and strides, from arguments drawn from the schema. (tests/c/test_op_table.c holds fake results equal to eager
ones; where PyTorch's meta results and its kernels differ, as for any(dim=[]) of a permuted tensor, its kernels count.) Calls
that one of the two refuses are counted and listed."""
import json
import mmap
import os
import random
import re
import unittest

import taper

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not importable")

LAYOUTS = [((2, 3), (3, 1), 0), ((2, 3), (1, 2), 0), ((2, 3), (12, 2), 1), ((2, 3), (0, 1), 0),
           ((2, 3, 4, 5), (60, 1, 15, 3), 0), ((0, 3), (3, 1), 0), ((), (), 0), ((6,), (1,), 0),
           ((2, 3, 4), (12, 4, 1), 0), ((2, 3, 4), (1, 2, 6), 3), ((3, 3), (3, 1), 0)]
DTYPES = ["float32", "float32", "float32", "float64", "int64", "int32", "bool", "bfloat16"]
TRIALS = 6
# Rows that differ in some call, each with the reason; one that no longer differs is an error too.
KNOWN = {"conj_physical.default": "a real tensor is copied; PyTorch returns the tensor itself",
         "_fft_r2c.default": "PyTorch's size for half of a transform on tensors without data is that of the whole"}
# Results whose memory order PyTorch itself leaves to a library, or that are not compared for other good reasons.
SKIP = re.compile(r"rand|bernoulli|multinomial|normal|dropout|empty|uniform|exponential|cauchy|geometric|linalg|lu_|qr|svd|"
                  r"cholesky|triangular|item|nonzero|unique|set_|resize|_local_scalar|record_stream|pin_memory|_foreach|"
                  r"from_file|rrelu|native_|conv|cudnn|mkldnn|histc")


def schemas():
    out = []
    for text in taper._C._schemas():
        text = text if isinstance(text, str) else text[1]
        m = re.match(r"(\w+)(?:\.(\w+))?\((.*)\) -> (.*)$", text)
        if m:
            out.append((m[1], m[2] or "default", m[3], m[4]))
    return out


def params(text):
    kw, out = False, []
    for p in re.split(r", (?![^\[]*\])", text) if text else []:
        if p == "*":
            kw = True
            continue
        m = re.match(r"(\w+)(?:\([^)]*\))?(\??)((?:\[\d*\])?)(\??) (\w+)(=.*)?$", p)
        if not m:
            return None
        out.append((m[1] + m[3], bool(m[2] or m[4]), m[5], m[6] is not None, kw))
    return out


def pair(rng, layout, dtype):
    """The same tensor in both, with the same strides and offset."""
    size, stride, off = layout
    n = off + 1 + sum((s - 1) * t for s, t in zip(size, stride)) if all(size) else off + 1
    tt = torch.ones(n, dtype=getattr(torch, dtype))
    pt = taper.ones([n], dtype=getattr(taper, dtype))
    return (taper.ops.aten.as_strided.default(pt, list(size), list(stride), off),
            torch.as_strided(tt, size, stride, off))


def other(rng, layout):
    size, stride, off = layout
    k = rng.randrange(5)
    if k == 0:
        return ((), (), 0)
    if k == 1 and len(size) > 1:
        return (size[:-2] + (size[-1], size[-2]), stride[:-2] + (stride[-1], stride[-2]), off)
    if k == 2 and size:
        return ((size[-1],), (1,), 0)
    return layout


def arguments(rng, ps, layout):
    a, b, ka, kb, seen = [], [], {}, {}, 0
    dt = rng.choice(DTYPES)
    for kind, opt, name, dflt, kw in ps:
        if dflt and rng.random() < 0.7:
            continue
        if opt and rng.random() < 0.5:
            va = vb = None
        elif kind == "Tensor":
            va, vb = pair(rng, other(rng, layout) if seen else layout, dt if rng.random() < 0.8 else rng.choice(DTYPES))
            seen += 1
        elif kind == "Tensor[]":
            ts = [pair(rng, layout, dt) for _ in range(rng.randrange(1, 4))]
            va, vb = [t[0] for t in ts], [t[1] for t in ts]
            seen += 1
        elif kind in ("int", "SymInt"):
            va = vb = rng.choice([0, 1, 2] if name == "reduction" else [0, 1, -1, 2, 3])
        elif kind == "Scalar":
            va = vb = rng.choice([0, 1, 2, 0.5, 1.5])
        elif kind == "float":
            va = vb = rng.choice([0.5, 1.0, 2.0])
        elif kind == "bool":
            va = vb = rng.random() < 0.5
        elif re.match(r"(int|SymInt)\[", kind):
            va = vb = [rng.choice([0, 1, 2, 3, -1]) for _ in range(rng.randrange(0, len(layout[0]) + 2))]
        elif kind == "ScalarType":
            d = rng.choice(DTYPES)
            va, vb = getattr(taper, d), getattr(torch, d)
        elif opt or dflt:
            continue
        else:
            return None
        if kw or dflt:
            ka[name], kb[name] = va, vb
        else:
            a.append(va)
            b.append(vb)
    return a, b, ka, kb


def flat(r):
    return [x for e in r for x in flat(e)] if isinstance(r, (list, tuple)) else [r]


def facts(x, lib):
    if not isinstance(x, lib.Tensor):
        return type(x).__name__
    size = tuple(x.shape)
    empty = 0 in size
    return (str(x.dtype).split(".")[-1], size,
            tuple(0 if empty or s == 1 else t for s, t in zip(size, x.stride())))


def attempt(now, lib, fn, args, kw, call):
    now.seek(0)
    now.write(f"{lib.__name__} in {call}".encode()[:4000] + b"\0")
    try:
        return [facts(x, lib) for x in flat(fn(*args, **kw))]
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as e:
        return e


def one_row(now, name, over, ps, theirs, ours):
    rng = random.Random(name + over)
    same, wrong, refused = 0, [], []
    for layout in LAYOUTS * 3:
        if same > 40 and layout == LAYOUTS[0]:  # rows that refuse most of what is drawn get three rounds
            break
        for _ in range(TRIALS):
            args = arguments(rng, ps, layout)
            if args is None:
                continue
            a, b, ka, kb = args
            call = f"aten.{name}.{over}{[facts(x, taper) if isinstance(x, taper.Tensor) else x for x in a]}{ka}"
            want = attempt(now, torch, theirs, b, kb, call)
            got = attempt(now, taper, ours, a, ka, call)
            if isinstance(want, Exception) or isinstance(got, Exception):
                if isinstance(want, Exception) != isinstance(got, Exception):
                    refused.append(f"{call}: {got!r:.150} but {want!r:.150}")
            elif got == want:
                same += 1
            else:
                wrong.append(f"{call}: {got}, PyTorch {want}")
    return same, wrong[:1] + [""] * (len(wrong) - 1), refused[:1] + [""] * (len(refused) - 1)


def in_child(fn, *args):
    """fn's result from a forked child, or the text it left in `now` when it crashed."""
    now = mmap.mmap(-1, 4096)
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(r)
        with os.fdopen(w, "w") as f:
            json.dump(fn(now, *args), f)
        os._exit(0)
    os.close(w)
    with os.fdopen(r) as f:
        out = f.read()
    status = os.waitpid(pid, 0)[1]
    return (json.loads(out), None) if out and not status else (None, now[:4000].split(b"\0")[0].decode(errors="replace"))


def walk():
    same, wrong, refused, crashed, rows = 0, {}, {}, {}, 0
    for name, over, text, ret in schemas():
        if SKIP.search(name) or not hasattr(torch.ops.aten, name) or "Generator" in text and "=None" not in text:
            continue
        packet = getattr(torch.ops.aten, name)
        ps = params(text)
        if over not in packet.overloads() or ps is None:
            continue
        rows += 1
        res, crash = in_child(one_row, name, over, ps, getattr(packet, over), getattr(getattr(taper.ops.aten, name), over))
        if crash:
            crashed[f"{name}.{over}"] = crash
            continue
        same += res[0]
        if res[1]:
            wrong[f"{name}.{over}"] = res[1]
        if res[2]:
            refused[f"{name}.{over}"] = res[2]
    return rows, same, wrong, refused, crashed


def test_types_equal_pytorch():
    rows, same, wrong, refused, crashed = walk()
    print(f"{rows} rows, {same} equal results; {len(wrong)} rows with another type, {len(refused)} rows where one refuses")
    for k, v in crashed.items():
        print("crash:", v)
    for k, v in list(wrong.items()):
        print("other type:", len(v), v[0])
    for k, v in list(refused.items()):
        print("one refuses:", len(v), v[0])
    assert rows > 100 and same > 5000, (rows, same)
    ours = {k: v for k, v in crashed.items() if v.startswith("taper")}
    assert not ours, ours
    assert set(wrong) == set(KNOWN), {k: wrong.get(k) for k in set(wrong) ^ set(KNOWN)}
