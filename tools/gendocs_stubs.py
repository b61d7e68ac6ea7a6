#!/usr/bin/env python3
"""Writes type stubs of the modules that are written in Python (python/taper/nn/__init__.pyi, ...): what their signatures and the tables below know.

  tools/gendocs_stubs.py [--check]"""
import importlib
import inspect
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))
import taper  # noqa: E402

MODULES = ["taper.nn", "taper.nn.functional", "taper.nn.init", "taper.nn.utils", "taper.nn.utils.rnn", "taper.nn.parameter", "taper.optim", "taper.optim.lr_scheduler",
           "taper.autograd", "taper.amp", "taper.compiler", "taper.export", "taper.profiler", "taper.profiler.profiler", "taper.utils.data", "taper.utils.benchmark", "taper.utils.tensorboard", "taper.safetensors",
           "taper.serialization", "taper.func", "taper._settings", "taper._checks", "taper.functional", "taper.storage"]
SUBMODULES = {"taper.nn": ["functional", "init", "utils", "parameter"], "taper.nn.utils": ["rnn"], "taper.optim": ["lr_scheduler"]}
# What a function of a module returns where nothing else is known of it.
RESULT = {"taper.nn.functional": "Tensor", "taper.nn.init": "Tensor", "taper.functional": "Any"}
RETURNS = {
    "parameters": "Iterator[Parameter]", "named_parameters": "Iterator[Tuple[str, Parameter]]", "buffers": "Iterator[Tensor]", "named_buffers": "Iterator[Tuple[str, Tensor]]",
    "children": "Iterator[Module]", "modules": "Iterator[Module]", "named_children": "Iterator[Tuple[str, Module]]", "named_modules": "Iterator[Tuple[str, Module]]",
    "state_dict": "Dict[str, Any]", "zero_grad": "None", "manual_seed": "Generator", "clip_grad_norm_": "Tensor", "get_num_threads": "int", "set_num_threads": "None",
    "save": "None", "save_file": "None", "load_file": "Dict[str, Tensor]", "is_tensor": "bool", "get_last_lr": "List[float]", "get_default_dtype": "dtype",
    "key_averages": "EventList", "table": "str", "export_chrome_trace": "None", "survey": "Any", "backward": "None", "__len__": "int", "__repr__": "str", "__str__": "str"}
SELF = {"train", "eval", "to", "cpu", "cuda", "float", "double", "half", "bfloat16", "type", "requires_grad_", "apply", "to_empty", "share_memory", "__enter__"}
# These give something else than one tensor.
NOT_TENSORS = {"multi_head_attention_forward", "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool1d_with_indices",
               "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d_with_indices", "fractional_max_pool2d_with_indices", "fractional_max_pool3d_with_indices",
               "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "handle_torch_function", "calculate_gain", "boolean_dispatch"}
HEAD = '''# Generated from the signatures by tools/gendocs_stubs.py; do not edit.
# mypy: disable-error-code="override,type-arg,misc"
# pyright: reportIncompatibleMethodOverride=false, reportMissingTypeArgument=false
from typing import Any, Callable, Dict, Generic, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union

from typing_extensions import Self
from {up}_C import Generator, Size, Tensor, UntypedStorage, device, dtype

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])
'''


def parameters(f, skip_self):
    """"self, a: Any, b: bool = ...": the parameters of a function as a stub has them."""
    try:
        ps = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return ("self, " if skip_self else "") + "*args: Any, **kwargs: Any"
    out, star = [], False
    for i, p in enumerate(ps):
        if skip_self and i == 0:
            out.append(p.name)
            continue
        kind = "bool" if isinstance(p.default, bool) else "Tensor" if p.name == "input" and p.default is p.empty else "Any"
        end = " = ..." if p.default is not p.empty else ""
        if p.kind is p.VAR_POSITIONAL:
            star = True
            out.append(f"*{p.name}: Any")
        elif p.kind is p.VAR_KEYWORD:
            out.append(f"**{p.name}: Any")
        else:
            if p.kind is p.KEYWORD_ONLY and not star:
                out.append("*")
                star = True
            out.append(f"{p.name}: {kind}{end}")
    return ", ".join(out)


def returns(name, owner, default):
    if name in ("__init__", "__setattr__", "__delattr__", "__setitem__"):
        return "None"
    if owner and name in SELF:
        return "Self"
    if name in RETURNS and (owner or name not in ("zero_grad",)):
        return RETURNS[name]
    return default if name not in NOT_TENSORS else "Any"


def method(name, f, cls):
    lines, raw = [], inspect.getattr_static(cls, name)
    if isinstance(raw, property):
        return ["    @property", f"    def {name}(self) -> Any: ..."]
    if isinstance(raw, staticmethod):
        return ["    @staticmethod", f"    def {name}({parameters(f, False)}) -> Any: ..."]
    if isinstance(raw, classmethod):
        return ["    @classmethod", f"    def {name}(cls, *args: Any, **kwargs: Any) -> Any: ..."]
    default = "Tensor" if name == "forward" and cls.__name__ not in ("LSTM", "GRU", "RNN", "LSTMCell", "MultiheadAttention", "AdaptiveLogSoftmaxWithLoss", "Module", "ParameterDict",
                                                                    "ParameterList", "ModuleList", "ModuleDict") and not cls.__name__.startswith("MaxPool") else "Any"
    lines.append(f"    def {name}({parameters(f, True)}) -> {returns(name, cls, default)}: ...")
    return lines


def bases_of(cls, known):
    """Names of the nearest bases that the stub has, and the classes between, whose members count as cls's own."""
    names, between = [], []
    for b in cls.__bases__:
        if (b.__name__ in known or b is taper.Tensor) and b.__name__ != cls.__name__:
            names.append(b.__name__)
        elif str(b.__module__).startswith("taper"):
            more, inner = bases_of(b, known)
            names += more
            between += [b] + inner
    return list(dict.fromkeys(names)), between


def class_stub(cls, known):
    bases, between = bases_of(cls, known)
    members = {}
    for c in [*reversed(between), cls]:
        members.update(vars(c))
    generic = any(getattr(b, "__origin__", None) is not None and getattr(b, "__module__", "") == "typing" for b in getattr(cls, "__orig_bases__", ()))
    if generic:
        bases.append("Generic[_T]")
    if issubclass(cls, Exception) and not bases:
        bases = ["Exception"]
    out = [f"class {cls.__name__}({', '.join(bases)}):" if bases else f"class {cls.__name__}:"]
    for name, raw in sorted(members.items()):
        if name.startswith("_") and name not in ("__init__", "__call__", "__enter__", "__exit__", "__len__", "__iter__", "__getitem__", "__setitem__", "__getattr__", "__next__",
                                                 "__new__", "__contains__", "__add__", "__repr__", "__str__"):
            continue
        if name in ("__repr__", "__str__"):
            continue
        f = getattr(cls, name, None)
        if not name.isidentifier():
            continue
        if name == "__new__":
            out.append("    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...")
        elif callable(f) or isinstance(raw, property):
            if inspect.isclass(f):
                out.append(f"    {name}: Any")
            else:
                out += method(name, f, cls)
        else:
            out.append(f"    {name}: Any")
    if cls.__name__ == "Module" and cls.__module__.startswith("taper.nn"):
        out.append("    training: bool")
        out = [x for x in out if x.strip() not in ("training: Any",)]
        out = [x if "def forward" not in x else "    forward: Callable[..., Any]" for x in out]
    if len(out) == 1:
        out.append("    ...")
    return out


def page(name):
    m = importlib.import_module(name)
    is_package = hasattr(m, "__path__")
    up = "." * (name.count(".") + (1 if is_package else 0))
    own = [n for n in dir(m) if str(getattr(getattr(m, n), "__module__", "")).startswith("taper")]
    exported = sorted(n for n in set(getattr(m, "__all__", None) or dir(m)) | set(own) if not n.startswith("_"))
    classes = {n: getattr(m, n) for n in exported if inspect.isclass(getattr(m, n, None)) and str(getattr(m, n).__module__).startswith("taper")}
    known = {c.__name__ for c in classes.values()} | {"Module"}
    out = [HEAD.format(up=up or ".")]
    if name != "taper.nn.parameter" and "Parameter" not in classes:
        out.append(f"from {up}nn.parameter import Parameter")
    if "Module" not in classes and name != "taper.nn.parameter":
        out.append(f"from {up}nn import Module")
    if "Optimizer" not in classes and name == "taper.optim.lr_scheduler":
        out.append("from . import Optimizer")
    if "EventList" not in classes:
        out.append("from .profiler import EventList as EventList" if name == "taper.profiler" else "EventList = Any")
    for sub in SUBMODULES.get(name, []):
        out.append(f"from . import {sub} as {sub}")
    out.append("")
    skip = {"Generator", "Size", "Tensor", "UntypedStorage", "device", "dtype", "Self", "Any", "Callable", "Dict", "Generic", "Iterator", "List", "Optional", "Sequence", "Tuple",
            "TypeVar", "Union"}
    for n in sorted(classes):
        cls = classes[n]
        if n in skip or not n.isidentifier():
            continue
        if cls.__name__ != n:
            out.append(f"{n} = {cls.__name__}" if cls.__name__ in classes else f"{n}: Any")
        else:
            out += class_stub(cls, known)
    for n in sorted(exported):
        if n in classes or n in skip or n in SUBMODULES.get(name, []) or not n.isidentifier():
            continue
        v = getattr(m, n, None)
        if inspect.ismodule(v):
            continue
        if callable(v):
            if n == "compile" and name == "taper.compiler":
                out.append("from .. import compile as compile")
            else:
                out.append(f"def {n}({parameters(v, False)}) -> {returns(n, None, RESULT.get(name, 'Any'))}: ...")
        else:
            kind = type(v).__name__
            out.append(f"{n}: {kind if kind in ('int', 'float', 'str', 'bool') else 'Any'}")
    path = os.path.join(ROOT, "python", *name.split("."))
    return (os.path.join(path, "__init__.pyi") if is_package else path + ".pyi"), "\n".join(out) + "\n"


def main():
    stale = []
    for name in MODULES:
        path, text = page(name)
        old = open(path, encoding="utf-8").read() if os.path.exists(path) else None
        if old != text:
            stale.append(os.path.relpath(path, ROOT))
            if "--check" not in sys.argv:
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
    print(("stale: " if "--check" in sys.argv else "wrote: ") + ", ".join(stale) if stale else "all stubs are current")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
