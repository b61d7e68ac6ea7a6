#!/usr/bin/env python3
"""Writes python/taper/_op_examples.py: for each operator that is called by name an example of a call and what it prints. The
schema says which arguments are needed; the first of a few simple values that the operator takes is shown.

  tools/gendocs_examples.py [--check]      --check: fail when the file is not what would be written
"""
import os, sys, warnings

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))
import taper  # noqa: E402
from taper.ops import FunctionSchema  # noqa: E402

OUT = os.path.join(ROOT, "python", "taper", "_op_examples.py")
SPACES = {"taper": taper, "taper.nn.functional": taper.nn.functional, "taper.linalg": taper.linalg, "taper.special": taper.special}
# Tensors to try, simple ones first: x, y and z of one call.
TENSORS = [
    ("taper.tensor([-1.0, 0.5, 2.0])", "taper.tensor([2.0, 3.0, 4.0])", "taper.tensor([1.0, 0.0, 1.0])"),
    ("taper.tensor([0.5, 1.0, 2.0])", "taper.tensor([2.0, 3.0, 4.0])", "taper.tensor([1.0, 0.0, 1.0])"),
    ("taper.tensor([[1.0, 2.0], [3.0, 4.0]])", "taper.tensor([[2.0, 0.0], [0.0, 1.0]])", "taper.tensor([[1.0, 1.0], [1.0, 1.0]])"),
    ("taper.tensor([1, 2, 3])", "taper.tensor([3, 1, 2])", "taper.tensor([0, 1, 0])"),
    ("taper.tensor([0.2, 0.5, 0.9])", "taper.tensor([0.0, 1.0, 1.0])", "taper.tensor([1.0, 1.0, 1.0])"),
    ("taper.tensor([True, False, True])", "taper.tensor([True, True, False])", "taper.tensor([False, True, True])"),
    ("taper.tensor([[1.0, 2.0], [3.0, 4.0]])", "taper.tensor([1.0, 2.0])", "taper.tensor([1.0, 1.0])"),
    ("taper.tensor([1.0, 2.0])", "taper.tensor([[1.0, 2.0], [3.0, 4.0]])", "taper.tensor([1.0, 1.0])"),
    ("taper.tensor([[1.0, 2.0], [3.0, 4.0]])", "taper.tensor([0, 1])", "taper.tensor([[5.0, 6.0], [7.0, 8.0]])"),
    ("taper.tensor([1.0, 2.0, 3.0])", "taper.tensor([0, 2, 1])", "taper.tensor([5.0, 6.0, 7.0])"),
    ("taper.tensor([1.0, 2.0, 3.0])", "taper.tensor([True, False, True])", "taper.tensor([5.0, 6.0, 7.0])"),
    ("taper.tensor([True, False, True])", "taper.tensor([1.0, 2.0, 3.0])", "taper.tensor([5.0, 6.0, 7.0])"),
    ("taper.tensor([[4.0, 1.0], [1.0, 3.0]])", "taper.tensor([[1.0], [2.0]])", "taper.tensor([[1.0], [1.0]])"),
    ("taper.arange(8.0).view(1, 2, 4)", "taper.arange(8.0).view(1, 4, 2)", "taper.zeros(1, 2, 2)"),
    ("taper.zeros(1, 2, 2)", "taper.arange(8.0).view(1, 2, 4)", "taper.arange(8.0).view(1, 4, 2)"),
    ("taper.zeros(2)", "taper.tensor([[1.0, 2.0], [3.0, 4.0]])", "taper.tensor([1.0, 2.0])"),
    ("taper.zeros(2, 2)", "taper.tensor([1.0, 2.0])", "taper.tensor([3.0, 4.0])"),
    ("taper.zeros(2, 2)", "taper.arange(8.0).view(1, 2, 4)", "taper.arange(8.0).view(1, 4, 2)"),
    ("taper.arange(6.0).view(1, 1, 6)", "taper.ones(1, 1, 3)", "taper.zeros(1)"),
    ("taper.arange(16.0).view(1, 1, 4, 4)", "taper.ones(1, 1, 2, 2)", "taper.zeros(1)"),
    ("taper.arange(16.0).view(1, 4, 2, 2)", "taper.ones(1, 4, 2, 2)", "taper.zeros(1)"),
    ("taper.ones(1, 1, 2, 4, 4)", "taper.ones(1, 1, 2, 2, 2)", "taper.zeros(1)"),
]
# What cannot be guessed: lines that make tensors, and the call.
CHOSEN = {
    "clamp": (["x = taper.tensor([-1.0, 0.5, 2.0])"], "(x, min=0.0, max=1.0)"),
    "permute": (["x = taper.zeros(2, 3, 4)"], "(x, (2, 0, 1)).shape"),
    "where": (["x = taper.tensor([-1.0, 0.5, 2.0])"], "(x > 0, x, 0.0)"),
    "bilinear": (["x = taper.ones(1, 2)", "w = taper.ones(1, 2, 2)"], "(x, x, w)"),
    "batch_norm": (["x = taper.tensor([[1.0], [3.0]])"], "(x, None, None, None, None, True, 0.1, 0.0, False)"),
    "instance_norm": (["x = taper.tensor([[[1.0, 3.0]]])"], "(x, None, None, None, None, True, 0.1, 0.0, False)"),
    "index_put": (["x = taper.zeros(3)", "i = taper.tensor([0, 2])"], "(x, (i,), taper.tensor([1.0, 2.0]))"),
    "index_reduce": (["x = taper.ones(3)", "i = taper.tensor([0, 0, 2])"], "(x, 0, i, taper.tensor([2.0, 3.0, 4.0]), 'prod')"),
    "lu_solve": (["a = taper.tensor([[2.0, 0.0], [0.0, 4.0]])", "b = taper.tensor([[2.0], [8.0]])"], "(b, *taper.linalg.lu_factor(a))"),
    "linalg.lu_solve": (["a = taper.tensor([[2.0, 0.0], [0.0, 4.0]])", "b = taper.tensor([[2.0], [8.0]])"], "(*taper.linalg.lu_factor(a), b)"),
    "linalg.tensorinv": (["a = taper.eye(4).view(2, 2, 4)"], "(a).shape"),
    "convolution": (["x = taper.ones(1, 1, 4)", "w = taper.ones(1, 1, 2)"], "(x, w, None, [1], [0], [1], False, [0], 1)"),
    "empty_permuted": ([], "((2, 3), (1, 0)).shape"),
    "view_as_real": (["x = taper.tensor([1 + 2j])"], "(x)"),
    "imag": (["x = taper.tensor([1 + 2j])"], "(x)"),
    "affine_grid_generator": (["theta = taper.eye(2, 3)[None]"], "(theta, (1, 1, 2, 2), False).shape"),
    "grid_sampler_3d": (["x = taper.arange(8.0).view(1, 1, 2, 2, 2)", "grid = taper.zeros(1, 1, 1, 1, 3)"], "(x, grid, 0, 0, True)"),
    "linear_dynamic_int8": (["x = taper.ones(1, 2)", "w = taper.tensor([[1, 2]], dtype=taper.int8)", "scale = taper.tensor([0.5])"], "(x, w, scale)"),
    "lu_unpack": (["LU, pivots = taper.lu(taper.tensor([[2.0, 0.0], [1.0, 4.0]]))"], "(LU, pivots)[2]"),
    "native_batch_norm": (["x = taper.tensor([[1.0], [3.0]])"], "(x, None, None, None, None, True, 0.1, 0.0)[0]"),
    "native_dropout": (["x = taper.ones(2)"], "(x, 0.5, False)[0]"),
    "native_group_norm": (["x = taper.tensor([[[1.0, 3.0]]])"], "(x, None, None, 1, 1, 2, 1, 0.0)[0]"),
    "native_layer_norm": (["x = taper.tensor([[1.0, 3.0]])"], "(x, [2], None, None, 0.0)[0]"),
    "ormqr": (["a = taper.tensor([[2.0, 0.0], [0.0, 1.0]])", "h, tau = taper.geqrf(a)"], "(h, tau, a).shape"),
    "ctc_loss": (["p = taper.zeros(4, 1, 3).log_softmax(2)", "t = taper.tensor([[1, 2]])"], "(p, t, (4,), (2,))"),
}
NO_VALUES = ("empty", "rand", "dropout", "bernoulli", "multinomial", "normal", "poisson", "binomial", "rrelu", "resize")


SCHEMAS = {r[0]: r[1] for r in taper._C._schemas()}


class Text(str):
    """Written as it is."""


def show(v):
    return str(v) if isinstance(v, Text) else repr(v)


def values(kind, name, number):
    """What to try for an argument that is no tensor."""
    if name in ("size", "shape", "sizes"):
        return [2, 2]
    if kind in ("int", "SymInt", "Scalar"):
        return number
    if kind == "float":
        return 0.5
    if kind == "bool":
        return False
    if kind == "str":
        return "reduced" if name == "mode" else "ij,jk->ik" if name == "equation" else "sum"
    if kind == "ScalarType":
        return Text("taper.float64")
    if kind in ("int[]", "SymInt[]"):
        return [number, 2]
    if kind.startswith(("int[", "SymInt[")):
        return [max(number, 0)] * int(kind[kind.index("[") + 1:-1])
    return None


def calls(schema, spelled):
    """Texts of calls: (lines that make tensors, call)."""
    needed = [a for a in schema.arguments if not a.has_default_value() and not a.type.endswith("?")]
    for tensors in TENSORS:
        for number in (1, 0, 2, -1):
            names, args = [], []
            for a in needed:
                kind = str(a.type)
                if kind.startswith("Tensor") and "[" in kind:
                    v = Text("[x, y]")
                    names = ["x", "y"]
                elif kind.startswith("Tensor"):
                    v = Text("xyz"[min(len(names), 2)])
                    names.append(str(v))
                else:
                    v = values(kind, a.name, number)
                    if v is None:
                        return
                args.append((f"{a.name}=" if a.kwarg_only else "") + show(v))
            made = [f"{n} = {t}" for n, t in zip("xyz", tensors) if n in names]
            yield made, f"{spelled}({', '.join(args)})"
            if not any(isinstance(a, str) and a.isdigit() for a in args) and not any("[" in a for a in args):
                break


def result(made, call, seed):
    space = {"taper": taper}
    taper.manual_seed(seed)
    for line in made:
        exec(line, space)
    return repr(eval(call, space))


def example(name, fn):
    short = name.removeprefix("taper.")
    for key in (short, short.rstrip("_"), short.split(".")[-1].rstrip("_").replace("clip", "clamp")):
        if key in CHOSEN:
            made, call = CHOSEN[key][0], name + CHOSEN[key][1]
            return "\n".join([f">>> {line}" for line in made + [call]] + result(made, call, 1).splitlines())
    return guess(name, fn, False) or guess(name, fn, True)


def guess(name, fn, shape_alone):
    hidden = any(w in name for w in NO_VALUES)
    for row in fn._rows:
        schema = FunctionSchema(SCHEMAS[row])
        for made, call in calls(schema, name):
            try:
                out = [result(made, call, seed) for seed in (1, 2)]
                if hidden or out[0] != out[1] or "e+" in out[0] or "\n\n" in out[0] or ("nan" in out[0] and "nan" not in name) or len(out[0].splitlines()) > 8:
                    if not shape_alone and not hidden:
                        continue
                    call += ".shape"
                    out = [result(made, call, seed) for seed in (1, 2)]
            except Exception:
                continue
            if out[0] == out[1] and all(len(line) < 120 for line in out[0].splitlines()):
                return "\n".join([f">>> {line}" for line in made + [call]] + out[0].splitlines())
    return None


def text():
    found, without = {}, []
    for space, module in SPACES.items():
        for n in sorted(dir(module)):
            hidden = n.startswith("_") or n in getattr(module, "_SUBMODULES", ())
            fn = None if hidden else getattr(module, n, None)
            if type(fn).__name__ != "builtin_function" or fn.__name__ != n:
                continue
            e = example(f"{space}.{n}", fn)
            if e:
                found[f"{space}.{n}"] = e
            else:
                without.append(f"{space}.{n}")
    out = ['"""Examples of operators, shown by help(). Written by tools/gendocs_examples.py; tests run them."""', "EXAMPLES = {"]
    for k, v in found.items():
        out.append(f"    {k!r}: {v!r},")
    return "\n".join(out + ["}", ""]), without


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    new, without = text()
    if "--list" in sys.argv:
        print(len(without), " ".join(without))
    old = open(OUT).read() if os.path.exists(OUT) else ""
    if old == new:
        print("examples of operators are current")
    elif "--check" in sys.argv:
        sys.exit("python/taper/_op_examples.py is not what tools/gendocs_examples.py writes: run make docs")
    else:
        with open(OUT, "w") as f:
            f.write(new)
        print("wrote: python/taper/_op_examples.py")
