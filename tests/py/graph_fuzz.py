"""Random programs over the operators: compiled must equal eager, results and gradients.

  python3 tests/py/graph_fuzz.py [--count N] [--seed S] [--backend NAME] [--threads N]

A program is made as Python text, so that a failure prints something that runs. Values are kept small. Steps that turn a
rounding error into a different answer (comparisons, floor, argmax) only take values that every backend computes
exactly: multiples of 1/8 that came through exact steps."""
import argparse
import os
import random
import signal
import sys

import taper
import taper._dynamo as dynamo

FLOATS = ("float32", "float32", "float32", "float64", "bfloat16", "float16")
INTS = ("int64", "int32", "uint8", "bool")
TOL = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}
SMALL = (1, 2, 3, 5, 7, 8, 16, 17, 33)


class Value:
    def __init__(self, name, shape, dtype, exact, view=False):
        self.name, self.shape, self.dtype, self.exact, self.view = name, tuple(shape), dtype, exact, view

    @property
    def floating(self):
        return "float" in self.dtype


class Program:
    def __init__(self, seed, ops):
        self.r = random.Random(seed)
        self.values, self.lines, self.inputs, self.n = [], [], [], 0
        self.grad = self.r.random() < 0.4
        for _ in range(self.r.randint(1, 3)):
            self.add_input()
        while len(self.lines) < ops:
            self.step()
        outs = self.r.sample(self.values, min(len(self.values), self.r.randint(1, 3)))
        if self.values[-1] not in outs:
            outs.append(self.values[-1])
        self.outs = outs

    # ---- pieces ----
    def shape(self):
        nd = self.r.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
        shape = [self.r.choice(SMALL if nd < 3 else SMALL[:5]) for _ in range(nd)]
        if nd and self.r.random() < 0.04:
            shape[self.r.randrange(nd)] = 0
        if nd == 1 and self.r.random() < 0.1:
            shape[0] = self.r.choice((1000, 4099))
        return shape

    def add_input(self, shape=None, dtype=None):
        shape = self.shape() if shape is None else list(shape)
        dtype = dtype or (self.r.choice(FLOATS) if self.r.random() < 0.75 else self.r.choice(INTS))
        layout = self.r.choice(("plain", "plain", "transposed", "sliced", "expanded")) if shape and 0 not in shape else "plain"
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
        self.r.choice(STEPS)(self)

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
        kind = self.r.choice(("cat", "stack", "pad", "repeat", "tril"))
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
        kind = self.r.choice(("select", "getitem", "gather", "add", "put", "scatter", "embedding"))
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

    # ---- text ----
    def source(self):
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def f({', '.join(i[0] for i in self.inputs)}):\n{body}    return {', '.join(v.name for v in self.outs)},\n"

    def program(self):
        text = "import taper\n" + self.source() + "\ntaper.manual_seed(0)\nargs = [\n"
        for _, shape, dtype, layout in self.inputs:
            text += f"    {maker(shape, dtype, layout)},\n"
        return text + "]\nprint(f(*args), taper.compile(f)(*args))\n"


STEPS = [Program.unary] * 5 + [Program.exact_unary] * 3 + [Program.binary] * 5 + [Program.integer, Program.compare, Program.where, Program.where, Program.cast] + \
    [Program.reduce] * 5 + [Program.view] * 6 + [Program.join] * 2 + [Program.index] * 2 + [Program.product, Program.conv, Program.norm, Program.inplace]


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


def worst(program):  # the coarsest type on the way decides how near results must be
    kinds = {v.dtype for v in program.values}
    return "bfloat16" if "bfloat16" in kinds else "float16" if "float16" in kinds else "float32" if "float32" in kinds else "float64"


def check(seed, ops=12, backend="inductor", dynamic=None):
    """None, or what is wrong with the program of this seed."""
    p = Program(seed, ops)
    scope = {"taper": taper}
    exec(p.source(), scope)
    f = scope["f"]
    taper.manual_seed(seed)
    args = [eval(maker(s, d, how), {"taper": taper}) for _, s, d, how in p.inputs]
    kind = worst(p)

    def run(g):
        mine = [a.detach().clone() if a.is_contiguous() else a.detach() for a in args]
        if p.grad:
            for a in mine:
                if a.is_floating_point():
                    a.requires_grad_()
        out = g(*mine)
        grads = []
        if p.grad:
            loss = sum(o.double().mean() for o in out if o.is_floating_point() and o.requires_grad and o.numel())
            if isinstance(loss, taper.Tensor):
                loss.backward()
                grads = [a.grad for a in mine]
        return out, grads

    try:
        want = run(f)
    except (RuntimeError, IndexError, ValueError, TypeError) as e:
        return f"the program itself is wrong: {e}\n{p.program()}"
    dynamo.reset()
    try:
        got = run(taper.compile(f, backend=backend, dynamic=dynamic, fullgraph=True))
    except Exception as e:
        return f"seed {seed}: {type(e).__name__}: {e}\n{p.program()}"
    for name, a, b in [(v.name, x, y) for v, x, y in zip(p.outs, want[0], got[0])] + \
            [(f"gradient {i}", x, y) for i, (x, y) in enumerate(zip(want[1], got[1]))]:
        if a is None or b is None:  # a compiled function is one step of the tape: it gives zeros where nothing comes
            some = a if b is None else b
            if some is not None and some.abs().sum().item() != 0:
                return f"seed {seed}, {name}: one is None\n{p.program()}"
            continue
        exact = {v.name: v.exact for v in p.values}.get(name, False)
        dt = str(a.dtype).split(".")[-1]
        why = close(a.detach(), b.detach(), dt if "float" not in dt else "float64" if exact else kind)
        if why:
            return f"seed {seed}, {name}: {why}\n{p.program()}"
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


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--count", type=int, default=500)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--ops", type=int, default=0)
    ap.add_argument("--backend", default="inductor")
    ap.add_argument("--keep-going", action="store_true")
    a = ap.parse_args()
    bad = 0
    for seed in range(a.seed, a.seed + a.count):
        ops, dynamic = a.ops or 4 + seed % 16, None if seed % 3 else True
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


if __name__ == "__main__":
    sys.exit(main())
