"""Random programs over the operators: compiled must equal eager, results, gradients and what happened to the arguments.

  python3 tests/py/graph_fuzz.py [--count N] [--seed S] [--backend NAME] [--engines avx512,avx2,interp,c,aot_eager]

A program is made as Python text, so that a failure prints something that runs. Values are kept small. Steps that turn a
rounding error into a different answer (comparisons, floor, argmax) only take values that every backend computes
exactly: multiples of 1/8 that came through exact steps. Beside the steps written here, rows of the op table are called
as the table describes them; such a step is tried once, and left out when eager refuses it or it leaves the range.

An engine is how the kernels run: machine code for one instruction set, the interpreter of the vector language, C, or no
kernels at all. Each runs in a process of its own and all are held to eager."""
import argparse
import os
import random
import re
import signal
import subprocess
import sys

import taper
import taper._dynamo as dynamo
from taper import _C

_C._counted_draws(True)  # eager operators draw what kernels draw

FLOATS = ("float32", "float32", "float32", "float64", "bfloat16", "float16")
INTS = ("int64", "int32", "int16", "int8", "uint8", "bool")
TOL = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}
SMALL = (1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33)
LARGE = (1, 3, 16, 64, 65, 130, 257, 1025)  # every sixteenth program: what threads share and loops go round many times; two others begin with attention
MOST = 8000 if os.environ.get("TAPER_EMITTER") == "interpreter" else 200000  # elements of an argument
ENGINES = {  # environment, backend
    "avx512": ({"TAPER_EMITTER": "x64", "TAPER_ISA": "avx512"}, "inductor"),
    "avx2": ({"TAPER_EMITTER": "x64", "TAPER_ISA": "avx2"}, "inductor"),
    "interp": ({"TAPER_EMITTER": "interpreter"}, "inductor"),
    "c": ({"TAPER_EMITTER": "c"}, "inductor"),  # a C compiler for each graph: expect a twentieth of the others' pace
    "aot_eager": ({}, "aot_eager"),
}
PW, INP, VIEW, RAND, COMP, DYN, MUT, NODIFF = 1 << 2, 1 << 0, 1 << 3, 1 << 4, 1 << 7, 1 << 8, 1 << 9, 1 << 10
# Steps, poles and ties: a rounding error more or less is another answer.
JUMPS = {"floor", "ceil", "round", "trunc", "frac", "sign", "sgn", "heaviside", "fmod", "remainder", "floor_divide", "div", "nextafter",
         "mode", "std", "std_mean", "logit", "copysign", "frexp", "gcd", "lcm", "special_round", "fix", "float_power", "ldexp", "renorm", "histc", "bincount",
         "unique_dim", "unique_consecutive", "nonzero", "argwhere", "masked_select", "repeat_interleave", "item", "is_nonzero",
         "dist", "cdist", "pdist", "empty", "empty_like", "rand", "randn", "randint", "normal", "unique", "hypot_", "nanquantile", "quantile", "svd", "qr", "geqrf", "slogdet"}


def table_rows():
    """Rows of the table that take tensors, and perhaps a dimension, and nothing else: (name, tensors, takes a dimension)."""
    found = []
    for full, schema, _, flags in [r[:4] for r in _C._schemas()]:
        name = full.split(".")[0]
        if flags & (RAND | MUT) or name.startswith("_") or name.endswith(("_", "_copy")) or name in JUMPS or "linalg" in name or "empty" in name:
            continue
        text = re.sub(r"\([a-z][^)]*\)", "", schema[schema.index("(") + 1:schema.rindex(") ->")])
        needed = []
        for p in re.split(r",\s*(?![^\[]*\])", text):
            if p.strip() == "*":
                break
            if p.strip() and "=" not in p:
                needed.append(p.strip())
        kinds = [p.split()[0] for p in needed]
        if kinds and set(kinds) == {"Tensor"} and len(kinds) <= 3:
            found.append((full, len(kinds), False))
        elif kinds == ["Tensor", "int"] and needed[1] == "int dim":
            found.append((full, 1, True))
    return found


ROWS = table_rows()
SAMPLES = []


def literal(a):
    if isinstance(a, taper.Tensor):
        text = f"taper.tensor({a.detach().tolist()}, dtype={a.dtype})"
        return f"({text} + (@).to({a.dtype}))" if a.is_floating_point() else text
    if isinstance(a, (list, tuple)):
        return "[" + ", ".join(literal(x) for x in a) + "]"
    if isinstance(a, (bool, int, float, str, type(None))) and a == a and a not in (float("inf"), -float("inf")):
        return repr(a)
    raise ValueError


def samples_as_text():
    """(row, arguments) of every row that the other tests of the table have arguments for: those that take numbers, lists, names."""
    if SAMPLES:
        return SAMPLES
    import test_grad_table
    from test_out_of_memory import samples
    test_grad_table.gen.manual_seed(11)
    for row in _C._schemas():
        name = row[0].split(".")[0]
        if row[3] & (RAND | MUT | DYN) or name.endswith("_") or name in JUMPS or "linalg" in name or "empty" in name or name.startswith(FREE):
            continue
        for make, call in samples(row):
            try:
                args = list(make())
                text = ", ".join(literal(a) for a in args)
            except (ValueError, TypeError):
                continue
            if "@" in text and len(text) < 2000:
                SAMPLES.append((row[0], text))
    return SAMPLES


FREE = ("svd", "qr", "ctc_loss", "_unique", "geqrf", "lstsq", "topk", "median", "nanmedian", "kthvalue", "lu_", "_lu", "cholesky", "ormqr", "orgqr", "_linalg", "symeig", "_ctc",
        "grid_sampler", "adaptive_max_pool", "fractional", "_fractional", "max_unpool", "polygamma", "igamma", "special_zeta", "pinverse", "logdet", "slogdet", "det")
WIDE = True  # False: only the steps whose graphs are held to read back from their text


class Value:
    def __init__(self, name, shape, dtype, exact, view=False):
        self.name, self.shape, self.dtype, self.exact, self.view = name, tuple(shape), dtype, exact, view

    @property
    def floating(self):
        return "float" in self.dtype


class Program:
    def __init__(self, seed, ops):
        self.r = random.Random(seed)
        self.large = seed % 16 == 15
        self.values, self.lines, self.inputs, self.n = [], [], [], 0
        self.grad = self.r.random() < 0.4
        self.scope, self.ran = {"taper": taper, "call": _C._call}, 0  # what trying a step needs
        for _ in range(self.r.randint(1, 3)):
            self.add_input()
        if seed % 16 in (5, 7):
            self.attention()
        while len(self.lines) < ops:
            self.step()
        outs = self.r.sample(self.values, min(len(self.values), self.r.randint(1, 3)))
        if self.values[-1] not in outs:
            outs.append(self.values[-1])
        self.outs = outs

    # ---- pieces ----
    def shape(self):
        nd = self.r.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
        if self.large:
            shape, n = [], 1
            for _ in range(nd):
                shape.append(self.r.choice([k for k in LARGE if n * k <= MOST]))
                n *= shape[-1]
            return shape
        shape = [self.r.choice(SMALL if nd < 3 else SMALL[:5]) for _ in range(nd)]
        if nd and self.r.random() < 0.04:
            shape[self.r.randrange(nd)] = 0
        if nd == 1 and self.r.random() < 0.1:
            shape[0] = self.r.choice((1000, 4099))
        return shape

    def add_input(self, shape=None, dtype=None):
        shape = self.shape() if shape is None else list(shape)
        dtype = dtype or (self.r.choice(FLOATS) if self.r.random() < 0.75 else self.r.choice(INTS))
        layout = self.r.choice(("plain", "plain", "transposed", "sliced", "expanded", "offset")) if shape and 0 not in shape else "plain"
        if len(shape) == 4 and 0 not in shape and self.r.random() < 0.3:
            layout = "last"
        name = f"x{len(self.inputs)}"
        self.inputs.append((name, shape, dtype, layout))
        v = Value(name, shape, dtype, True)
        self.values.append(v)
        return v

    def pick(self, ok=lambda v: True):
        found = [v for v in self.values if ok(v)]
        return self.r.choice(found[-6:] if self.r.random() < 0.7 else found) if found else None

    def emit(self, text, shape, dtype, exact=False, view=False):
        v = Value(f"v{self.n}", shape, dtype, exact and dtype not in ("float16", "bfloat16"), view)
        self.n += 1
        self.lines.append(f"{v.name} = {text}")
        self.values.append(v)
        return v

    def bounded(self, v):  # keeps chains from running away
        return f"taper.tanh({v.name})" if not v.exact else v.name

    # ---- steps ----
    def step(self):
        self.r.choice(STEPS if not WIDE or self.r.random() < 0.6 else MORE)(self)

    def attention(self):
        """Two products with a softmax between them, large enough to run block by block; mostly nobody else reads what lies between."""
        b, d, dtype = self.r.choice((1, 2, 3)), self.r.choice((4, 8, 16)), self.r.choice(("float32", "float32", "float64"))
        n = self.r.choice((130, 160, 201))
        m = n if self.r.random() < 0.6 else self.r.choice((60, 128, 150))
        q, k, v = (self.add_input([b, rows, d], dtype).name for rows in (m, n, n))
        at = f"{m}, {n}, dtype=taper.bool"
        text = self.r.choice(("{s}", "{s}", "taper.tanh({s})", "{s} + 0.5")).format(s=f"({q} @ {k}.transpose(-1, -2)) * {self.r.choice((0.25, -0.125))}")
        text = self.r.choice(("{s}", "taper.where(taper.tril(taper.ones({at})), {s}, float('-inf'))", "({s}).masked_fill(taper.triu(taper.ones({at}), 1), float('-inf'))",
                              "({s}).masked_fill(taper.arange({n}) % 3 == 1, float('-inf'))", "taper.where(taper.tril(taper.ones({at}), 3), {s}, -4.0)")).format(s=text, at=at, n=n)
        if self.r.random() < 0.25:
            text = self.emit(text, (b, m, n), dtype).name
        text = f"taper.nn.functional.softmax({text}, -1)"
        if self.r.random() < 0.25:
            text = self.emit(text, (b, m, n), dtype).name
        self.emit(f"{text} @ {v}", (b, m, d), dtype)

    def unary(self):
        v = self.pick(lambda v: v.floating)
        if not v:
            return self.add_input(dtype="float32")
        f = self.r.choice(("sin({})", "cos({})", "exp({}.clamp(-4, 2))", "tanh({})", "sigmoid({})", "erf({})", "log1p({}.abs())", "sqrt({}.abs() + 0.5)",
                           "rsqrt({}.abs() + 0.5)", "reciprocal({}.abs() + 1)", "nn.functional.gelu({})", "nn.functional.silu({})",
                           "nn.functional.softplus({})", "nn.functional.elu({})", "expm1({}.clamp(-2, 2))", "atan({})", "log({}.abs() + 1)",
                           "nn.functional.gelu({}, approximate='tanh')", "square({}.clamp(-3, 3))", "pow({}.abs() + 0.5, 1.5)"))
        self.emit("taper." + f.format(v.name), v.shape, v.dtype)

    def exact_unary(self):
        v = self.pick(lambda v: v.dtype != "bool")
        if not v:
            return
        f = self.r.choice(("-{}", "{}.abs()", "{}.clamp(0, 2)", "{}.clone()", "{} + 1", "{} * 2") + (("taper.relu({})", "taper.nn.functional.hardtanh({})", "{} - 0.5") if v.floating else ()))
        if v.floating and v.exact and self.r.random() < 0.3:
            f = self.r.choice(("taper.floor({})", "taper.round({})", "taper.trunc({})", "taper.ceil({})", "taper.sign({})"))
        self.emit(f.format(v.name), v.shape, v.dtype, v.exact)

    def binary(self):
        a = self.pick(lambda v: v.dtype != "bool")
        if not a:
            return
        b = self.pick(lambda v: v.dtype == a.dtype and broadcast(a.shape, v.shape) is not None) or a
        exact = a.exact and b.exact
        f = self.r.choice(("{} + {}", "{} - {}", "{} * {}", "taper.maximum({}, {})", "taper.minimum({}, {})"))
        if "*" in f and not (exact and not a.floating):
            f, exact = "{} * taper.sin({})" if a.floating else f, exact and not a.floating
        if a.floating and self.r.random() < 0.2:
            f, exact = self.r.choice(("{} / ({}.abs() + 1)", "taper.atan2({}, {}.abs() + 1)", "taper.hypot({}, {})")), False
        self.emit(f.format(a.name, b.name), broadcast(a.shape, b.shape), a.dtype, exact)

    def integer(self):
        a = self.pick(lambda v: v.dtype in ("int64", "int32", "uint8"))
        if not a:
            return
        f = self.r.choice(("{} // 3", "{} % 5", "{} & 6", "{} | 1", "{} ^ 3", "{} << 1", "{} >> 1", "~{}"))
        self.emit(f.format(a.name), a.shape, a.dtype, True)

    def compare(self):
        a = self.pick(lambda v: v.exact)
        if not a:
            return
        b = self.pick(lambda v: v.exact and v.dtype == a.dtype and broadcast(a.shape, v.shape) is not None) or a
        f = self.r.choice(("{} < {}", "{} >= {}", "{} == {}", "{} != {}", "taper.logical_and({}, {})", "taper.logical_xor({}, {})"))
        self.emit(f.format(a.name, b.name), broadcast(a.shape, b.shape), "bool", True)

    def where(self):
        c = self.pick(lambda v: v.dtype == "bool")
        a = self.pick(lambda v: v.dtype != "bool" and (not c or broadcast(c.shape, v.shape) is not None))
        if not c or not a:
            return
        s = broadcast(c.shape, a.shape)
        f = self.r.choice((f"taper.where({c.name}, {a.name}, 0)", f"taper.where({c.name}, {a.name}, -{a.name})"))
        if broadcast(a.shape, c.shape) == a.shape and self.r.random() < 0.4:
            f, s = f"{a.name}.masked_fill({c.name}, 1)", a.shape
        if a.dtype == "uint8":
            f = f"taper.where({c.name}, {a.name}, 1)"
            s = broadcast(c.shape, a.shape)
        self.emit(f, s, a.dtype, a.exact)

    def cast(self):
        v = self.pick(lambda v: True)
        to = self.r.choice(("float32", "float64", "bfloat16", "float16") + (INTS if v.exact else ()))
        low = to in ("float16", "bfloat16")
        src = v.name if not (v.exact and v.floating and to == "uint8") else f"{v.name}.abs()"
        self.emit(f"{src}.to(taper.{to})", v.shape, to, v.exact and not low)

    def reduce(self):
        v = self.pick(lambda v: v.shape and 0 not in v.shape and v.dtype != "bool")
        if not v:
            return
        nd = len(v.shape)
        dims = sorted(self.r.sample(range(nd), self.r.randint(1, nd)))
        keep = self.r.random() < 0.4
        out = [1 if d in dims else n for d, n in enumerate(v.shape) if keep or d not in dims]
        full = len(dims) == nd and not keep
        names = ["sum"] + (["amax", "amin"] if v.exact else []) + (["mean", "logsumexp", "norm", "var", "softmax", "log_softmax", "cumsum", "std"] if v.floating else [])
        if v.exact:
            names += ["argmax", "argmin", "any", "all", "count_nonzero"]
        f = self.r.choice(names)
        one = self.r.choice(range(nd))
        rest = [1 if d == one else n for d, n in enumerate(v.shape) if keep or d != one]
        if f in ("argmax", "argmin"):
            return self.emit(f"taper.{f}({v.name}, {one}, {keep})", rest, "int64", True)
        if f in ("any", "all"):
            return self.emit(f"taper.{f}({v.name} > 0, {one}, {keep})", rest, "bool", True)
        if f == "count_nonzero":
            return self.emit(f"taper.count_nonzero({v.name}, {one})", [n for d, n in enumerate(v.shape) if d != one], "int64", True)
        if f in ("softmax", "log_softmax"):
            return self.emit(f"taper.{f}({v.name}, {one})", v.shape, v.dtype)
        if f == "cumsum":
            return self.emit(f"taper.cumsum({self.bounded(v)} * 0.1, {one})", v.shape, v.dtype)
        if f in ("var", "std"):
            n = 1
            for d in dims:
                n *= v.shape[d]
            if n < 2:
                return
            return self.emit(f"taper.{f}({v.name}.clamp(-3, 3) + 0.01, dim={dims}, unbiased={self.r.random() < 0.5}, keepdim={keep})" if f == "var"
                             else f"taper.sqrt(taper.var({v.name}.clamp(-3, 3), dim={dims}, keepdim={keep}) + 0.5)", out, v.dtype)
        if f == "norm":
            return self.emit(f"taper.sqrt(({v.name}.clamp(-3, 3) * {v.name}.clamp(-3, 3)).mean({dims}, {keep}) + 0.1)", out, v.dtype)
        dtype = v.dtype if v.floating or f in ("amax", "amin") else "int64"
        exact = f in ("amax", "amin") and v.exact or not v.floating
        src = v.name if f in ("amax", "amin") or not v.floating else f"{v.name}.clamp(-4, 4)"
        if f == "sum" and v.floating and v.dtype in ("float16", "bfloat16"):
            f = "mean"
        if f == "sum" and v.floating:
            text = f"({src} * 0.125).sum({dims}, {keep})"
        else:
            text = f"taper.{f}({src}, {dims}, {keep})"
        if full and f in ("sum",) and self.r.random() < 0.5:
            text = f"{src}.sum()" if not v.floating else f"({src} * 0.125).sum()"
        self.emit(text, out, dtype, exact)

    def view(self):
        v = self.pick(lambda v: v.shape)
        if not v:
            return
        nd, s, r = len(v.shape), list(v.shape), self.r
        d = r.randrange(nd)
        kind = r.choice(("permute", "reshape", "unsqueeze", "slice", "select", "flip", "roll", "flat", "expand", "step", "transpose", "narrow", "diagonal", "unbind"))
        n = v.name
        if kind == "permute":
            p = r.sample(range(nd), nd)
            return self.emit(f"{n}.permute({p})", [s[i] for i in p], v.dtype, v.exact, True)
        if kind == "transpose" and nd > 1:
            s[0], s[-1] = s[-1], s[0]
            return self.emit(f"{n}.transpose(0, -1)", s, v.dtype, v.exact, True)
        if kind == "reshape" and nd > 1 and 0 not in s:
            k = r.randrange(nd - 1)
            s[k:k + 2] = [s[k] * s[k + 1]]
            return self.emit(f"{n}.reshape({s})", s, v.dtype, v.exact)
        if kind == "flat":
            total = 1
            for q in s:
                total *= q
            return self.emit(f"{n}.flatten()", [total], v.dtype, v.exact)
        if kind == "unsqueeze" and nd < 5:
            s.insert(d, 1)
            return self.emit(f"{n}.unsqueeze({d})", s, v.dtype, v.exact, True)
        if kind in ("slice", "narrow", "step") and s[d] > 1:
            a = r.randrange(s[d])
            b = r.randint(a, s[d])
            st = r.choice((1, 2, 3)) if kind == "step" else 1
            s[d] = max(0, -(-(b - a) // st))
            return self.emit(f"{n}[{':, ' * d}{a}:{b}:{st}]", s, v.dtype, v.exact, True)
        if kind == "select" and s[d] > 0:
            k = r.randrange(s[d])
            del s[d]
            return self.emit(f"{n}.select({d}, {k})", s, v.dtype, v.exact, True)
        if kind == "flip":
            return self.emit(f"taper.flip({n}, [{d}])", s, v.dtype, v.exact)
        if kind == "roll":
            return self.emit(f"taper.roll({n}, {r.randint(-3, 3)}, {d})", s, v.dtype, v.exact)
        if kind == "expand" and nd < 4:
            k = r.choice((2, 3))
            return self.emit(f"{n}.expand({[k] + s})", [k] + s, v.dtype, v.exact, True)
        if kind == "diagonal" and nd == 2:
            return self.emit(f"taper.diagonal({n})", [min(s)], v.dtype, v.exact, True)
        if kind == "unbind" and s[d] > 1:
            rest = s[:d] + s[d + 1:]
            return self.emit(f"{n}.unbind({d})[-1]", rest, v.dtype, v.exact, True)

    def join(self):
        v = self.pick(lambda v: v.shape)
        w = v and self.pick(lambda w: w.shape == v.shape and w.dtype == v.dtype)
        if not w:
            return
        d = self.r.randrange(len(v.shape))
        s = list(v.shape)
        kind = self.r.choice(("cat", "stack", "pad", "repeat", "tril", "pool", "drop"))
        exact = v.exact and w.exact
        if kind == "cat":
            s[d] *= 2
            return self.emit(f"taper.cat([{v.name}, {w.name}], {d})", s, v.dtype, exact)
        if kind == "stack" and len(s) < 4:
            s.insert(d, 2)
            return self.emit(f"taper.stack([{v.name}, {w.name}], {d})", s, v.dtype, exact)
        if kind == "pad" and v.dtype != "bool":
            a, b = self.r.randint(0, 2), self.r.randint(0, 3)
            s[-1] += a + b
            return self.emit(f"taper.nn.functional.pad({v.name}, [{a}, {b}])", s, v.dtype, v.exact)
        if kind == "repeat" and len(s) < 3:
            return self.emit(f"{v.name}.repeat({[2] * len(s)})", [2 * q for q in s], v.dtype, v.exact)
        if kind == "pool" and 3 <= len(s) <= 4 and v.floating and 0 not in s[-3:]:
            k, step = self.r.choice(((2, 2), (2, 1), (3, 2), (1, 1)))
            if min(s[-2:]) >= k:
                s[-2:] = [(q - k) // step + 1 for q in s[-2:]]
                f = self.r.choice(("max_pool2d", "avg_pool2d"))
                return self.emit(f"taper.nn.functional.{f}({v.name}, {k}, {step})", s, v.dtype, v.exact and f == "max_pool2d")
        if kind == "drop" and v.floating:
            return self.emit(f"taper.nn.functional.dropout({v.name}, 0.25)", s, v.dtype)
        if kind == "tril" and len(s) >= 2:
            return self.emit(f"taper.{self.r.choice(('tril', 'triu'))}({v.name})", s, v.dtype, v.exact)

    def index(self):
        v = self.pick(lambda v: v.shape and 0 not in v.shape)
        if not v:
            return
        d = self.r.randrange(len(v.shape))
        n = v.shape[d]
        k = self.r.choice((1, 3, 8))
        i = f"(taper.arange({k}) * {self.r.randint(1, 5)} % {n})"
        s = list(v.shape)
        kind = self.r.choice(("select", "getitem", "gather", "gather", "negative", "apart", "around", "add", "put", "scatter", "embedding"))
        if kind == "gather" and self.r.random() < 0.7:  # an index of its own for every element, or for every line
            numel = 1
            for q in s[:d] + s[d + 1:]:
                numel *= q
            s[d] = k
            line = self.r.random() < 0.3
            j = f"(taper.arange({k if line else numel * k}) * {self.r.randint(1, 5)} % {n})"
            j = f"{j}.view({[k if q == d else 1 for q in range(len(s))]}).expand({s})" if line else f"{j}.view({s})"
            return self.emit(f"taper.gather({v.name}, {d}, {j}{self.r.choice(('', '.to(taper.int32)'))})", s, v.dtype, v.exact)
        if kind == "negative":
            s[d] = k
            return self.emit(f"{v.name}[{':, ' * d}{i} - {n}]", s, v.dtype, v.exact)
        if kind == "apart" and len(s) == 3:
            return self.emit(f"{v.name}[taper.arange({k}) % {s[0]}, :, (taper.arange({k}) % {s[2]})]", [k, s[1]], v.dtype, v.exact)
        if kind == "around" and len(s) == 2:
            return self.emit(f"{v.name}[(taper.arange({k}) % {s[0]})[:, None], (taper.arange({2 * k}) % {s[1]}).view(2, 1, {k}).to(taper.int32)]",
                             [2, k, k], v.dtype, v.exact)
        if kind == "select":
            s[d] = k
            return self.emit(f"taper.index_select({v.name}, {d}, {i})", s, v.dtype, v.exact)
        if kind == "getitem":
            s[d] = k
            return self.emit(f"{v.name}[{':, ' * d}{i}]", s, v.dtype, v.exact)
        if kind == "gather":
            j = f"({v.name}.new_zeros({s}).to(taper.int64) + {self.r.randrange(n)})"
            return self.emit(f"taper.gather({v.name}, {d}, {j})", s, v.dtype, v.exact)
        if kind == "embedding" and len(s) == 2 and v.floating:
            return self.emit(f"taper.nn.functional.embedding(taper.arange({k}) % {s[0]}, {v.name})", [k, s[1]], v.dtype, v.exact)
        if kind == "scatter" and v.dtype != "bool":
            j = f"({v.name}.new_zeros({s}).to(taper.int64) + {self.r.randrange(n)})"
            return self.emit(f"taper.scatter({v.name}, {d}, {j}, 1)", s, v.dtype, v.exact)
        if kind == "add" and v.floating and d == 0:
            t = list(s)
            t[0] = k
            return self.emit(f"{v.name}.index_add(0, {i}, taper.ones({t}, dtype=taper.{v.dtype}) * 0.5)", s, v.dtype)
        if kind == "put" and d == 0:
            return self.emit(f"{v.name}.index_put([{i}], taper.ones([], dtype=taper.{v.dtype}))", s, v.dtype, v.exact)

    def product(self):
        v = self.pick(lambda v: v.dtype in ("float32", "float64") and len(v.shape) in (2, 3) and 0 not in v.shape)
        if not v:
            return
        k, m = v.shape[-1], self.r.choice((1, 3, 8, 17))
        a = self.bounded(v)
        if self.r.random() < 0.5 or len(v.shape) == 3:
            w = self.add_input([m, k], v.dtype)
            bias = f", {self.add_input([m], v.dtype).name}" if self.r.random() < 0.6 else ""
            return self.emit(f"taper.nn.functional.linear({a}, {w.name} * {1 / max(1, k):.4f}{bias})", list(v.shape[:-1]) + [m], v.dtype)
        w = self.add_input([k, m], v.dtype)
        self.emit(f"{a} @ ({w.name} * {1 / max(1, k):.4f})", [v.shape[0], m], v.dtype)

    def conv(self):
        v = self.pick(lambda v: v.dtype in ("float32", "float64") and len(v.shape) == 4 and min(v.shape) > 0)
        if not v:
            return
        c, m, k = v.shape[1], self.r.choice((1, 4, 6)), self.r.choice((1, 3))
        w = self.add_input([m, c, k, k], v.dtype)
        p, st = k // 2, self.r.choice((1, 2))
        s = [v.shape[0], m] + [(q + 2 * p - k) // st + 1 for q in v.shape[2:]]
        self.emit(f"taper.nn.functional.conv2d({self.bounded(v)}, {w.name} * 0.1, stride={st}, padding={p})", s, v.dtype)

    def norm(self):
        v = self.pick(lambda v: v.floating and len(v.shape) >= 2 and 0 not in v.shape and v.shape[-1] > 1)
        if not v:
            return
        src = self.bounded(v)
        if self.r.random() < 0.6:
            w = self.add_input([v.shape[-1]], v.dtype)
            return self.emit(f"taper.nn.functional.layer_norm({src}, [{v.shape[-1]}], {w.name}, None, 0.1)", v.shape, v.dtype)
        if len(v.shape) == 4:
            kind = self.r.choice(("avg_pool2d", "max_pool2d"))
            if min(v.shape[2:]) < 2:
                return
            s = [v.shape[0], v.shape[1], v.shape[2] // 2, v.shape[3] // 2]
            return self.emit(f"taper.nn.functional.{kind}({src}, 2)", s, v.dtype)
        self.emit(f"taper.nn.functional.rms_norm({src}, [{v.shape[-1]}], eps=0.1)", v.shape, v.dtype)

    def inplace(self):
        v = self.pick(lambda v: v.dtype != "bool" and not v.view and v.name.startswith("v"))
        if not v:
            return
        name = f"v{self.n}"
        self.n += 1
        self.lines.append(f"{name} = {v.name}.clone()")
        f = self.r.choice(("{}.add_(1)", "{}.mul_(2)", "{}.fill_(3)", "{}.zero_()") + (("{}[..., :1] = 1", "{}[0].add_(1)") if v.shape and 0 not in v.shape else ()))
        self.lines.append(f.format(name))
        self.values.append(Value(name, v.shape, v.dtype, v.exact))

    def row(self):
        """A row of the table, on values moved to where nearly every function is defined and smooth."""
        full, n, dim = self.r.choice(ROWS)
        name = full.split(".")[0]
        v = self.pick(lambda v: v.floating and 0 not in v.shape and len(v.shape) > (1 if dim else 0) - 1)
        if not v or (dim and not v.shape):
            return
        same = [self.pick(lambda w: w.dtype == v.dtype and broadcast(w.shape, v.shape) is not None and 0 not in w.shape) or v for _ in range(n - 1)]
        low = 1.25 if name in ("acosh", "arccosh") else 0.2
        args = [f"(taper.sigmoid({w.name}) * 0.6 + {low})" for w in [v] + same]
        if dim:
            args.append(str(self.r.randrange(len(v.shape))))
        self.tried(f'call("{full}", {", ".join(args)})')

    def sampled(self):
        """A row of the table with arguments of its own, of which floats also depend on a value of the program."""
        full, text = self.r.choice(samples_as_text())
        v = self.pick(lambda v: v.floating and 0 not in v.shape)
        if not v:
            return
        self.tried(f'call("{full}", {text.replace("@", f"taper.sigmoid({v.name}).mean() * 0.125")})')

    def tried(self, text, exact=False):
        """Emits the step when eager takes it; shape and type are those of its result."""
        try:
            for i in self.inputs:
                if i[0] not in self.scope:
                    self.scope[i[0]] = eval(maker(*i[1:]), self.scope)
            while self.ran < len(self.lines):
                exec(self.lines[self.ran], self.scope)
                self.ran += 1
            out = eval(text, self.scope)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            return
        if isinstance(out, (tuple, list)):
            k = self.r.randrange(len(out)) if out else 0
            if not out or not isinstance(out[k], taper.Tensor):
                return
            text, out = f"{text}[{k}]", out[k]
        if not isinstance(out, taper.Tensor) or out.numel() > 20000:
            return
        dtype = str(out.dtype).split(".")[-1]
        if out.is_floating_point():
            if not exact and (out.isnan().any() or (out.numel() and out.abs().max().item() > 50)):
                return
        elif not exact:
            return
        if dtype not in FLOATS + INTS:
            return
        self.emit(text, tuple(out.shape), dtype, exact)

    def drawn(self):
        v = self.pick(lambda v: v.floating)
        if not v:
            return
        f = self.r.choice(("{} * taper.rand_like({})", "{} + taper.randn({}.shape, dtype={}.dtype) * 0.1", "taper.nn.functional.dropout({}, 0.5)",
                           "{} * taper.bernoulli(taper.full_like({}, 0.5))", "taper.nn.functional.dropout({}, 0.2, training=False)",
                           "{} * (taper.randint(0, 3, {}.shape) - 1)", "{} + taper.randn_like({}) * 0.1", "{} * {}.clone().bernoulli_(0.3)",
                           "taper.normal({} * 0.1, 0.5)", "{} + {}.clone().exponential_().clamp(max=3)", "{} * {}.clone().geometric_(0.5).clamp(max=3)",
                           "{} + {}.clone().uniform_(-1, 1)", "{} - {}.clone().cauchy_().clamp(-2, 2)", "{} + {}.clone().random_(3)"))
        self.emit(f.format(*[v.name] * 3), v.shape, v.dtype)

    def sized(self):
        """Sizes as numbers."""
        v = self.pick(lambda v: v.shape and v.floating)
        if not v:
            return
        d = self.r.randrange(len(v.shape))
        f = self.r.choice(("{0} / ({0}.shape[{1}] + 1)", "{0} + {0}.numel() * 0.001", "{0} * taper.arange({0}.shape[-1], dtype={0}.dtype) * 0.05",
                           "{0} - {0}.new_full({0}.shape, {0}.shape[{1}]) * 0.1", "{0}.reshape({0}.shape[0], -1).sum(1) / {0}.numel()" if 0 not in v.shape else "{0} * 2",
                           "{0}.clamp(max={0}.shape[{1}])"))
        shape = v.shape if "reshape" not in f else v.shape[:1]
        self.emit(f.format(v.name, d), shape, v.dtype)

    def pieces(self):
        v = self.pick(lambda v: v.shape and 0 not in v.shape)
        if not v:
            return
        d = self.r.randrange(len(v.shape))
        f = self.r.choice(("taper.chunk({0}, 2, {1})", "taper.split({0}, 2, {1})", "taper.topk({0}, 1, {1})", "taper.aminmax({0}, dim={1})",
                           "taper.var_mean({0}.double(), {1})", "taper.unbind({0}, {1})", "taper.cummax({0}, {1})", "taper.sort({0}, {1}, stable=True)",
                           "taper.max({0}, {1})", "taper.tensor_split({0}, 3, {1})"))
        exact = v.exact and "var" not in f
        if v.dtype == "bool" and "topk" in f:
            return
        if self.grad and not v.exact and v.dtype in ("float16", "bfloat16"):  # ties, which a kernel that rounds less often does not see
            return
        self.tried(f.format(v.name, d), exact)

    def wide(self):
        """Pads, windows, neighbours, comparisons by table."""
        v = self.pick(lambda v: len(v.shape) >= 2 and 0 not in v.shape and v.floating)
        if not v:
            return
        f = self.r.choice(("taper.nn.functional.pad({0}, [1, 2, 0, 1], value=0.5)", "taper.nn.functional.pad({0}, [-1, 1])", "taper.nn.functional.pad({0}[None], [1, 1], mode='reflect')",
                           "taper.nn.functional.pad({0}[None], [2, 1], mode='replicate')", "taper.nn.functional.avg_pool1d({0}, 2)", "taper.nn.functional.max_pool1d({0}, 2)",
                           "{0}.unfold(-1, 2, 1)", "taper.diff({0})", "taper.cumprod(taper.tanh({0}), -1)", "taper.logcumsumexp({0}.clamp(-3, 3), 0)", "taper.logcumsumexp({0}.clamp(-3, 3), -1) * 0.5",
                           "taper.cummax({0}.sin(), -1)[0]", "taper.cummin({0} * 0.5, 0)[0]", "taper.cumsum(({0} > 0).long() + 1, -1) * 2",
                           "taper.nn.functional.interpolate({0}[None], scale_factor=2)", "taper.nn.functional.normalize({0}, dim=-1, eps=0.5)",
                           "taper.rot90({0})", "taper.trapezoid({0})", "taper.block_diag({0}[0], {0}[0])", "taper.take_along_dim({0}, taper.argsort({0}.detach() * 0, -1), -1)",
                           "taper.nn.functional.adaptive_avg_pool1d({0}, 2)", "taper.nn.functional.one_hot(taper.arange(3) % 2, 2) * {0}.mean()",
                           "taper.einsum('...ij->...ji', {0})", "taper.kron({0}[0], {0}[0]) * 0.1", "taper.nn.functional.group_norm({0}, 1, eps=0.1)",
                           "taper.nn.functional.softmin({0}, -1)", "taper.nn.functional.max_pool2d({0}[None].sin(), 3, 1, 1, ceil_mode=True)",
                           "taper.nn.functional.avg_pool2d({0}[None], 3, 2, 1, count_include_pad=False)", "taper.nn.functional.pad({0}[None].cos(), [1, 1, 1, 1], mode='reflect')",
                           "taper.nn.functional.pad({0}[None], [1, 2, 2, 1], mode='replicate') * 2", "taper.cat([{0} * k for k in range(8)], -1) * 0.1",
                           "{0}.index_add(0, taper.arange(3) % {0}.shape[0], {0}[:1].expand(3, *{0}.shape[1:]).sin())",
                           "{0}.index_copy(0, taper.tensor([0, 0]), {0}[:1].expand(2, *{0}.shape[1:]).cos())", "{0}.index_put((taper.arange(4) % {0}.shape[0],), {0}[:1].tanh(), accumulate=True)",
                           "taper.zeros_like({0}).scatter_add(0, taper.zeros({0}.shape, dtype=taper.int64), {0}.tanh() * 0.1)",
                           "{0}.scatter(0, taper.zeros({0}.shape, dtype=taper.int64)[:1], {0}[:1].sin())", "taper.nn.functional.glu({0}, -1)", "taper.movedim({0}, 0, -1).contiguous()"))
        self.tried(f.format(v.name))

    def through_view(self):
        """A write through a view of a value."""
        v = self.pick(lambda v: v.shape and 0 not in v.shape and v.dtype != "bool")
        if not v:
            return
        name = f"v{self.n}"
        self.n += 1
        d = self.r.randrange(len(v.shape))
        self.lines.append(f"{name} = {v.name}.clone()")
        f = self.r.choice(("{0}.select({1}, 0).mul_(2)", "{0}.narrow({1}, 0, 1).fill_(1)", "{0}.transpose(0, -1).add_(1)", "{0}.flatten()[:1].add_(0)",
                           "{0}.unsqueeze(0)[0].sub_(1)", "{0}.view(-1)[::2].mul_(2)", "{0}.index_fill_({1}, taper.tensor([0]), 2)", "{0}.masked_fill_({0} > 100, 0)" if v.exact else "{0}.neg_()",
                           "{0}.add_({0}.flip({1}))", "{0}.copy_({0}.roll(1, {1}))", "{0}.diagonal().zero_()" if len(v.shape) == 2 else "{0}.zero_()"))
        if "view(-1)" in f:
            self.lines[-1] = f"{name} = {v.name}.contiguous().clone()"
        self.lines.append(f.format(name, d))
        self.values.append(Value(name, v.shape, v.dtype, v.exact))

    def into_input(self):
        """A write into an argument: the caller sees it."""
        free = [i for i in self.inputs if i[3] not in ("expanded",) and i[2] != "bool"]
        if self.grad or not free:
            return
        name, shape, dtype, _ = self.r.choice(free)
        self.lines.append(self.r.choice(("{}.add_(1)", "{}.mul_(2)", "{}.clamp_(0, 2)", "{}.copy_({} * 2)")).format(name, name))

    # ---- text ----
    def source(self):
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def f({', '.join(i[0] for i in self.inputs)}):\n{body}    return {', '.join(v.name for v in self.outs)},\n"

    def program(self):
        text = "import taper\ncall = taper._C._call\ntaper._C._counted_draws(True)\n" + self.source() + "\ntaper.manual_seed(0)\nargs = [\n"
        for _, shape, dtype, layout in self.inputs:
            text += f"    {maker(shape, dtype, layout)},\n"
        return text + "]\nprint(f(*args), taper.compile(f)(*args))\n"


STEPS = [Program.unary] * 5 + [Program.exact_unary] * 3 + [Program.binary] * 5 + [Program.integer, Program.compare, Program.where, Program.where, Program.cast] + \
    [Program.reduce] * 5 + [Program.view] * 6 + [Program.join] * 2 + [Program.index] * 2 + [Program.product, Program.conv, Program.norm, Program.inplace]
MORE = [Program.row] * 5 + [Program.sampled] * 3 + [Program.drawn, Program.sized, Program.sized, Program.pieces, Program.pieces, Program.wide, Program.wide, Program.wide, Program.through_view, Program.into_input]


def broadcast(a, b):
    out = []
    for i in range(max(len(a), len(b))):
        x = a[-1 - i] if i < len(a) else 1
        y = b[-1 - i] if i < len(b) else 1
        if x != y and x != 1 and y != 1:
            return None
        out.append(y if x == 1 else x)
    return tuple(reversed(out))


def maker(shape, dtype, layout):
    """Text that makes an input: multiples of 1/8, or small whole numbers."""
    s = list(shape)
    if layout == "transposed":
        s = s[::-1]
    elif layout == "sliced":
        s[-1] = s[-1] * 2 + 1
    elif layout == "expanded":
        s[0] = 1
    x = f"taper.randint(-16, 17, {s})" if "float" in dtype else f"taper.randint(0, {2 if dtype == 'bool' else 9}, {s})"
    x = f"({x} / 8).to(taper.{dtype})" if "float" in dtype else f"{x}.to(taper.{dtype})"
    if layout == "transposed":
        x += f".permute({list(range(len(s)))[::-1]})"
    elif layout == "sliced":
        x += "[..., 1::2]"
    elif layout == "expanded":
        x += f".expand({list(shape)})"
    elif layout == "last":
        x += ".contiguous(memory_format=taper.channels_last)"
    elif layout == "offset":
        x = f"taper.cat([taper.zeros(3, dtype=taper.{dtype}), ({x}).flatten()])[3:].view({s})"
    return x


def close(a, b, dtype):
    if a.dtype != b.dtype or tuple(a.shape) != tuple(b.shape):
        return f"{tuple(a.shape)} {a.dtype} against {tuple(b.shape)} {b.dtype}"
    if "float" not in dtype:
        return None if taper.equal(a, b) else "values differ"
    x, y = a.double(), b.double()
    t = TOL[dtype]
    bad = ~(((x - y).abs() <= t * (1 + x.abs())) | (x == y) | (x.isnan() & y.isnan()))
    return f"{int(bad.sum())} of {bad.numel()} differ, most by {((x - y).abs() * bad).nan_to_num().max().item():g}" if bad.any() else None


def no_worse(program, seed, at, want, got):
    """Narrow floats are rounded after each operator by eager and where they are stored by a kernel: which is nearer to the
    same program in float32? As the accuracy checker has it: the compiled one may be off three times as far as eager."""
    wide = lambda text: re.sub("taper[.](bfloat16|float16)", "taper.float32", text)  # noqa: E731
    scope = {"taper": taper, "call": _C._call}
    try:
        exec(wide(program.source()), scope)
        taper.manual_seed(seed)
        given = [eval(wide(maker(s, d, how)), {"taper": taper}) for _, s, d, how in program.inputs]
        taper.manual_seed(seed)
        ref = scope["f"](*given)[at].double()
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        return False
    if ref.shape != want.shape:
        return False
    error = lambda t: (t.double() - ref).square().mean().sqrt().item()  # noqa: E731
    return error(got) <= 3 * error(want) + TOL[worst(program)] / 10


def worst(program):  # the coarsest type on the way decides how near results must be
    kinds = {v.dtype for v in program.values} | {k for line in program.lines if "call(" in line for k in FLOATS if f"dtype=taper.{k}" in line}
    return "bfloat16" if "bfloat16" in kinds else "float16" if "float16" in kinds else "float32" if "float32" in kinds else "float64"


LATER = (("again", 1, False, False), ("other sizes", 2, True, False), ("other layouts", 3, False, True))


def resized(program, seed):
    """Another size for each size of the arguments, the same wherever it stood, so that what fitted together mostly still does."""
    r = random.Random(seed)
    to = {n: n if n < 2 or r.random() < 0.3 else r.choice((n + 1, n + 2, max(n - 1, 1), 2 * n, 1, 0)) if r.random() < 0.5 else n + 1 for n in sorted({n for i in program.inputs for n in i[1]})}
    return {n: m if n < 1000 else n + 7 for n, m in to.items()}


def call_with(program, g, seed, sizes=None, plain=False):
    """Results, gradients and arguments afterwards; plain: the arguments lie in memory as they are listed."""
    taper.manual_seed(seed)
    mine = [eval(maker([sizes[n] for n in s] if sizes else s, d, "plain" if plain or (sizes and 0 in sizes.values()) else how), {"taper": taper}) for _, s, d, how in program.inputs]
    if program.grad:
        for a in mine:
            if a.is_floating_point():
                a.requires_grad_()
    taper.manual_seed(seed)
    out = g(*mine)
    if program.grad and not program.whole:
        differentiate(out)
    return out, [a.grad for a in mine] if program.grad else [], mine


def differentiate(out):
    loss = sum(o.double().mean() for o in out if o.is_floating_point() and o.requires_grad and o.numel())
    if isinstance(loss, taper.Tensor):
        loss.backward()


def training_step(program, f):
    """f with its gradients taken inside, and arguments that are written."""
    def step(*mine):
        out = f(*mine)
        differentiate(out)
        with taper.no_grad():
            for a, (_, _, _, how) in zip(mine, program.inputs):
                if a.grad is not None and how != "expanded":
                    a.sub_(a.grad, alpha=0.5)
        return tuple(o.detach() for o in out)
    return step


def differ(p, seed, want, got, first=True):
    """What differs between two answers of call_with, or None."""
    kind = worst(p)
    for name, a, b in [(v.name, x, y) for v, x, y in zip(p.outs, want[0], got[0])] + \
            [(f"gradient {i}", x, y) for i, (x, y) in enumerate(zip(want[1], got[1]))] + \
            [(f"argument {i}", x, y) for i, (x, y) in enumerate(zip(want[2], got[2]))]:
        if a is None or b is None:  # a compiled function is one step of the tape: it gives zeros where nothing comes
            some = a if b is None else b
            if some is not None and some.abs().sum().item() != 0:
                return f"{name}: one is None"
            continue
        exact = not p.whole and {v.name: v.exact for v in p.values}.get(name, False)
        dt = str(a.dtype).split(".")[-1]
        why = close(a.detach(), b.detach(), dt if "float" not in dt else "float64" if exact else kind)
        at = next((i for i, v in enumerate(p.outs) if v.name == name), None)
        if why and at is not None and kind in ("float16", "bfloat16") and not p.grad and "float" in dt and "differ" in why:
            why = None if not first or no_worse(p, seed, at, a.detach(), b.detach()) else why
        if why:
            return f"{name}: {why}"
    return None


REFUSALS = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)


def check(seed, ops=12, backend="inductor", dynamic=None):
    """None, or what is wrong with the program of this seed: at its first call, at the next one with other values, at one
    with other sizes or with the arguments laid out otherwise."""
    p = Program(seed, ops)
    scope = {"taper": taper, "call": _C._call}
    exec(p.source(), scope)
    p.whole = p.grad and seed % 4 == 1
    f = training_step(p, scope["f"]) if p.whole else scope["f"]
    try:
        want = call_with(p, f, seed)
    except REFUSALS as e:
        if "derivative" in str(e) or "not enough memory" in str(e):  # of a row that has none; operands that broadcast to each other
            return None
        return f"the program itself is wrong: {e}\n{p.program()}"
    dynamo.reset()
    g = taper.compile(f, backend=backend, dynamic=dynamic, fullgraph=not p.whole)
    try:
        why = differ(p, seed, want, call_with(p, g, seed))
    except Exception as e:
        if type(e).__name__ == "Unsupported" and ("depends on the values" in str(e) or "reads a tensor's data" in str(e)):
            return None  # a row of the table whose result data decide is no part of a graph
        why = f"{type(e).__name__}: {e}"
    if why:
        return f"seed {seed}, {why}\n{p.program()}"
    for what, more, sizes, plain in LATER[:2 + (seed & 1)][:: -1 if seed & 2 else 1]:
        sizes = resized(p, seed) if sizes else None
        try:
            want = call_with(p, f, seed + more, sizes, plain)
        except REFUSALS:
            continue
        if not all(bool(a.isfinite().all()) and (not a.numel() or a.abs().max().item() < 1e4) for a in want[0] + tuple(a for a in want[1] if a is not None) if a.is_floating_point()):
            continue  # outside of the range in which the first values were tried
        try:
            why = differ(p, seed, want, call_with(p, g, seed + more, sizes, plain), False)
        except Exception as e:
            why = f"{type(e).__name__}: {e}"
        if why:
            return f"seed {seed}, {what} {sizes or ''}: {why}\n{p.program()}"
    return None


def apart(seed, ops, backend, dynamic):
    """check() in a child of its own, so that a crash is one failure."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        signal.alarm(60)
        with os.fdopen(w, "w") as f:
            f.write(check(seed, ops, backend, dynamic) or "")
        os._exit(0)
    os.close(w)
    with os.fdopen(r) as f:
        why = f.read()
    status = os.waitpid(pid, 0)[1]
    return why or (f"seed {seed}: ended with status {status}\n{Program(seed, ops).program()}" if status else None)


def engines(names, count, seed, extra=()):
    """The same programs on several engines, each in a process of its own; how many failed."""
    bad = 0
    for name in names:
        env, backend = ENGINES[name]
        n = count // 20 if name == "c" and count > 100 else count
        print(f"{name}:", flush=True)
        bad += subprocess.call([sys.executable, os.path.abspath(__file__), "--count", str(n), "--seed", str(seed), "--backend", backend, *extra],
                               env={**os.environ, **env})
    return bad


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--count", type=int, default=500)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--ops", type=int, default=0)
    ap.add_argument("--backend", default="inductor")
    ap.add_argument("--engines", default="")
    ap.add_argument("--keep-going", action="store_true")
    ap.add_argument("--at-once", type=int, default=25, help="programs in one child; one that ends it is found by running each alone")
    a = ap.parse_args()
    if a.engines:
        return 1 if engines(a.engines.split(","), a.count, a.seed, ["--keep-going"] if a.keep_going else []) else 0
    bad = 0
    for first in range(a.seed, a.seed + a.count, a.at_once):
        some = range(first, min(first + a.at_once, a.seed + a.count))
        if not a.ops and not quick(some, a.backend):
            continue
        for seed in some:
            ops, dynamic = a.ops or ops_of(seed), None if seed % 3 else True
            why = apart(seed, ops, a.backend, dynamic)
            if why and not a.ops:  # the first steps of a program are a program: the shortest that fails
                for fewer in range(1, ops):
                    less = apart(seed, fewer, a.backend, dynamic)
                    if less and "program itself" not in less:
                        why = less
                        break
            if why:
                bad += 1
                print(why, flush=True)
                if not a.keep_going:
                    return 1
    print(f"{a.count} graphs, {bad} wrong")
    return 1 if bad else 0


def ops_of(seed):
    return 4 + seed % 16


def quick(seeds, backend):
    """Does any of these programs fail? In one child."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60 + 10 * len(seeds))
        os._exit(1 if any(check(s, ops_of(s), backend, None if s % 3 else True) for s in seeds) else 0)
    return os.waitpid(pid, 0)[1] != 0


if __name__ == "__main__":
    sys.exit(main())
