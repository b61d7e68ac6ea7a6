"""Random Python programs over the torch names.

generate(choices) returns text. The text uses names that the harness (observe.py) provides: compile(f), call(f, ...),
show(name=value, ...), grads(results, leaves), poke(results) and lies(tensor), its strides that reach memory. Everything else is ordinary Python, so that a program reads like one.

A tensor variable carries what the grammar must know to write mostly valid steps: its shape in names of sizes (one name, one
size in every call), whether it holds floats, integers or bools, and whether its values are exact (multiples of 1/8 which no
way of computing rounds). Only exact values are compared, floored or branched on. One step in forty ignores all of this: what
a program does wrong must be wrong in the same way everywhere."""
import copy
import itertools

import forms

SMOOTH = ("sin", "cos", "tanh", "sigmoid", "atan", "erf", "square", "exp", "expm1")
KEEP = ("neg", "abs", "relu", "clone", "contiguous")  # exact stays exact
FUNCTIONAL = ("silu", "gelu", "softplus", "elu", "leaky_relu", "hardtanh", "logsigmoid")
JUMPS = ("floor", "ceil", "round", "sign", "trunc")
IPW = ("add_", "sub_", "mul_")


class Var:
    def __init__(self, name, shape=None, kind="f", exact=True, root=None, leaf=False):
        self.name, self.shape, self.kind, self.exact, self.root, self.leaf = name, shape, kind, exact, root or name, leaf


def joined(a, b):
    """The shape of a with b by broadcasting, or None where the names of the sizes do not say that it works."""
    if a is None or b is None:
        return None
    out = []
    for x, y in itertools.zip_longest(reversed(a), reversed(b), fillvalue=1):
        if x == y or y == 1:
            out.append(x)
        elif x == 1:
            out.append(y)
        else:
            return None
    return tuple(reversed(out))


class Program:
    def __init__(self, choices):
        self.c, self.lines, self.depth, self.count = choices, [], 0, 0
        self.helpers, self.classes, self.functions, self.written, self.loops = [], [], [], set(), 0
        self.scopes, self.nest, self.budget, self.has, self.in_try = [], 0, 0, set(), 0
        self.wide = choices.chance(60)  # programs with the rows of forms.py

    # -- text --
    def put(self, text):
        self.lines.append("    " * self.depth + text)

    def name(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    def block(self, head, body, stays=False):
        """A compound statement: what body() defines is not seen after it, unless it stays."""
        self.put(head)
        self.depth += 1
        self.nest += 1
        at, seen = len(self.lines), len(self.scope)
        body()
        if len(self.lines) == at:
            self.put("pass")
        if not stays:
            del self.scope[seen:]
        self.depth -= 1
        self.nest -= 1

    @property
    def scope(self):
        return self.scopes[-1]

    def fresh(self):
        return "u" + self.name("")

    # -- picking variables --
    def tensors(self, kind=None, exact=False, rank=0):
        return [v for v in self.scope if isinstance(v, Var) and v.kind in ("f", "i", "b") and (kind is None or v.kind == kind) and
                (not exact or v.exact) and (rank == 0 or (v.shape is not None and len(v.shape) >= rank))]

    def others(self, kind):
        return [v for v in self.scope if v.kind == kind]

    def tensor(self, kind="f", exact=False, rank=0):
        found = self.tensors(kind, exact, rank) or self.tensors(None, False, 0)
        # the newest are the likeliest, so that steps build on one another
        if len(found) > 4 and self.c.chance(60):
            found = found[-4:]
        return self.c.one(found)

    def number(self):
        return self.c.one(("2", "0.5", "-1", "3", "1.5", "0.25", "1", "-0.5"))

    def integer(self):
        ints = self.others("int")
        return self.c.one(ints).name if ints and self.c.chance(50) else str(self.c.below(4))

    def size_of(self, v):
        if v.shape and self.c.chance(80):
            return self.c.one((f"{v.name}.shape[0]", f"{v.name}.size(-1)", f"{v.name}.size(0)", f"len({v.name})", f"{v.name}.shape[-1]",
                               f"{v.name}.numel()", f"{v.name}.size(dim=0)"))
        return self.c.one((f"{v.name}.numel()", f"{v.name}.dim()"))

    def condition(self):
        """A condition that does not depend on rounding."""
        v = self.tensor(None, True)
        k = self.c.below(12)
        if k < 3:
            return f"{self.size_of(v)} {self.c.one(('>', '<', '==', '!=', '>='))} {self.c.below(5)}"
        if k < 4 and v.exact:
            return f"({v.name} > {self.number()}).{self.c.one(('any', 'all'))}()"
        if k < 5 and self.others("int"):
            return f"{self.c.one(self.others('int')).name} {self.c.one(('>', '<', '=='))} {self.c.below(4)}"
        if k < 7 and self.others("flag"):
            return self.c.one(("{}", "not {}", "{} is None", "{} == 'on'", "isinstance({}, bool)")).format(self.c.one(self.others("flag")).name)
        if k < 9:
            return self.c.one((f"{v.name}.requires_grad", f"{v.name}.is_contiguous()", f"{v.name}.dtype == torch.float32", f"{v.name}.is_leaf",
                               "torch.is_grad_enabled()", f"{v.name}.is_floating_point()", f"{v.name}.storage_offset() > 0",
                               f"{v.name}.is_inference()", f"{v.name}.grad is None", f"{v.name}._base is not None", f"{v.name}.dtype.is_floating_point",
                               f"{v.name}.stride(0) == 1", "torch.is_inference_mode_enabled()", "torch.is_autocast_enabled('cpu')"))
        if k < 10 and len(self.tensors()) > 1:
            w = self.tensor(None)
            return self.c.one((f"{v.name} is {w.name}", f"{v.name}.shape == {w.name}.shape", f"{v.name}.dtype == {w.name}.dtype"))
        if k < 11 and self.others("obj"):
            o = self.c.one(self.others("obj"))
            return self.c.one((f"{o.name}.n > 1", f"hasattr({o.name}, 'extra')", f"{o.name}", f"getattr({o.name}, 'flag', False)"))
        return f"{v.name}.dim() {self.c.one(('>', '=='))} {self.c.below(3)}"

    # -- tensor steps: (text, shape, kind, exact, root) --
    def view(self, v):
        """A view of v, with what is known of its shape."""
        n, s = v.name, v.shape
        rank = len(s) if s is not None else 0
        forms = [(f"{n}.unsqueeze(0)", (1,) + s if s is not None else None), (f"{n}.reshape(-1)", (s[0],) if rank == 1 else (self.fresh(),)),
                 (f"{n}.detach()", s), (f"{n}.view({n}.shape)", s), (f"{n}[None]", (1,) + s if s is not None else None), (f"{n}.flatten()", (s[0],) if rank == 1 else (self.fresh(),)),
                 (f"{n}[...]", s), (f"{n}.view_as({n})", s), (f"{n}.data", s), (f"{n}.squeeze()", None), (f"{n}.view(-1)", (s[0],) if rank == 1 else (self.fresh(),)),
                 (f"{n}.expand(2, *{n}.shape)", (2,) + s if s is not None else None)]
        if rank:
            u = (self.fresh(),) + s[1:]
            forms += [(f"{n}[0]", s[1:]), (f"{n}[-1]", s[1:]), (f"{n}[1:]", u), (f"{n}[:1]", u), (f"{n}[::2]", u), (f"{n}[..., 0]", s[:-1]),
                      (f"{n}[0:1]", u), (f"{n}.narrow(0, 0, 1)", (1,) + s[1:]), (f"{n}.select(0, 0)", s[1:]), (f"{n}.transpose(0, -1)", (s[-1],) + s[1:-1] + s[:1] if rank > 1 else s),
                      (f"{n}.unbind(0)[0]", s[1:]), (f"{n}.chunk(2)[0]", u), (f"{n}.split(1)[0]", u), (f"{n}.unsqueeze(-1)", s + (1,)),
                      (f"{n}.unfold(0, 1, 1)", s + (1,)), (f"{n}[-2:]", u), (f"{n}.movedim(0, -1)", s[1:] + s[:1])]
        if rank == 2:
            forms += [(f"{n}.t()", (s[1], s[0])), (f"{n}.T", (s[1], s[0])), (f"{n}.diagonal()", (self.fresh(),)), (f"{n}[:, 0]", s[:1]), (f"{n}[:, 1:]", (s[0], self.fresh())),
                      (f"{n}.permute(1, 0)", (s[1], s[0])), (f"{n}[0, :]", s[1:]), (f"{n}[0, 0]", ()), (f"{n}.as_strided((2,), (1,))", (2,))]
        text, shape = self.c.one(forms)
        return text, shape, v.kind, v.exact, v.root

    def value(self, deep=1):
        """A new tensor: what a step of a program computes."""
        c = self.c
        how = c.weighted((("form", 26 if self.wide else 0), ("unary", 14), ("scalar", 14), ("binary", 22), ("view", 24), ("reduce", 10), ("index", 8), ("make", 5), ("cast", 4), ("where", 6),
                          ("join", 6), ("product", 5), ("compare", 5), ("jump", 3), ("helper", 8 if self.helpers else 0), ("like", 4), ("flip", 4), ("odd", 3),
                          ("method", 7 if self.others("obj") else 0), ("module", 7 if self.others("mod") else 0), ("from", 7 if self.others("list") or self.others("dict") else 0),
                          ("function", 3 if "Double" in self.has else 0), ("closure", 8 if self.functions else 0), ("grad", 3), ("draw", 1), ("special", 4), ("transform", 2), ("format", 4 if any(x.shape is not None and len(x.shape) == 4 for x in self.tensors("f")) else 0)))
        v = self.tensor("f")
        n, s = v.name, v.shape
        if how == "form":
            text, shape, exact = c.one(forms.VALUES)
            return self.filled(text, v), {"same": s, "scalar": ()}.get(shape), "f", exact and v.exact and "{w}" not in text, None
        if how == "view":
            return self.view(self.tensor(c.one(("f", "f", "f", None))))
        if how == "unary":
            if c.chance(30):
                op = c.one(KEEP)
                return f"{n}.{op}()" if c.chance(70) else f"torch.{op}({n})" if op not in ("contiguous",) else f"{n}.contiguous()", s, v.kind, v.exact, None
            if c.chance(20):
                return f"torch.nn.functional.{c.one(FUNCTIONAL)}({n})", s, "f", False, None
            return c.one(("{0}.{1}()", "torch.{1}({0})")).format(n, c.one(SMOOTH)), s, "f", False, None
        if how == "scalar":
            op = c.one(("+", "-", "*", "*", "+", "/", "**"))
            k = {"/": c.one(("2", "4")), "**": "2"}.get(op) or (self.number() if c.chance(80) else c.one([x.name for x in self.others("int")] or ["2"]))
            return (f"{n} {op} {k}" if c.chance(75) or op == "**" else f"{k} {op} {n}" if op != "/" else f"{n} / {k}"), s, "f", v.exact and op in "+-*", None
        if how == "binary":
            w = self.tensor(c.one(("f", "f", "i")))
            t = joined(s, w.shape)
            if t is None and not c.chance(4):
                w, t = v, s
            k = c.below(10)
            if k < 7:
                return f"{n} {c.one(('+', '-', '*'))} {w.name}", t, "f", v.exact and w.exact, None
            if k < 8:
                return f"{n} / ({w.name}.abs() + 1)", t, "f", False, None
            return c.one((f"torch.maximum({n}, {w.name})", f"torch.add({n}, {w.name}, alpha=2)", f"torch.lerp({n}, {w.name}, 0.5)", f"torch.minimum({n}, {w.name})",
                          f"torch.sub({n}, {w.name})", f"torch.addcmul({n}, {n}, {w.name}, value=2)", f"{n}.mul({w.name})", f"torch.atan2({n}, {w.name}.abs() + 1)")), t, "f", False, None
        if how == "reduce":
            op = c.one(("sum", "mean", "amax", "sum", "prod", "logsumexp", "cumsum", "softmax", "var", "norm", "amin"))
            if op in ("softmax", "cumsum", "logsumexp"):
                return f"{n}.{op}({c.one(('0', '-1'))})", (s if op != "logsumexp" else s[1:] if s and len(s) == 1 else None), "f", op == "cumsum" and v.exact, None
            if s and c.chance(60):
                keep = c.chance(40)
                return f"{n}.{op}({'dim=0' if op == 'norm' else '0'}{', keepdim=True' if keep else ''})", ((1,) if keep else ()) + s[1:], "f", op in ("sum", "amax", "amin") and v.exact, None
            return f"{n}.{op}()", (), "f", op in ("sum", "amax", "amin") and v.exact, None
        if how == "index":
            e = self.tensor("f", True)
            m = c.one(([f"{n}[{n} > {self.number()}]"] if v.exact else []) + [f"{n}[[0]]", f"{n}[torch.tensor([0, 0])]", f"torch.index_select({n}, 0, torch.tensor([0]))", f"torch.take({n}, torch.tensor([0]))",
                       f"{n}.masked_fill({e.name} > 0, {self.number()})", f"{n}.gather(0, torch.zeros_like({n}, dtype=torch.int64))"] +
                      [f"{n}[{i.name}]" for i in self.tensors("i")[:1]])
            return m, s if "fill" in m or "gather" in m else None, "f", v.exact, None
        if how == "make":
            t = c.one((f"torch.zeros_like({n})", f"torch.ones_like({n})", f"torch.full_like({n}, {self.number()})", f"torch.ones({n}.shape)", f"{n}.new_zeros({n}.shape)",
                       f"torch.zeros({n}.shape, dtype={n}.dtype)", f"torch.full({n}.shape, 0.5, requires_grad=True)", f"torch.empty_like({n}).fill_({self.number()})",
                       f"torch.empty_strided({n}.size(), {n}.stride()).fill_(1)"))
            return t, s, "f", True, None
        if how == "cast":
            k = c.below(7)
            return ((f"{n}.to(torch.float64)", s, "f", v.exact, None), (f"{n}.double()", s, "f", v.exact, None), (f"{n}.to({self.tensor('f').name}.dtype)", s, "f", False, None),
                    (f"{n}.to(torch.bfloat16)", s, "f", False, None), (f"{n}.float()", s, "f", False, None), (f"{n}.to(torch.int64)" if v.exact else f"{n}.to(torch.float32)", s, "i" if v.exact else "f", v.exact, None),
                    (f"{n}.bool()" if v.exact else f"{n}.half()", s, "b" if v.exact else "f", v.exact, None))[k]
        if how == "where":
            e = self.tensor("f", True)
            t = joined(s, e.shape)
            if t is None:
                e, t = v, s
            if not e.exact:
                return f"torch.where({n} == {n}, {n}, 1.0)", s, "f", False, None
            return f"torch.where({e.name} > {self.number()}, {n}, {c.one((self.number(), e.name))})", t, "f", v.exact and e.exact, None
        if how == "join":
            op = c.one(("cat", "stack", "stack", "hstack"))
            return f"torch.{op}([{n}, {n if c.chance(60) else self.tensor('f').name}])", None if op != "stack" or s is None else (2,) + s, "f", v.exact, None
        if how == "product":
            return c.one((f"{n} @ {n}.transpose(-1, -2)", f"torch.matmul({n}, {n}.mT)", f"torch.einsum('...i,...i->...', {n}, {n})", f"({n} * {n}).sum(-1)",
                          f"torch.outer({n}.reshape(-1), {n}.reshape(-1))")), None, "f", False, None
        if how == "compare":
            e = self.tensor("f", True)
            if not e.exact:
                return f"{e.name} == {e.name}", e.shape, "b", True, None
            return f"{e.name} {c.one(('>', '<', '==', '>=', '!='))} {self.number() if c.chance(80) else c.one(('0.1', '3.14'))}", e.shape, "b", True, None
        if how == "jump":
            e = self.tensor("f", True)
            if not e.exact:
                return f"{n}.neg()", s, "f", v.exact, None
            return c.one((f"{e.name}.{c.one(JUMPS)}()", f"{e.name} // 2", f"{e.name} % 2", f"torch.floor_divide({e.name}, {self.number()})", f"torch.remainder({e.name}, 0.5)",
                          f"{e.name}.sort(0).values", f"{e.name}.argmax()", f"{e.name}.max(0).values" if e.shape else f"{e.name}.max()", f"{e.name}.cummax(0).values", f"{e.name}.fmod(0.5)")), None, "f", e.exact, None
        if how == "helper":
            h = c.one(self.helpers)
            return h(self, v)
        if how == "like":
            i = self.tensors("i") or self.tensors("b")
            if i:
                w = c.one(i)
                return c.one((f"{w.name} + 1", f"{w.name} * 2", f"{w.name}.sum()", f"{w.name}.to(torch.float32)", f"~({w.name} > 0)", f"{w.name} // 2", f"{w.name} % 3", f"{w.name}.float().mean()", f"{w.name} / 2")), None, "f" if False else w.kind, True, None
            return f"{n} * 2", s, "f", v.exact, None
        if how == "flip":
            return c.one((f"{n}.flip(0)", f"torch.roll({n}, 1)", f"{n}.repeat(2)", f"torch.tril({n})", f"{n}.roll(1, 0)", f"torch.flip({n}, (-1,))", f"{n}.repeat_interleave(2, dim=0)",
                          f"torch.nn.functional.pad({n}, (1, 1))")), None, "f", v.exact, None
        if how == "method":
            o = c.one(self.others("obj"))
            self.has.add("method")
            return f"{o.name}.{c.one(('step', 'scale', 'twice', 'made'))}({n})", None, "f", False, None
        if how == "module":
            return f"{c.one(self.others('mod')).name}({n})", None, "f", False, None
        if how == "from":
            o = c.one(self.others("list") + self.others("dict"))
            if o.kind == "list":
                return c.one((f"{o.name}[0]", f"{o.name}[-1]", f"sum({o.name})", f"{o.name}.pop()", f"[t * 2 for t in {o.name}][0]", f"torch.stack({o.name})",
                              f"{o.name}[len({o.name}) // 2]", f"next(iter({o.name}))", f"max({o.name}, key=lambda t: t.numel())")), None, "f", False, o.name
            return c.one((f"{o.name}['a']", f"{o.name}.get('b', {n})", f"sum({o.name}.values())", f"list({o.name}.values())[0]", f"{o.name}.pop('a')", f"{o.name}.setdefault('c', {n})",
                          f"{{k: t + 1 for k, t in {o.name}.items()}}['a']")), None, "f", False, o.name
        if how == "function":
            return f"Double.apply({n})", s, "f", False, None
        if how == "closure":
            return f"{c.one(self.functions)}({n})", None, "f", False, None
        if how == "grad":
            return c.one((f"torch.autograd.grad(({n} * {n}).sum(), {n})[0]", f"torch.autograd.grad({n}.sin().sum(), {n}, create_graph=True)[0]", f"{n}.grad", f"{n}.detach().requires_grad_()",
                          f"{n}.detach().clone().requires_grad_()", f"torch.nn.Parameter({n}.detach())", f"torch.autograd.grad({n}.sum(), {n}, allow_unused=True)[0]",
                          f"torch.autograd.grad({n} * 2, {n}, grad_outputs=torch.ones_like({n}))[0]", f"torch.autograd.grad({n}.sum(), [{n}, {self.tensor('f').name}], allow_unused=True, materialize_grads=True)[1]")), s, "f", False, None
        if how == "draw":
            return c.one((f"torch.rand({n}.shape)", f"torch.nn.functional.dropout({n}, 0.5)", f"torch.rand_like({n})", f"torch.randn(3)", f"torch.randn(4, generator=torch.Generator().manual_seed(5))", f"torch.bernoulli(torch.full_like({n}, 0.5))",
                          f"torch.nn.functional.dropout({n}, 0.5, training=False)")), s, "f", False, None
        if how == "transform":
            return c.one((f"torch.vmap(torch.sin)({n})", f"torch.func.grad(lambda q: (q * q).sum())({n})", f"torch.utils.checkpoint.checkpoint(torch.sin, {n}, use_reentrant=False)",
                          f"torch.cond({n}.sum() > 100, lambda q: q.sin(), lambda q: q.cos(), ({n},))", f"torch.func.vmap(lambda q: q * 2)({n})", f"torch.vmap(lambda q: (LOG.append(1), q.cos())[1])({n})", f"torch.vmap(lambda q: (torch._dynamo.graph_break(), q.sin())[1])({n})",
                          f"torch.vmap(torch.vmap(lambda q: q * q))({n})", f"torch.func.jvp(torch.sin, ({n},), ({n},))[1]", f"torch.func.vjp(torch.sin, {n})[0]")), s, "f", False, None
        if how == "special":
            return c.one((f"torch.tensor({self.number()})", f"torch.tensor([{self.number()}, 1.0])", f"torch.as_tensor({n})", f"torch.arange({self.size_of(v)})", f"{n}.clone().detach()", f"{n}.lgamma()",
                          f"torch.nn.functional.layer_norm({n}, {n}.shape[-1:])", f"torch.nan_to_num({n})", f"torch.zeros({self.integer()}, 2)", f"torch.linspace(0, 1, 3)",
                          f"torch.clamp({n}, min=-1, max=1)", f"torch.norm({n}, p={c.one(('-2', '-41.0', '1', '0', '3.5'))}, dim=-1)", f"torch.ops.aten.add({n}, 1)", f"torch.ops.aten.add({self.integer()}, 3.5)",
                          f"torch.repeat_interleave({n}, 2, dim=0)", f"torch.full_like({n} > 0, 0.5)", f"{n}.size(dim={self.integer()}) * {n}", f"torch.norm({n}, p=2)", f"{n}.view(torch.int32)", f"torch.broadcast_to({n}, (2, *{n}.shape))", f"torch.isfinite({n})",
                          f"torch.tensor({n}.tolist())", f"{n}.to(memory_format=torch.contiguous_format)")), None, "f", False, None
        if how == "format":
            four = [x for x in self.tensors("f") if x.shape is not None and len(x.shape) == 4]
            if not four:
                return f"{n}.contiguous()", s, "f", v.exact, None
            x = c.one(four)
            return c.one(((f"{x.name}.to(memory_format=torch.channels_last)", x.shape, "f", x.exact, None), (f"{x.name}.contiguous(memory_format=torch.channels_last)", x.shape, "f", x.exact, None),
                          (f"torch.empty_like({x.name}, memory_format=torch.channels_last).fill_(2)", x.shape, "f", True, None), (f"{x.name}.clone(memory_format=torch.channels_last)", x.shape, "f", x.exact, None),
                          (f"torch.nn.functional.conv2d({x.name}, torch.ones(2, {x.name}.shape[1], 1, 1, dtype={x.name}.dtype))", None, "f", False, None),
                          (f"torch.nn.functional.max_pool2d({x.name}, 1)", x.shape, "f", x.exact, None), (f"torch.nn.functional.pixel_unshuffle({x.name}, 1)", x.shape, "f", x.exact, None)))
        w = self.tensor(None)  # odd: whatever comes
        return c.one((f"{n} @ {w.name}", f"torch.cat([{n}, {w.name}])", f"{n} // {w.name}", f"{n}[{self.c.below(9)}]", f"{n}.view(2, 3)", f"{n} & {w.name}", f"{n}.reshape(-1, 2)", f"{n}.sum({self.c.below(4)})",
                      f"torch.linalg.cholesky({n})", f"{n}.missing()", f"torch.gather({n}, 0, {w.name})", f"{n} + {w.name}", f"{n}.item()", f"{n} << 1")), None, "f", False, None

    def filled(self, text, v, new=""):
        """A row of forms.py with names in it."""
        e = self.tensor("f", True)
        e = e if e.exact else v
        return text.format(n=v.name, w=self.tensor("f").name, e=e.name, k=self.integer(), x=self.number(), s=self.size_of(v), v=new)

    # -- statements --
    def plain(self):
        """Lines of plain Python around a tensor."""
        v, new = self.tensor("f"), self.name("v")
        for line in self.c.one(forms.LINES):
            self.put(self.filled(line, v, new))
        self.scope.append(Var(new, None, "f", False))

    def assign(self):
        text, shape, kind, exact, root = self.value()
        name = self.name("v") if self.c.chance(85) or self.nest else self.tensor(None).name
        self.put(f"{name} = {text}")
        for old in [v for v in self.scope if v.name == name]:
            old.shape, old.kind, old.exact, old.root = shape, kind, exact, root or name
            return
        self.scope.append(Var(name, shape, kind, exact, root))

    def wrote(self, v):
        self.written.add(v.root)
        for w in self.tensors():
            if w.root == v.root and w is not v:
                w.exact = w.exact and v.exact

    def write(self):
        """An in-place write, through a variable or a view of one."""
        c = self.c
        if c.chance(10) and (self.tensors("i") or self.tensors("b")):
            v = c.one(self.tensors("i") + self.tensors("b"))
            n = v.name
            self.put(c.one((f"{n}.fill_({self.number()})", f"{n}[0] = {self.number()}", f"{n}.add_(1)", f"{n}[{n} > 0] = 0", f"{n}.zero_()", f"{n} &= {n}", f"{n}.logical_not_()", f"{n} *= 2", f"{n}.copy_({self.tensor('f', True).name})")))
            self.wrote(v)
            return
        v = self.tensor("f")
        n = v.name
        k = c.below(100)
        exact, text = v.exact, None
        if k < 30:
            text = f"{n}.{c.one(IPW)}({self.number()})"
        elif k < 40:
            w = self.tensor("f")
            if joined(v.shape, w.shape) != v.shape or v.shape is None:
                w = v
            text, exact = c.one((f"{n}.{c.one(IPW)}({w.name})", f"{n} {c.one(('+=', '-=', '*='))} {w.name}", f"{n}.copy_({w.name})", f"{n}.copy_({w.name} * 2)")), v.exact and w.exact
        elif k < 48:
            text = f"{n} {c.one(('+=', '*=', '-='))} {self.number()}"
        elif k < 60:
            t, _, _, _, _ = self.view(v)
            text = c.one((f"{t}.add_({self.number()})", f"{t}.mul_(2)", f"{t}.fill_({self.number()})", f"{t}.zero_()", f"{t}.copy_({t} + 1)"))
        elif k < 72:
            i = c.one(("0", "-1", "1:", ":1", "...", "::2") + ((":, 0", "0, 0", "..., 0") if v.shape and len(v.shape) > 1 else ()))
            text = c.one((f"{n}[{i}] = {self.number()}", f"{n}[{i}] += {self.number()}", f"{n}[{i}] *= 2", f"{n}[{i}] = {n}[{i}] + 1", f"{n}[{i}] = {self.tensor('f').name}.sum()"))
            exact = v.exact and not text.endswith("sum()")
        elif k < 78:
            if v.exact:
                text = c.one((f"{n}[{n} > {self.number()}] = {self.number()}", f"{n}.masked_fill_({n} > 0, {self.number()})", f"{n}[{n} < 0] *= 2", f"{n}[{n} > 0] = {n}[{n} > 0] * 2"))
            else:
                text = f"{n}.clamp_(-1, 1)"
        elif k < 83:
            text, exact = c.one((f"{n}.sin_()", f"{n}.tanh_()", f"{n}.sigmoid_()", f"{n}.exp_()", f"{n}.relu_()", f"torch.sin({n}, out={n})", f"torch.add({n}, 1, out={n})", f"{n}.div_(2)")), False
        elif k < 87:
            i = self.tensors("i")
            text = c.one((f"{n}.fill_({self.number()})", f"{n}.zero_()", f"{n}.index_fill_(0, torch.tensor([0]), 1.0)", f"{n}.index_add_(0, torch.tensor([0]), {n}[:1])")) if not i else f"{c.one(i).name}.add_(1)"
        elif k < 90:
            text = c.one((f"{n}.requires_grad_()", f"{n}.detach_()", f"{n}.requires_grad_(False)", f"{n}.requires_grad = True"))
        elif k < 93:
            text, exact = c.one((f"{n}.t_()", f"{n}.unsqueeze_(0)", f"{n}.squeeze_()", f"{n}.transpose_(0, -1)", f"{n}.resize_(0)", f"{n}.set_(torch.ones(2, dtype={n}.dtype))", f"{n}.data = {n}.data * 2", f"{n}.swapaxes_(0, -1)")), v.exact
            v.shape = None
        elif k < 96:
            text = c.one((f"{n}.data.mul_(2)", f"{n}.data[0] = 1", f"{n}.detach().add_(1)", f"{n}[0].detach().mul_(2)", f"{n}.data.zero_()"))
        else:
            text = c.one((f"{n}.uniform_()", f"{n}.copy_(2)", f"{n}.copy_({self.tensor(None).name})", f"{n}.grad = torch.ones_like({n})", f"{n}.grad = None", f"torch._foreach_add_([{n}], 1)", f"torch.nn.init.ones_({n})"))
            exact = False
        v.exact = exact
        self.put(text)
        self.wrote(v)

    def control(self):
        c = self.c
        k = c.below(100)
        if k < 40:
            self.block(f"if {self.condition()}:", lambda: self.statements(2))
            if c.chance(50):
                self.block(c.one(("else:", f"elif {self.condition()}:")), lambda: self.statements(2))
        elif k < 60:
            i = self.name("i")
            v = self.tensor(None)
            over = c.one((f"range({c.below(3) + 1})", f"range({self.size_of(v)})" if v.shape != () and c.chance(30) else "range(2)", f"enumerate([{v.name}, {v.name}])", f"zip(range(2), 'ab')",
                          f"[{v.name}, {v.name} * 2]"))

            def body():
                if over.startswith("range"):
                    self.scope.append(Var(i, kind="int"))
                elif over.startswith("["):
                    self.scope.append(Var(i, v.shape, v.kind, v.exact, v.root))
                self.loops += 1
                self.statements(2)
                if c.chance(15):
                    self.block(f"if {self.condition()}:", lambda: self.put(c.one(("break", "continue"))))
                self.loops -= 1
            self.block(f"for {i if not over.startswith(('enumerate', 'zip')) else i + ', _'} in {over}:", body)
            if c.chance(10):
                self.block("else:", lambda: self.statements(1))
        elif k < 68:
            i = self.name("i")
            self.put(f"{i} = {c.below(3)}")

            def loop():
                self.put(f"{i} += 1")
                self.loops += 1
                self.statements(2)
                self.loops -= 1
            self.block(f"while {i} < 3:", loop)
        elif k < 78:
            v = self.tensor(None)
            cases = c.one((("0 | 1", "int()", "_"), ("int()", "_"), ("2", "n if n > 2", "_"), ("None", "int(q)", "_")))
            subject = self.size_of(v) if c.chance(80) else f"{v.name}.shape"
            if subject.endswith(".shape"):
                cases = (("[]", "[q]", "[q, *_]", "_"), ("(q, p)", "_"))[c.below(2)]
            self.put(f"match {subject}:")
            self.depth += 1
            for p in cases:
                self.block(f"case {p}:", lambda: self.statements(1))
            self.depth -= 1
        elif k < 86:
            v, name = self.tensor("f"), self.name("v")
            self.put(f"{name} = {v.name} * 2 if {self.condition()} else {v.name}")
            self.scope.append(Var(name, v.shape, v.kind, v.exact, v.root))
        elif k < 92:
            v, name = self.tensor("f"), self.name("l")
            self.put(f"{name} = [{v.name} {c.one(('+', '*'))} i for i in range({c.below(3) + 1}){c.one(('', ' if i != 1'))}]")
            self.scope.append(Var(name, kind="list"))
        else:
            self.put(f"assert {self.condition()}{c.one(('', ', ' + repr('no')))}")

    def exceptions(self):
        c = self.c
        err = c.one(("ValueError", "RuntimeError", "KeyError", "Exception", "IndexError", "Odd" if "Odd" in self.has else "TypeError", "(ValueError, TypeError)", "ZeroDivisionError"))
        self.in_try += 1

        def body():
            self.statements(2)
            k = c.below(10)
            if k < 4:
                one = err if not err.startswith("(") else "ValueError"
                fail = c.one((f"raise {one}('x')", f"raise {one}", "1 / 0", "[][1]", "{}['q']", f"{self.tensor('f').name}[99]", f"int('q')", "raise RuntimeError('y')", f"{self.tensor('f').name}.view(-1, 77)",
                              f"{self.tensor('f').name} @ {self.tensor('f').name}.unsqueeze(-1).unsqueeze(-1)", f"{self.tensor('f').name}.nope", "next(iter([]))", "raise StopIteration", f"torch.linalg.cholesky({self.tensor('f').name})",
                              f"{self.tensor(None).name} // torch.zeros(1, dtype=torch.int64)"))
                if c.chance(50):
                    self.block(f"if {self.condition()}:", lambda: self.put(fail))
                else:
                    self.put(fail)
            if c.chance(10):
                self.leave()
        self.block("try:", body)
        self.in_try -= 1
        if c.chance(85):
            e = self.name("e")

            def handler():
                if c.chance(30):
                    self.put(c.one((f"print(type({e}).__name__)", "raise", f"raise ValueError('z') from {e}", f"LOG.append(type({e}).__name__)", f"print({e}.args)" if err not in ("RuntimeError", "Exception", "IndexError") else f"print(isinstance({e}, Exception))",
                                    f"LOG.append({e}.__traceback__.tb_lineno)", f"LOG.append({e}.__context__ is None)")))
                self.statements(1)
            self.block(f"except {err} as {e}:", handler)
            if c.chance(30):
                self.block("else:", lambda: self.statements(1))
            if c.chance(30):
                self.block("finally:", lambda: self.statements(1))
        else:
            self.block("finally:", lambda: self.statements(1))

    def contexts(self):
        c = self.c
        cm = c.weighted((("torch.no_grad()", 20), ("torch.enable_grad()", 8), ("torch.inference_mode()", 8), ("torch.autocast('cpu', dtype=torch.bfloat16)", 6), (f"torch.set_grad_enabled({c.one(('True', 'False'))})", 5),
                         ("Watch()", 12 if "Watch" in self.has else 0), ("counted()", 12 if "counted" in self.has else 0), ("contextlib.nullcontext()", 2), ("contextlib.suppress(ValueError)", 3),
                         ("torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t + 1)", 2), ("torch.inference_mode(False)", 2), ("torch.autocast('cpu', enabled=False)", 2)))
        if c.chance(8):
            self.block("with contextlib.ExitStack() as stack:", lambda: (self.put(f"stack.enter_context({cm})"), self.put("stack.callback(LOG.append, 'left')"), self.statements(2)), stays=True)
            return
        named = " as w" if cm in ("Watch()", "counted()") and c.chance(30) else ""
        self.block(f"with {cm}{named}:", lambda: self.statements(3), stays="suppress" not in cm)

    def containers(self):
        c, v = self.c, self.tensor(None)
        k = c.below(100)
        lists, dicts = self.others("list"), self.others("dict")
        if k < 20 or not (lists or dicts):
            name = self.name("l")
            self.put(c.one((f"{name} = [{v.name}, {self.tensor(None).name}]", f"{name} = [{v.name}] * 2", f"{name} = list(torch.unbind({v.name}))", f"{name} = list({v.name}.split(1))", f"{name} = [t for t in ({v.name}, {v.name} + 1)]")))
            self.scope.append(Var(name, kind="list"))
        elif k < 32:
            name = self.name("d")
            self.put(c.one((f"{name} = {{'a': {v.name}, 'b': {self.tensor(None).name}}}", f"{name} = dict(a={v.name})", f"{name} = collections.OrderedDict(b={v.name}, a={v.name} * 2)", f"{name} = collections.defaultdict(list, a={v.name})")))
            self.scope.append(Var(name, kind="dict"))
        elif k < 65 and lists:
            n = c.one(lists).name
            self.put(c.one((f"{n}.append({v.name})", f"{n}[0] = {v.name}", f"{n}.insert(0, {v.name})", f"{n}.extend([{v.name}, {v.name} * 2])", f"{n} += [{v.name}]", f"{n}.reverse()", f"del {n}[0]", f"{n}.pop(0)", f"{n}[0].add_(1)",
                            f"{n}[0] += 1", f"{n}[:] = [{v.name}]", f"{n}.clear()", f"{n}.sort(key=lambda t: t.numel())", f"{n}[-1] = {n}[0]", f"{n}, *rest = [{n}, 1, 2]", f"{n} = {n} + [{v.name}]", f"{n} = {n}[::-1]")))
        elif dicts:
            n = c.one(dicts).name
            self.put(c.one((f"{n}['a'] = {v.name}", f"{n}['k'] = {v.name} * 2", f"{n}.update(b={v.name})", f"del {n}['a']", f"{n}['a'] += 1", f"{n}['a'].mul_(2)", f"{n}.setdefault('z', {v.name})", f"{n}['n'] = {self.integer()}",
                            f"{n} = {{**{n}, 'e': {v.name}}}", f"{n} |= {{'q': {v.name}}}", f"{n}['a'] = {n}['b']", f"{n}.pop('b', None)", f"{n}[{v.name}.dim()] = 1")))

    def state(self):
        """Mutation of objects, globals and cells."""
        c, v = self.c, self.tensor(None)
        k = c.below(100)
        if c.chance(6):
            s, w = self.name("s"), self.tensor(None).name
            self.put(f"{s} = {{{v.name}, {w}}}")
            self.put(c.one((f"LOG.append({v.name} in {s})", f"LOG.append(len({s}))", f"{s}.discard({w}); LOG.append(len({s}))", f"LOG.append({s} == {{{w}}})", f"LOG.append(len({s} | {{{v.name}}}))", f"LOG.append({w} in dict.fromkeys([{v.name}]))")))
            return
        objs = self.others("obj")
        if k < 50 and objs:
            o = c.one(objs).name
            self.put(c.one((f"{o}.n += 1", f"{o}.t = {v.name}", f"{o}.extra = {v.name} * 2", f"{o}.items.append({v.name})", f"setattr({o}, 'flag', True)", f"{o}.t = {o}.t + 1", f"{o}.t.add_(1)", f"{o}.__dict__['n'] = 5",
                            f"{o}.value = {self.integer()}", f"del {o}.n", f"type({o}).shared += 1", f"{o}.d['k'] = {v.name}", f"{o}.t += 1", f"{o}.n = {o}.n * 2 + {self.integer()}", f"{o}.me = {o}", f"{o}.items[0] = {v.name}",
                            f"{o}({v.name})", f"{o}['k'] = {v.name}", f"{o}.t[0] = 1", f"len({o})")))
        elif k < 62:
            self.put(c.one((f"LOG.append({self.integer()})", f"LOG.append({v.name})", f"LOG.append({self.size_of(v)})", "LOG.append(len(LOG))", "LOG[:] = []", f"TABLE['t'] = {v.name}", f"TABLE.setdefault('n', []).append({self.integer()})")))
        elif k < 78:
            self.globals.add("COUNT")
            self.put(c.one(("COUNT += 1", f"COUNT = COUNT * 2 + {self.integer()}", "COUNT += len(LOG)")))
        elif k < 86:
            self.globals.add("SAVED")
            self.put(c.one((f"SAVED = {v.name}", f"SAVED = {v.name} * 2", "SAVED = SAVED + 1", "SAVED.add_(1)", "SAVED = None")))
        else:
            name = self.name("n")
            self.put(f"{name} = {self.size_of(v)}{c.one(('', ' + 1', ' * 2', ' // 2', ' % 3'))}")
            self.scope.append(Var(name, kind="int"))

    def breaks(self):
        c, v = self.c, self.tensor(None)
        self.put(c.weighted((("torch._dynamo.graph_break()", 10), (f"print('at', {self.size_of(v)})", 6), (f"opaque({v.name})", 6 if "opaque" in self.has else 0), (f"LOG.append(float({self.tensor('f').name}.sum().detach() > 1000))", 2),
                             (f"print({v.name}.dtype, {v.name}.requires_grad)", 3), (f"print({v.name}.shape, lies({v.name}))", 3), (f"{self.name('q')} = {v.name}.tolist()", 2), (f"print({v.name}.storage_offset())", 1),
                             (f"LOG.append({v.name}._version > 0)", 1), (f"print(len({{{v.name}, {self.tensor(None).name}}}))", 1), (f"LOG.append({v.name}.is_leaf)", 1), (f"print(sorted(locals())[:2])", 1), (f"gc.collect()", 1),
                             (f"LOG.append({v.name}.numpy().sum() > 1e9)", 1), (f"print({v.name}.data_ptr() == {self.tensor(None).name}.data_ptr())", 1))))

    def nested(self):
        """A function inside the function: closure, generator, default arguments, nonlocal."""
        c = self.c
        k = c.below(100)
        name, v = self.name("g"), self.tensor("f")
        if k < 35:
            def body():
                if c.chance(40):
                    ints = [x for x in self.others("int") if not x.name.startswith("i")]
                    if ints and self.depth == 2:
                        self.put(f"nonlocal {ints[-1].name}")
                        self.put(f"{ints[-1].name} += 1")
                self.put(f"return {c.one(('q * 2', f'q + {v.name}', f'{v.name}.add_(1)', 'q.sin()', f'({v.name} + q).sum()', 'q.mul_(2)', f'(q, {v.name})[0]', 'by * q'))}")
            self.block(f"def {name}(q, by={self.number()}):", body)
            self.functions.append(name)
        elif k < 60:
            def body():
                def loop():
                    self.put(c.one((f"yield {v.name} * i", f"yield {v.name}[i:]", "yield i", f"yield from ({v.name}, {v.name} + i)")))
                if c.chance(30):
                    self.block("try:", lambda: self.block("for i in range(3):", loop))
                    self.block("finally:", lambda: self.put("LOG.append('closed')"))
                else:
                    self.block("for i in range(3):", loop)
                if c.chance(20):
                    self.put("return 7")
            self.block(f"def {name}():", body)
            w = self.name("v")
            how = c.below(8)
            if how == 5:
                self.put(f"it = {name}()")
                self.put(f"{w} = next(it) * 1")
                self.put(c.one(("it.close()", "it.send(None)", "LOG.append(next(it, None) is None)", "del it")))
            elif how == 6:
                self.put(f"it = {name}()")
                self.put(f"{w} = next(it) * 1")
                self.block("try:", lambda: self.put("it.throw(ValueError('thrown'))"))
                self.block("except (ValueError, StopIteration) as e:", lambda: self.put("LOG.append(type(e).__name__)"))
            elif how == 7:
                self.put(f"{w} = [*zip({name}(), {name}())][-1][0] * 1")
            elif how == 0:
                self.put(f"{w} = sum({name}())")
            elif how == 1:
                self.put(f"{w} = list({name}())[0] * 1")
            elif how == 2:
                self.put(f"{w} = next({name}()) * 1")
            elif how == 3:
                self.put(f"{w} = {v.name}")
                self.block(f"for y in {name}():", lambda: self.put(c.one((f"{w} = {w} + y", f"{w} = y * 1", f"{w} = {w} + 1\n{'    ' * self.depth}break"))))
            else:
                self.put(f"first, *rest = {name}()")
                self.put(f"{w} = first * len(rest)")
            self.scope.append(Var(w, None, "f", False))
        elif k < 80:
            self.put(c.one((f"{name} = lambda q: q * {self.number()}", f"{name} = lambda q, k={v.name}: q + k.sum()", f"{name} = functools.partial(torch.add, other={v.name}.sum())", f"{name} = {v.name}.add", f"{name} = functools.partial(lambda k, q: q * k, 2)")))
            self.functions.append(name)
        else:
            w = self.name("v")
            self.put(c.one((f"{w} = [t + 1 for t in ({v.name}, {v.name} * 2)][-1]", f"{w} = functools.reduce(lambda p, q: p + q, [{v.name}, {v.name}])", f"{w} = sum(t * 2 for t in [{v.name}, {v.name}])", f"{w} = list(map(torch.sin, [{v.name}]))[0]",
                            f"{w} = (lambda *a, **k: a[0] + k['z'])({v.name}, z={v.name})", f"{w} = max([1, 2, 3]) * {v.name}", f"{w} = dict(zip('ab', ({v.name}, {v.name} + 1)))['b']", f"{w} = operator.add({v.name}, {v.name})",
                            f"{w} = next(t for t in ({v.name}, 1) if t is not None)", f"{w} = [*itertools.chain([{v.name}], [1])][0]")))
            self.scope.append(Var(w, v.shape, "f", False))

    def autograd(self):
        c, v = self.c, self.tensor("f")
        n = v.name
        if c.chance(25):
            h = self.name("h")
            self.block(f"if {n}.requires_grad:", lambda: (self.put(f"{h} = {n}.register_hook(lambda g: g * 3)"), self.statements(1), self.put(f"{h}.remove()")))
            return
        self.put(c.one((f"{n}.sum().backward()", f"({n} * {n}).sum().backward()", f"if {n}.requires_grad: {n}.register_hook(lambda g: g * 2)", f"if {n}.requires_grad: {n}.retain_grad()", f"if {n}.requires_grad: {n}.sum().backward(retain_graph=True)",
                        f"if {n}.requires_grad: {n}.register_hook(lambda g: LOG.append(g.sum() > 1e6))", f"if {n}.requires_grad: ({n} * 2).sum().backward()", f"{n} = {n}.detach()", f"torch.set_grad_enabled({c.one(('True', 'False'))})")))

    def leave(self):
        """An early return, or a raise."""
        c = self.c
        if c.chance(80):
            self.block(f"if {self.condition()}:", lambda: self.put(c.one((f"return {self.results()}", f"return {self.results()}", "raise ValueError('left')" if not self.in_try else "return None", "return"))))

    def meta(self):
        c, v = self.c, self.tensor(None)
        n = self.name("m")
        self.put(f"{n} = " + c.one((f"{v.name}.shape", f"lies({v.name})", f"{v.name}.storage_offset()", f"{v.name}.dtype", f"{v.name}.requires_grad", f"{v.name}.is_contiguous()", f"{v.name}.is_leaf", f"len({v.name}.shape)", f"{v.name}.size()",
                                 f"{v.name}.is_inference()", f"tuple({v.name}.shape)", f"{v.name}._is_view()", f"{v.name}.element_size()", f"{v.name}.ndim", f"{v.name}.grad_fn is None", f"type({v.name}).__name__", f"isinstance({v.name}, torch.nn.Parameter)",
                                 f"{v.name}.itemsize", f"{v.name}.nbytes", f"id({v.name}) == id({self.tensor(None).name})", f"{v.name}.output_nr", f"{v.name}.layout", f"{v.name}.device.type", f"({v.name}.shape[0], 1)" if v.shape else f"{v.name}.numel()")))
        self.scope.append(Var(n, kind="meta"))

    def statement(self):
        how = self.c.weighted((("assign", 36), ("plain", 16 if self.wide else 0), ("write", 20), ("control", 7 if self.nest < 3 else 0), ("exceptions", 4 if self.nest < 2 else 0), ("contexts", 6 if self.nest < 3 else 0), ("containers", 8), ("state", 8),
                               ("breaks", 6), ("nested", 5 if self.nest < 2 else 0), ("autograd", 2), ("leave", 2), ("meta", 3)))
        getattr(self, how)()

    def statements(self, most):
        for _ in range(1 + self.c.below(most)):
            if self.budget <= 0:
                break
            self.budget -= 1
            self.statement()

    def results(self):
        c = self.c
        names = [v.name for v in self.scope if v.kind in ("f", "i", "b", "list", "dict", "meta", "int", "obj")]
        ts = [v.name for v in self.tensors()]
        k = c.below(100)
        pick = lambda: c.one(ts[-5:] if len(ts) > 5 and c.chance(70) else ts)
        if k < 30:
            return pick()
        if k < 65:
            return ", ".join(c.one(names) if c.chance(40) else pick() for _ in range(c.below(3) + 2))
        if k < 72:
            return f"[{pick()}, {pick()}]"
        if k < 80:
            return f"{{'a': {pick()}, 'b': {c.one(names)}}}"
        if k < 86:
            return f"{pick()}, {pick()}.detach()"
        if k < 90:
            return f"{pick()} * 2, {c.one(names)}"
        if k < 93:
            return f"Pair({pick()}, {c.one(names)})" if "Pair" in self.has else pick()
        if k < 95:
            return f"Box({pick()})" if "Box" in self.has else pick()
        return f"{pick()}, ({c.one(names)}, [{pick()}])"

    # -- definitions --
    def function(self, name, args, budget, helper=False):
        """def name(args): a body of statements and a return."""
        self.scopes.append(list(args))
        self.globals, self.functions, self.budget, self.nest, self.in_try = set(), [], budget, 0, 0
        self.put(f"def {name}({', '.join(a.name + a.default if hasattr(a, 'default') else a.name for a in args)}):")
        self.depth += 1
        at = len(self.lines)
        while self.budget > 0:
            self.statements(4)
        if not self.c.chance(4):
            self.put(f"return {self.results()}" if not helper else f"return {self.tensor('f').name}")
        if self.globals:
            self.lines.insert(at, "    " * self.depth + "global " + ", ".join(sorted(self.globals)))
        self.depth -= 1
        self.put("")
        return self.scopes.pop()


def define_classes(p):
    c = p.c
    if c.chance(50):
        p.has.add("Box")
        base = c.one(("", "", "(Base)", "(dict)", "(list)")) if c.chance(50) else ""
        if base == "(Base)":
            p.lines += ["class Base:", "    shared = 0", "    def __init__(self, t):", "        self.base = 1", "    def scale(self, q):", "        return q * 3", "    @property", "    def value(self):", "        return self._value", "    @value.setter",
                        "    def value(self, k):", "        self._value = k * 2", ""]
        p.lines += [f"class Box{base}:", "    shared = 0"]
        if c.chance(15) and not base:
            p.lines += ["    __slots__ = ('t', 'n', 'items', 'd', 'flag', 'extra', 'me', 'value')"]
        p.lines += ["    def __init__(self, t):", *(["        super().__init__(t)"] if base == "(Base)" else []), "        self.t, self.n, self.items, self.d = t, 1, [t], {'k': t}"]
        p.lines += ["    def step(self, q):", "        " + c.one(("self.n += 1", "self.t = q", "self.items.append(q)", "self.t.add_(1)", "self.d['k'] = q", "Box.shared += 1")), "        return " + c.one(("q + self.t.sum()", "q * self.n", "self.t", "q + self.items[0].sum()"))]
        p.lines += ["    def scale(self, q):", "        return " + c.one(("super().scale(q) + 1", "q * 2")) if base == "(Base)" else "        return q * 2"]
        if c.chance(10):
            p.lines += c.one((["    def __bool__(self):", f"        return {c.one(('self.n > 1', '1.5', 'True'))}"], ["    hidden = property(lambda self: self.__dict__['hidden'])"], ["    def __iter__(self):", "        raise ValueError('iter')"],
                              ["    def __eq__(self, other):", "        LOG.append('eq')", "        return True", "    __hash__ = None"], ["    def __setattr__(self, k, q):", "        LOG.append(k)", "        super().__setattr__(k, q)"],
                              ["    def __getattribute__(self, k):", "        return super().__getattribute__(k)"], ["    def __contains__(self, k):", "        return self.n > 1"], ["    def __del__(self):", "        pass"]))
        p.lines += ["    @staticmethod", "    def twice(q):", "        return " + c.weighted((("q + q", 20), ("super().nothing(q)", 1))), "    @classmethod", "    def made(cls, q):", "        return cls(q).t * 2"]
        if c.chance(40):
            p.lines += ["    def __len__(self):", "        return self.n"] if base not in ("(dict)", "(list)") and c.chance(50) else []
            p.lines += ["    def __call__(self, q):", "        self.n += 1", "        return q * self.n"]
        if c.chance(25) and base not in ("(dict)", "(list)"):
            p.lines += ["    def __getitem__(self, k):", "        return self.d[k]", "    def __setitem__(self, k, q):", "        self.d[k] = q * 2"]
        if c.chance(15):
            p.lines += ["    def __getattr__(self, k):", "        if k == 'flag':", "            return True", "        raise AttributeError(k)"]
        p.lines += [""]
    if c.chance(25):
        p.has.add("Pair")
        p.lines += c.one((["Pair = collections.namedtuple('Pair', 'a b')", ""], ["@dataclasses.dataclass", "class Pair:", "    a: object", "    b: object = 1", ""]))
    if c.chance(30):
        p.has.add("Watch")
        p.lines += ["class Watch:", "    def __enter__(self):", "        LOG.append('in')", "        return self", "    def __exit__(self, kind, e, tb):", "        LOG.append(kind.__name__ if kind else 'out')", f"        return {c.one(('False', 'None', 'True'))}", ""]
    if c.chance(25):
        p.has.add("counted")
        p.lines += ["@contextlib.contextmanager", "def counted():", "    LOG.append('enter')"] + (["    try:", "        yield 3", "    finally:", "        LOG.append('exit')"] if c.chance(60) else ["    yield 3", "    LOG.append('exit')"]) + [""]
    if c.chance(20):
        p.has.add("Odd")
        p.lines += ["class Odd(ValueError):", "    pass", ""]
    if c.chance(40):
        p.has.add("opaque")
        p.lines += ["@torch.compiler.disable", "def opaque(t):", "    " + c.one(("LOG.append(t.dim())", "t.detach().add_(0)", "print('opaque', t.dtype)", "pass", "t.data.add_(1)")), "    return t", ""]
    if c.chance(15):
        p.has.add("Double")
        p.lines += ["class Double(torch.autograd.Function):", "    @staticmethod", "    def forward(ctx, q):", "        " + c.one(("ctx.save_for_backward(q)", "ctx.save_for_backward(q); ctx.k = 2", "ctx.save_for_backward(q); LOG.append('f')")),
                    "        return " + c.one(("q * 2", "q.clone()", "q.sin()", "q.view_as(q)")), "    @staticmethod", "    def backward(ctx, g):", "        q, = ctx.saved_tensors", "        return g * " + c.one(("2", "q", "q.cos()")), ""]
    if c.chance(22):
        p.has.add("Net")
        p.lines += ["class Net(torch.nn.Module):", "    def __init__(self):", "        super().__init__()", "        self.w = torch.nn.Parameter(torch.tensor([0.5, -1.0, 1.5]))", "        self.register_buffer('seen', torch.zeros(()))", "        self.calls = 0"]
        lin = c.chance(30)
        if lin:
            p.lines += ["        self.lin = torch.nn.Linear(2, 2)", "        torch.nn.init.constant_(self.lin.weight, 0.5)", "        torch.nn.init.constant_(self.lin.bias, 0.25)"]
        p.lines += ["    def forward(self, q):", "        " + c.one(("self.seen += 1", "self.seen.add_(q.detach().sum())", "self.calls += 1", "self.last = q", "self.seen = self.seen + 1", "pass")),
                    "        return " + c.one(("q * self.w.sum()", "q + self.w[0]", "torch.nn.functional.relu(q) * self.w[1]", "q.sum() * self.w", "q.mul_(2) + self.w.mean()", "self.lin(q.reshape(-1)[:2])" if lin else "q * self.seen"))]
        if c.chance(20):
            p.lines += ["    def extra_repr(self):", "        return 'net'"]
        p.lines += [""]


DTYPES = ("float32", "float32", "float32", "float32", "float64", "float16", "bfloat16")
INTS = ("int64", "int32", "uint8", "int8", "int16")


def literal(p, sizes, shape, kind, dtype):
    """A tensor with known values, in one of many layouts. Returns text."""
    c = p.c
    dims = [sizes.get(d, d) if isinstance(d, str) else d for d in shape]
    dims = [d if isinstance(d, int) else 2 for d in dims]
    count = 1
    for d in dims:
        count *= d
    start = c.one((-4, -7, 0, 3, -2))

    def flat(n, t=dtype):
        if kind == "b":
            return f"(torch.arange({n}) % 2 == {c.below(2)})"
        if kind == "i":
            return f"torch.arange({n}, dtype=torch.{t})"
        if c.chance(4):
            return f"torch.full(({n},), {c.one(('0.1', '3.14', '-0.0', 'float(1e4)'))}, dtype=torch.{t})"
        return f"(torch.arange({n}, dtype=torch.{t}) * {c.one(('0.5', '0.25', '1'))} {'+' if start >= 0 else '-'} {abs(start) / 2})"
    sh = "(" + ", ".join(map(str, dims)) + ("," if len(dims) == 1 else "") + ")"
    lay = c.below(20)
    if not dims:
        return f"torch.tensor({c.one(('2.0', '-1.0', '0.5', '0.0'))}, dtype=torch.{dtype})" if kind == "f" else f"torch.tensor({c.one(('1', '0', '2')) if kind == 'i' else c.one(('True', 'False'))})" if lay < 12 else flat(3) + "[1]"
    if lay < 9:
        return f"{flat(count)}.reshape{sh}"
    if lay < 11 and len(dims) >= 2:
        return f"{flat(count)}.reshape({', '.join(map(str, reversed(dims)))}).permute({', '.join(map(str, reversed(range(len(dims)))))})"
    if lay < 13:
        return f"{flat(count + 3)}[3:].reshape{sh}"
    if lay < 14:
        return f"{flat(count * 2)}[::2].reshape{sh}" if len(dims) > 1 else f"{flat(count * 2)}[::2]"
    if lay < 16:
        rest = "".join(", " + str(d) for d in dims[1:])
        return f"{flat(max(count // max(dims[0], 1), 1) if dims[0] else 1)}.reshape(1{rest}).expand{sh}" if dims[0] and count else f"{flat(count)}.reshape{sh}"
    if lay < 17:
        return f"{flat(count)}.reshape{sh}.flip(0)"
    if lay < 18 and len(dims) == 4:
        return f"{flat(count)}.reshape{sh}.to(memory_format=torch.channels_last)"
    if lay < 19:
        rest = "".join(", " + str(d) for d in dims[1:])
        return f"{flat(count // dims[0] * (dims[0] + 1) if dims[0] else 0)}.reshape({dims[0] + 1}{rest})[1:]" if dims[0] else f"torch.zeros{sh}"
    steps, step = [], 2
    for d in reversed(dims):
        steps.insert(0, step)
        step *= max(d, 1)
    return f"{flat(step + 1)}.as_strided({sh}, {tuple(steps)}, 1)"


def generate(choices):
    p = Program(choices)
    c = p.c
    p.lines += ["import collections, contextlib, copy, dataclasses, enum, functools, gc, itertools, math, operator, types, weakref", "import torch", "import torch.utils.checkpoint", "LOG, TABLE, COUNT, SAVED = [], {}, 0, torch.ones(2)", ""]
    define_classes(p)
    if p.wide:
        p.lines += forms.HELPERS.split("\n")
    p.globals = set()
    # helper functions
    for _ in range(c.one((0, 0, 1, 1, 2))):
        name = p.name("h")
        p.helpers, keep = [], p.helpers
        p.function(name, [Var("q", c.one((("n",), ("n", "m"), None)), "f", False)], 1 + c.below(4), helper=True)
        p.helpers = keep + [lambda prog, v, name=name: (f"{name}({v.name})", None, "f", False, None)]
    # arguments
    args = []
    shapes = [(), ("n",), ("n",), ("n", "m"), ("n", "m"), ("n", "m"), (1, "m"), ("m",), ("n", 3), (2, "n", "m"), (2, 3, "n", "m")]
    for i in range(c.one((1, 1, 2, 2, 2, 3))):
        args.append(Var("abc"[i], c.one(shapes), c.weighted((("f", 85), ("i", 10), ("b", 5))) if i else "f", True))
    for kind, name, percent in (("int", "k", 22), ("flag", "flag", 18), ("list", "xs", 20), ("dict", "d", 15), ("obj", "o", 40 if "Box" in p.has else 0), ("mod", "net", 75 if "Net" in p.has else 0)):
        if c.chance(percent):
            args.append(Var(name, kind=kind))
    p.written = set()
    p.function("f", [copy.copy(a) for a in args], 3 + c.below(c.one((6, 10, 16))))
    written = p.written
    opts = c.weighted((("", 70), (", dynamic=True", 12), (", dynamic=False", 8), (", mode='reduce-overhead'", 4)))
    p.put(f"cf = compile(f{opts})")
    # calls
    sizes = {"n": c.one((2, 3, 4, 3)), "m": c.one((3, 2, 4))}
    dtype = c.one(DTYPES)
    itype = c.one(INTS)
    persistent = c.chance(40)
    grad_call = c.below(100)
    for call in range(c.one((1, 2, 2, 3, 3, 4))):
        if call:
            if c.chance(45):
                sizes["n"] = c.one((2, 3, 4, 5, 1, 0, 6, 8, 17, 33, 130))
            if c.chance(25):
                sizes["m"] = c.one((3, 2, 1, 5, 0, 4))
            if c.chance(15):
                dtype, itype = c.one(DTYPES), c.one(INTS)
        leaves, given, made = [], [], {}
        for a in args:
            if a.kind in ("f", "i", "b"):
                shape = a.shape if not c.chance(4) else c.one(((), ("n",), ("n", "m"), (0,), (1,)))
                dt = dtype if a.kind == "f" else itype
                base = [v for v in made if made[v] == a.kind]
                if base and c.chance(14):
                    b = c.one(base)
                    p.put(f"{a.name} = {c.one(('{0}', '{0}', '{0}[:]', '{0}.view({0}.shape)', '{0}.detach()', '{0}[1:]', '{0}[..., :1]', '{0}.t()')).format(b)}")
                else:
                    text = literal(p, sizes, shape, a.kind, dt)
                    p.put(f"{a.name} = {text}")
                    if a.kind == "f" and (grad_call < 60) and c.chance(65):
                        dirty = a.name in written
                        if dirty and c.chance(80) or c.chance(15):
                            p.put(f"{a.name}0 = {a.name}.requires_grad_()" if "expand" not in text else f"{a.name}0 = {a.name}.clone().requires_grad_()")
                            p.put(f"{a.name} = {a.name}0 * 1")
                            leaves.append(a.name + "0")
                        else:
                            p.put(f"{a.name} = {a.name}.detach().requires_grad_()")
                            leaves.append(a.name)
                    elif a.kind == "f" and c.chance(4):
                        p.put("with torch.inference_mode():")
                        p.put(f"    {a.name} = {a.name}{c.one((' * 1', '.clone()', '[...]'))}")
                    if leaves and c.chance(6):
                        p.put(f"{leaves[-1]}.register_hook(lambda g: g * 2)")
                made[a.name] = a.kind
                given.append(a.name)
            elif a.kind == "int":
                given.append(str(c.below(5)) if c.chance(85) else "2.5")
            elif a.kind == "flag":
                given.append(c.one(("True", "False", "None", "'on'")))
            elif a.kind == "list":
                if not (persistent and call):
                    p.put("xs = [" + ", ".join(c.one(list(made)) if made and c.chance(50) else literal(p, sizes, ("n",), "f", dtype) for _ in range(1 + c.below(3))) + "]")
                given.append("xs")
            elif a.kind == "dict":
                if not (persistent and call):
                    p.put("d = {'a': " + (c.one(list(made)) if c.chance(40) else literal(p, sizes, ("n",), "f", dtype)) + ", 'b': " + literal(p, sizes, ("n",), "f", dtype) + "}")
                given.append("d")
            elif a.kind == "obj":
                if not (persistent and call):
                    p.put(f"o = Box({c.one(list(made))})" if c.chance(50) else f"o = Box({literal(p, sizes, ('n',), 'f', dtype)})")
                given.append("o")
            elif a.kind == "mod":
                if not (persistent and call):
                    p.put("net = Net()")
                if c.chance(10):
                    p.put(c.one(("net.eval()", "net.register_forward_hook(lambda m, i, r: r * 2)", "net.requires_grad_(False)")))
                given.append("net")
        args_text = ", ".join(["cf"] + given)
        k = c.below(100)
        if k < 80:
            p.put(f"r = call({args_text})")
        else:
            cm = c.one(("torch.no_grad()", "torch.no_grad()", "torch.inference_mode()", "torch.autocast('cpu', dtype=torch.bfloat16)", "torch.enable_grad()", "torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t + 1)",
                        "torch.autograd.set_detect_anomaly(True)", "torch.set_grad_enabled(False)"))
            p.put(f"with {cm}:")
            p.put(f"    r = call({args_text})")
        shown = [a.name for a in args if a.kind not in ("int", "flag")]
        p.put(f"show(r=r, {', '.join(f'{n}={n}' for n in shown)})")
        if leaves or "net" in given:
            how = c.below(100)
            extra = ", *net.parameters()" if "net" in given else ""
            if how < 70:
                p.put(f"grads(r, [{', '.join(leaves)}{extra}])" if leaves else "grads(r, [*net.parameters()])")
            elif how < 85:
                p.put(f"grads(r, [{', '.join(leaves)}], double=True)" if leaves else "grads(r, [*net.parameters()], double=True)")
        if leaves and c.chance(5):
            p.put(f"torch.optim.{c.one(('SGD', 'Adam', 'AdamW', 'RMSprop', 'Adagrad'))}([{', '.join(leaves)}], lr=0.5).step()")
            p.put(f"show({', '.join(f'{n}={n}' for n in leaves)})")
        if c.chance(15):
            p.put(c.one(("poke(r)", f"poke({shown[0]})")))
            p.put(f"show(r=r, {', '.join(f'{n}={n}' for n in shown)})")
    p.put("show(LOG=LOG, TABLE=TABLE, COUNT=COUNT, SAVED=SAVED)")
    return "\n".join(p.lines) + "\n"


if __name__ == "__main__":
    import sys
    from choices import Choices
    print(generate(Choices(int(sys.argv[1]) if len(sys.argv) > 1 else 0)))
