#!/usr/bin/env python3
"""Writes what the op table says: docs/ops.md, tests/calls.md, python/taper/_C.pyi and python/taper/__init__.pyi.

  tools/gendocs.py [--check]      --check: fail when a file is not what would be written
"""
import json, os, re, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))
import taper  # noqa: E402
from calls import calls_md  # noqa: E402
from taper.ops import FunctionSchema  # noqa: E402

C = taper._C
FLAGS = {"INP": 1 << 0, "OUT": 1 << 1, "PW": 1 << 2, "VIEW": 1 << 3, "RAND": 1 << 4, "COMP": 1 << 7, "DYN": 1 << 8,
         "MUT": 1 << 9, "NODIFF": 1 << 10, "HIDE": 1 << 12, "INPONLY": 1 << 13}
SPACES = {"f": "taper.", "m": "Tensor.", "n": "F.", "l": "taper.linalg.", "s": "taper.special."}
KEYWORDS = {"from", "import", "lambda", "in", "is", "not", "and", "or"}


# --- docs/ops.md ---
def spellings(name, py):
    letters, *extra = py.split(" ") if py else [""]
    out = []
    for k in letters:
        base = name[7:] if k == "l" and name.startswith("linalg_") else name[8:] if k == "s" and name.startswith("special_") else name
        out += [SPACES[k] + n for n in [base] + extra if k in SPACES]
    return out


def status(eager, vjp, decomp, lower, flags):
    comp = flags & FLAGS["COMP"]
    e = "decomposition" if comp else "view" if eager == "view" else "yes" if eager != "none" else "no"
    d = "not differentiable" if flags & FLAGS["NODIFF"] else "through its parts" if comp and vjp == "none" else \
        "yes" if vjp not in ("none",) else "no"
    c = "yes" if decomp != "none" else ""
    l = lower if lower != "none" else ""
    return e, d, c, l


def exceptions():
    space = {}
    with open(os.path.join(ROOT, "tests", "oracle", "exceptions.py")) as f:
        exec(f.read(), space)
    return space["EXCEPTIONS"]


# Names of PyTorch's operator database without a counterpart here: why, and a pattern. The first that matches counts.
MISSING = [
    ("complex numbers, which Taper has not, and the Fourier transforms built on them",
     r"c(double|float|half)|complex|fft\.|imag|i?stft|polar|view_as_(complex|real)|linalg\.eig(vals)?$"),
    ("sparse tensors, which are not rows of the table ([sparse tensors](coming-from-pytorch.md))", r"sparse\.|to_sparse"),
    ("make CUDA kernels from text", r"jiterator"),
    ("float8, which Taper has not", r"torch\._scaled_mm"),
    ("internals of PyTorch's attention on CUDA", r"torch\.ops\.aten\._(efficient|flash)_attention"),
    ("names PyTorch's own decompositions use between themselves; programs call the public operator, which Taper has",
     r"(?!_upsample)_|torch\.ops\.aten\._|max_pool2d_with_indices_backward"),
    ("returns uint64, which Taper has not", r"hash_tensor"),
    ("not written yet", ""),
]


def why_missing(names):
    groups = [(reason, []) for reason, _ in MISSING]
    for n in names:
        next(g for g, (_, pattern) in zip(groups, MISSING) if re.match(pattern, n))[1].append(n)
    return [g for g in groups if g[1]]


def ops_md():
    rows = sorted(C._schemas())
    core = [r for r in rows if r[6] == "none" and not r[3] & FLAGS["COMP"]]
    out = ["# Operators", "",
           "Generated from `src/ops/*.def` by `tools/gendocs.py` (`make docs`); do not edit.", "",
           f"{len(rows)} rows under {len({r[0].split('.')[0] for r in rows})} names, "
           f"{sum(1 for r in rows if r[3] & FLAGS['INP'])} of them with an in-place twin. "
           f"Core set (rows without a decomposition): {len(core)}. Lowered to fused loops: {sum(r[7] != 'none' for r in rows)}.", "",
           "Columns: *eager* the kernel that runs it; *derivative*; *decomposition* into simpler rows; *lowering* to loops "
           "(empty: the compiler calls the eager kernel).", "",
           "## The core set", "",
           "What graphs consist of after decomposition; every other row is replaced by rows of this set "
           "(`tests/py/test_decompositions.py` holds each decomposition against the row's kernel).", ""]
    views, rest = FLAGS["VIEW"], FLAGS["VIEW"] | FLAGS["RAND"] | FLAGS["MUT"]
    for title, pick in (("Views", lambda r: r[3] & views), ("Lowered to loops, products and convolutions", lambda r: not r[3] & rest and r[7] != "none"),
                        ("Random", lambda r: r[3] & FLAGS["RAND"]), ("Writing (functionalisation removes them)", lambda r: r[3] & FLAGS["MUT"] and not r[3] & FLAGS["RAND"]),
                        ("Called", lambda r: not r[3] & rest and r[7] == "none")):
        out += [f"{title}: " + ", ".join(f"`{r[0]}`" for r in core if pick(r)) + ".", ""]
    res, missing = {}, []
    path = os.path.join(ROOT, "docs", "opinfo.json")
    if os.path.exists(path):
        with open(path) as f:
            d = json.load(f)
        res, missing = d["results"], d["missing"]
        sums = [sum(v[k] for v in res.values()) for k in range(6)]
        p, q, gp, gq, ep, eq = sums
        out += ["## Agreement with PyTorch on its own samples", "",
                f"PyTorch's operator database, in the dtypes both have ({d['limit']}): {p} of {p + q} samples agree in value, dtype, "
                f"shape and strides ({100 * p / max(1, p + q):.2f} %); gradients (float64) {gp} of {gp + gq}; wrong inputs refused with "
                f"the same class of exception {ep} of {ep + eq}. The exceptions, from `tests/oracle/exceptions.py`:", "",
                "| operator | what | samples | reason |", "| --- | --- | --- | --- |"]
        for (op, pattern, reason), n in zip(exceptions(), d["explained"]):
            what = "gradient" if pattern.startswith("grad") else "wrong input" if pattern.startswith("error") else "values"
            v = res.get(op, [0] * 6)
            k = {"values": 0, "gradient": 2, "wrong input": 4}[what]
            out.append(f"| `{op}` | {what} | {n} of {v[k] + v[k + 1]} | {reason} |")
        out.append("")
        out += ["Names of the database that Taper does not have:", "", "| why | names |", "| --- | --- |"]
        for reason, names in why_missing(missing):
            out.append(f"| {reason} | {', '.join(f'`{m}`' for m in names)} |")
        out.append("")
    counts = {}
    for k, v in res.items():
        key = re.sub(r"^(nn\.functional|linalg|special)\.", "", k.split(" ")[0])
        for part in (key, key.split(".")[0]):
            if part not in counts:
                counts[part] = [0, 0]
        counts[key.split(".")[0]][0] += v[0]
        counts[key.split(".")[0]][1] += v[0] + v[1]
    out += ["## Table", "", "| row | schema | Python | eager | derivative | decomposition | lowering | samples |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for full, schema, py, flags, eager, vjp, decomp, lower in rows:
        name = full.split(".")[0]
        n = counts.get(re.sub(r"^(linalg_|special_)", "", name).rstrip("_"))
        e, d, c, l = status(eager, vjp, decomp, lower, flags)
        names = ", ".join(f"`{s}`" for s in spellings(name, py)) if not flags & FLAGS["HIDE"] else ""
        out.append(f"| `{full}` | `{schema.split('(', 1)[1].join(['(', ''])}` | {names} | {e} | {d} | {c} | {l} | "
                   f"{f'{n[0]}/{n[1]}' if n and n[1] else ''} |")
    return "\n".join(out) + "\n"


# --- stubs ---
TYPES = {"Tensor": "Tensor", "Scalar": "Number", "int": "_int", "SymInt": "_int", "float": "_float", "bool": "_bool", "str": "_str",
         "ScalarType": "_dtype", "Layout": "_layout", "Device": "Union[_device, _str]", "MemoryFormat": "memory_format",
         "Generator": "Generator"}


def py_type(t, number_ok=False):
    t = re.sub(r"\([^)]*\)", "", t)
    opt = t.endswith("?")
    t = t.rstrip("?")
    m = re.match(r"(\w+)(\?)?\[(\d*)\]$", t)
    if m:
        inner = TYPES.get(m[1], "Any")
        r = f"Sequence[{'Optional[' + inner + ']' if m[2] else inner}]"
        if m[3]:
            r = f"Union[{inner}, {r}]"
    else:
        r = TYPES.get(t, "Any")
        if number_ok and r == "Tensor":
            r = "Union[Tensor, Number]"
    return f"Optional[{r}]" if opt else r


def spread_of(schema):
    """The list that may be given as separate integers (zeros(2, 3), x.view(-1)): the only positional argument beside self."""
    rest = FunctionSchema(schema).arguments
    rest = rest[1:] if rest and rest[0].name == "self" else rest
    pos = [a for a in rest if not a.kwarg_only]
    return pos[0].name if len(pos) == 1 and re.match(r"(int|SymInt)\[\]$", pos[0].type) else None


def signatures(name, schema, flags, method):
    spread = spread_of(schema)
    return [signature(name, schema, flags, method)] + ([signature(name, schema, flags, method, spread)] if spread else [])


def signature(name, schema, flags, method, spread=None):
    s = FunctionSchema(schema)
    parts, star = ["self"] if method else [], False
    first = True
    for i, a in enumerate(s.arguments):
        if method and i == 0:
            continue
        if a.kwarg_only and not star:
            parts.append("*")
            star = True
        n = "input" if a.name == "self" else a.name
        n = n + "_" if n in KEYWORDS else n
        if a.name == spread:
            parts.append(f"*{n}: _int")
            star = True
            continue
        t = py_type(a.type, flags & (1 << 6) and not first)
        parts.append(f"{n}: {t}" + (" = ..." if a.has_default_value() else ""))
        first = False
    if flags & FLAGS["OUT"] and not method:
        parts += ([] if star else ["*"]) + ["out: Any = ..."]
        star = True
    if any(a.name == "pin_memory" for a in s.arguments):
        parts.append("requires_grad: _bool = ...")
    rets = [py_type(re.sub(r" \w+$", "", r)) if not re.match(r"Tensor(\([^)]*\))?\[\]", r) else "Tuple[Tensor, ...]" for r in s.returns]
    r = "None" if not rets or rets == ["Any"] and s.returns == [""] else rets[0] if len(rets) == 1 else f"Tuple[{', '.join(rets)}]"
    return f"def {name}({', '.join(parts)}) -> {r}: ..."


def declare(name, sigs, indent):
    pad = " " * indent
    if len(sigs) == 1:
        return [pad + sigs[0]]
    return [line for s in sigs for line in (pad + "@overload", pad + s)]


def collect_names():
    """{space letter: {python name: [signature]}}"""
    out = {k: {} for k in SPACES}
    for full, schema, py, flags, *_ in C._schemas():
        if flags & FLAGS["HIDE"]:
            continue
        base = full.split(".")[0]
        letters, *extra = py.split(" ") if py else [""]
        for k in letters:
            if k not in out:
                continue
            n = base[7:] if k == "l" and base.startswith("linalg_") else base[8:] if k == "s" and base.startswith("special_") else base
            for nm in [n] + extra:
                if not (flags & FLAGS["INPONLY"] and k == "m"):
                    out[k].setdefault(nm, [])
                    out[k][nm] += [s for s in signatures(nm, schema, flags, k == "m") if s not in out[k][nm]]
                if flags & FLAGS["INP"] and k in "mf":
                    out[k].setdefault(nm + "_", [])
                    out[k][nm + "_"] += [s for s in signatures(nm + "_", schema, flags & ~FLAGS["OUT"], k == "m") if s not in out[k][nm + "_"]]
    return out


HEAD = '''# Generated from the op table by tools/gendocs.py; do not edit.
from builtins import bool as _bool, float as _float, int as _int, str as _str
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union, overload

Number = Union[_int, _float, _bool]
'''
OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()


def c_pyi(names):
    out = [HEAD, "class dtype:", "    is_floating_point: _bool", "    is_signed: _bool", "    is_complex: _bool", "    itemsize: _int",
           "class device:", "    type: _str", "    index: Optional[_int]",
           "    def __init__(self, type: Union[_str, device], index: _int = ...) -> None: ...", "class layout: ...",
           "class memory_format: ...", "class Size(Tuple[_int, ...]):", "    def numel(self) -> _int: ...", "class Generator:",
           "    device: device", "    def manual_seed(self, seed: _int) -> Generator: ...", "    def initial_seed(self) -> _int: ...",
           "    def seed(self) -> _int: ...", "    def get_state(self) -> Tensor: ...", "    def set_state(self, state: Tensor) -> Generator: ...",
           "class UntypedStorage:", "    device: device", "    def nbytes(self) -> _int: ...", "    def data_ptr(self) -> _int: ...",
           "    def clone(self) -> UntypedStorage: ...", "class SymInt: ...",
           "_dtype = dtype  # attributes of a tensor hide these names in its class", "_device = device", "_layout = layout", ""]
    for d in sorted(n for n in dir(C) if isinstance(getattr(C, n), C.dtype)):
        out.append(f"{d}: dtype")
    for n in sorted(n for n in dir(C) if isinstance(getattr(C, n), (C.memory_format, C.layout))):
        out.append(f"{n}: {type(getattr(C, n)).__name__}")
    out += ["default_generator: Generator", "", "class Tensor:"]
    for attr, t in (("shape", "Size"), ("dtype", "_dtype"), ("device", "_device"), ("ndim", "_int"), ("layout", "_layout"),
                    ("requires_grad", "_bool"), ("grad", "Optional[Tensor]"), ("grad_fn", "Any"), ("is_leaf", "_bool"),
                    ("data", "Tensor"), ("T", "Tensor"), ("mT", "Tensor"), ("H", "Tensor"), ("mH", "Tensor"), ("itemsize", "_int"),
                    ("nbytes", "_int"), ("is_cpu", "_bool"), ("is_meta", "_bool"), ("is_cuda", "_bool")):
        out.append(f"    {attr}: {t}")
    out.append("    def __init__(self, *args: Any, device: Any = ...) -> None: ...")
    for o in OPERATORS:
        for pre in ("", "r", "i"):
            if o == "matmul" and pre == "i":
                continue
            out.append(f"    def __{pre}{o}__(self, other: Any) -> Tensor: ...")
    for o in ("neg", "pos", "abs", "invert"):
        out.append(f"    def __{o}__(self) -> Tensor: ...")
    for o in ("lt", "le", "gt", "ge"):
        out.append(f"    def __{o}__(self, other: Any) -> Tensor: ...")
    out += ["    def __eq__(self, other: Any) -> Tensor: ...  # type: ignore[override]",
            "    def __ne__(self, other: Any) -> Tensor: ...  # type: ignore[override]", "    def __hash__(self) -> _int: ...",
            "    def __getitem__(self, index: Any) -> Tensor: ...", "    def __setitem__(self, index: Any, value: Any) -> None: ...",
            "    def __iter__(self) -> Iterator[Tensor]: ...", "    def __len__(self) -> _int: ...", "    def __bool__(self) -> _bool: ...",
            "    def __int__(self) -> _int: ...", "    def __float__(self) -> _float: ...", "    def __index__(self) -> _int: ...",
            "    def __contains__(self, item: Any) -> _bool: ..."]
    hand = {"size": "def size(self, dim: Optional[_int] = ...) -> Any: ...", "stride": "def stride(self, dim: Optional[_int] = ...) -> Any: ...",
            "item": "def item(self) -> Number: ...", "tolist": "def tolist(self) -> Any: ...", "numel": "def numel(self) -> _int: ...",
            "dim": "def dim(self) -> _int: ...", "to": "def to(self, *args: Any, **kwargs: Any) -> Tensor: ...",
            "data_ptr": "def data_ptr(self) -> _int: ...", "numpy": "def numpy(self, *, force: _bool = ...) -> Any: ...",
            "backward": "def backward(self, gradient: Optional[Tensor] = ..., retain_graph: Optional[_bool] = ..., "
                        "create_graph: _bool = ..., inputs: Any = ...) -> None: ...",
            "is_contiguous": "def is_contiguous(self, memory_format: memory_format = ...) -> _bool: ...",
            "is_floating_point": "def is_floating_point(self) -> _bool: ...", "element_size": "def element_size(self) -> _int: ...",
            "storage_offset": "def storage_offset(self) -> _int: ...", "untyped_storage": "def untyped_storage(self) -> UntypedStorage: ..."}
    for n in sorted(set(dir(C.Tensor)) | set(names["m"])):
        if n.startswith("__") or not n.isidentifier() or not callable(getattr(C.Tensor, n, None)):
            continue
        if n in hand:
            out.append("    " + hand[n])
        elif n in names["m"] and type(C.Tensor.__dict__.get(n)).__name__ == "builtin_method":
            out += declare(n, names["m"][n], 4)
        else:
            out.append(f"    def {n}(self, *args: Any, **kwargs: Any) -> Any: ...")
    out.append("")
    for n in sorted(x for x in dir(C) if callable(getattr(C, x)) and not isinstance(getattr(C, x), type)):
        ret = "Tensor" if n in ("tensor", "as_tensor", "asarray", "from_numpy", "frombuffer", "from_dlpack") else "Any"
        out.append(f"def {n}(*args: Any, **kwargs: Any) -> {ret}: ...")
    return "\n".join(out) + "\n"


COMPILE = ("*, fullgraph: _bool = ..., dynamic: Optional[_bool] = ..., backend: Any = ..., mode: Optional[_str] = ..., "
           "options: Optional[Dict[_str, Any]] = ..., disable: _bool = ...")


def init_pyi(names):
    out = [HEAD, "from ._C import *", "from ._C import (Generator as Generator, Size as Size, Tensor as Tensor, UntypedStorage as UntypedStorage, device as device, dtype as dtype, "
           "layout as layout, memory_format as memory_format)",
           "from ._C import _device, _dtype, _layout",
           "from ._settings import *", "from ._checks import *", "from .functional import *",
           "from ._tensor import (" + ", ".join(f"{n} as {n}" for n in ("BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor",
                                                                      "HalfTensor", "IntTensor", "LongTensor", "ShortTensor")) + ")",
           "from .autograd import enable_grad as enable_grad, inference_mode as inference_mode, no_grad as no_grad, set_grad_enabled as set_grad_enabled",
           "from .amp import autocast as autocast, get_autocast_dtype as get_autocast_dtype, is_autocast_enabled as is_autocast_enabled",
           "from . import " + ", ".join(sorted(f"{n} as {n}" for n in taper._SUBMODULES if n != "export"
                                               if os.path.exists(os.path.join(ROOT, "python/taper", n + ".py"))
                                               or os.path.exists(os.path.join(ROOT, "python/taper", n, "__init__.py")))),
           "", "__version__: _str", '_F = TypeVar("_F", bound=Callable[..., Any])', "@overload", f"def compile(model: _F, {COMPILE}) -> _F: ...",
           "@overload", f"def compile(model: None = ..., {COMPILE}) -> Callable[[_F], _F]: ...",
           "class _Export:  # the module taper.export, which can be called",
           "    def __call__(self, fn: Any, args: Tuple[Any, ...] = ..., kwargs: Optional[Dict[_str, Any]] = ..., path: Any = ..., dynamic: _bool = ...) -> Any: ...",
           "    def __getattr__(self, name: _str) -> Any: ...",
           "export: _Export", ""]
    py = set(taper.functional.__all__)
    for n, sigs in sorted(names["f"].items()):
        if n.isidentifier() and n not in py:
            out += declare(n, sigs, 0)
        if n == "meshgrid":  # the tensors may also stand alone
            out += ["@overload", "def meshgrid(*tensors: Tensor, indexing: _str = ...) -> Tuple[Tensor, ...]: ..."]
    return "\n".join(out) + "\n"


def main():
    names = collect_names()
    with tempfile.TemporaryDirectory() as tmp:
        calls = calls_md(tmp)
    files = {"docs/ops.md": ops_md(), "tests/calls.md": calls, "python/taper/_C.pyi": c_pyi(names), "python/taper/__init__.pyi": init_pyi(names)}
    stale = []
    for path, text in files.items():
        full = os.path.join(ROOT, path)
        old = open(full, encoding="utf-8").read() if os.path.exists(full) else None
        if old != text:
            stale.append(path)
            if "--check" not in sys.argv:
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as f:
                    f.write(text)
    print(("stale: " if "--check" in sys.argv else "wrote: ") + ", ".join(stale) if stale else "all generated files are current")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
