"""The backend: graphs of PyTorch's, forward and backward, through Taper's compiler."""
import contextlib
import operator
import os
import sys
import threading

import taper
from taper import _C

if sys.modules.get("torch") is taper:
    raise ImportError("taper.torch needs real PyTorch, but `torch` means Taper in this process (taper.torch_alias or python -m taper). "
                      "Run the program with plain python.")
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch.autograd import forward_ad
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from taper.compiler._options import resolve
from . import _attention, _cache
from ._decompose import table
from ._import import DTYPES, Unsupported, import_graph, supported

_C._bridge_init(torch.Tensor, lambda t: taper.from_dlpack(t.detach()), torch.from_dlpack,
                lambda t, size, stride, offset: t.detach().as_strided(size, stride, t.storage_offset() + offset),
                torch.get_num_threads)
_lock = threading.Lock()
_ledger = []  # (graph, node, operator, reason): calls that stay in PyTorch, and graphs that do
_counter = 0


def ledger():
    """What PyTorch runs itself: a list of (graph, node, operator, reason, user's line)."""
    with _lock:
        return list(_ledger)


def reset():
    """Forgets the ledger."""
    with _lock:
        _ledger.clear()


def _strict():
    return os.environ.get("TAPER_STRICT", "0") not in ("", "0")


def _note(graph, node, operator, reason, line):
    with _lock:
        _ledger.append((graph, node, operator, reason, line))
    _C._bridge_log(f"{graph}: {operator} ({node}) runs in PyTorch: {reason}" + (f"  [{line}]" if line else ""))


class NotInTaper(RuntimeError):
    """Under TAPER_STRICT=1: what would have run in PyTorch."""


def _in_pytorch(gm):
    return make_boxed_func(gm.forward)


@contextlib.contextmanager
def _default_dtype():
    """What has no type of its own has the type that PyTorch gives it."""
    before, now = taper.get_default_dtype(), DTYPES[torch.get_default_dtype()]
    if before is not now:
        taper.set_default_dtype(now)
    try:
        yield
    finally:
        if before is not now:
            taper.set_default_dtype(before)


class _Program:
    """A graph of PyTorch's that Taper compiled: called with PyTorch's tensors in a list, which it empties."""
    whole = True  # no part of the graph was cut out

    def __init__(self, gm, examples, name, options):
        self._boxed_call = True
        self.gm, self.name, self.options = gm, name, options
        self.variants = {}  # values of the symbols -> program
        self.symbols = [i for i, e in enumerate(examples) if isinstance(e, (torch.SymInt, int)) and not isinstance(e, bool)]
        try:
            self.symbolic = self._compile(None)
        except Unsupported:
            if not self.symbols:
                raise
            self.symbolic = None  # each set of sizes gets a program of its own

    def _compile(self, values):
        with _default_dtype():
            return self._compiled(values)

    def _compiled(self, values):
        try:
            graph, refused, keep, roots = import_graph(self.gm, self.name, values)
            if refused and _strict():
                node, operator, reason, line = refused[0]
                raise NotInTaper(f"{operator} ({node}) has no counterpart in Taper: {reason}" + (f"\n  {line}" if line else "")
                                 + "\n  TAPER_STRICT=1 makes this an error; without it the call runs in PyTorch")
            run = _C._bridge_program(graph, "inductor", (keep, roots), self.options)
        except (Unsupported, NotInTaper):
            raise
        except Exception as e:  # PyTorch can still run it
            raise Unsupported(f"{type(e).__name__}: {e}") from e
        for row in refused:
            _note(self.name, *row)
        return run

    def _variant(self, key):
        try:
            return self._compile(key)
        except Unsupported as e:
            if _strict():
                raise NotInTaper(f"TAPER_STRICT=1 and {self.name} cannot be Taper's: {e}") from e
            return _split(self.gm, self.name, self.options, str(e))

    def _with_tangents(self, args):
        """Inputs with forward-mode derivatives: PyTorch runs the graph, which computes those of the results; None: there are none."""
        if not any(isinstance(a, torch.Tensor) and forward_ad.unpack_dual(a).tangent is not None for a in args):
            return None
        if _strict():
            raise NotInTaper(f"TAPER_STRICT=1 and inputs of {self.name} have forward-mode derivatives (tangents)")
        _note(self.name, "", "the whole graph", "inputs have forward-mode derivatives", "")
        out = self.gm(*args)
        args.clear()
        return out

    def __call__(self, args):
        if forward_ad._current_level >= 0:
            out = self._with_tangents(args)
            if out is not None:
                return out
        out = self.symbolic(args) if self.symbolic is not None else None
        if out is None:  # a program for these sizes alone
            key = tuple(args[i] for i in self.symbols)
            run = self.variants.get(key)
            if run is None:
                run = self.variants[key] = self._variant(key)
            out = run(list(args))
        args.clear()
        return out


class _Part(torch.nn.Module):
    """A part of a graph as a module, for the rest of the graph, which PyTorch runs."""

    def __init__(self, run, alone):
        super().__init__()
        self.run, self.alone = run, alone

    def forward(self, *args):
        out = self.run(list(args))
        return out[0] if self.alone else tuple(out)


def _split(gm, name, options, why):
    """A graph with values that Taper has no type for: the parts without them are compiled, the rest runs in PyTorch."""
    def supports(self, modules, node):
        return node.op == "call_function" and supported(node)

    support = type("Support", (OperatorSupportBase,), {"is_node_supported": supports})()
    fused = CapabilityBasedPartitioner(gm, support, allows_single_node_partition=False).partition_and_fuse()
    parts = 0
    for node in fused.graph.nodes:
        if node.op != "call_module":
            continue
        sub = getattr(fused, node.target)
        heads = [n for n in sub.graph.nodes if n.op == "placeholder"]
        alone = not isinstance(next(n for n in sub.graph.nodes if n.op == "output").args[0], (list, tuple))
        try:
            run = _Program(sub, [n.meta.get("val") for n in heads], f"{name}_{parts}", options)
        except Unsupported:
            continue
        setattr(fused, node.target, _Part(run, alone))
        parts += 1
    fused.recompile()
    _note(name, "", "the whole graph" if not parts else "a part of the graph", why, "")
    return _in_pytorch(fused)


def _keep_saved():
    """Programs write into no value that is saved for backward: it may run again where retain_graph=True says so."""
    context = torch._guards.TracingContext.try_get()
    if context is not None and getattr(context.fw_metadata, "bw_donated_idxs", None):
        context.fw_metadata.bw_donated_idxs = []


def _compiler(options):
    def compile_graph(gm, examples):
        global _counter
        with _lock:
            name, _counter = f"torch_graph_{_counter}", _counter + 1
        _attention.expand(gm)
        _keep_saved()
        try:
            return _Program(gm, examples, name, options)
        except Unsupported as e:
            if _strict():
                raise NotInTaper(f"TAPER_STRICT=1 and {name} cannot be Taper's: {e}") from e
            return _split(gm, name, options, str(e))
    return compile_graph


_decompositions = None
HALF = (torch.float16, torch.bfloat16)
# Norms whose statistics PyTorch's fakes call half where the real kernels give the type of the weight: (argument that holds it, results).
STATISTICS = {"native_layer_norm": (2, (1, 2)), "native_group_norm": (1, (1, 2)), "native_batch_norm": (1, (1, 2)), "_native_batch_norm_legit": (1, (1, 2)),
              "_native_batch_norm_legit_functional": (1, (1, 2))}


def _true_statistics(gm):
    """Half inputs and a float weight, as under autocast: what is saved of a norm for backward keeps the type, and the digits, it has without a compiler."""
    for node in gm.graph.nodes:
        at, which = STATISTICS.get(getattr(node.target, "_opname", None), (0, ()))
        weight = node.args[at] if which and len(node.args) > at else None
        val = node.meta.get("val")
        if not isinstance(weight, torch.fx.Node) or not isinstance(val, (list, tuple)):
            continue
        dtype = weight.meta["val"].dtype
        true = [v.to(dtype) if i in which and v.dtype in HALF else v for i, v in enumerate(val)]
        node.meta["val"] = type(val)(true)
        same = [(user, true[user.args[1]]) for user in node.users if user.target is operator.getitem and user.args[1] in which]
        for item, v in same:  # grows: what is the same value under another name
            item.meta["val"] = v
            item.meta.pop("tensor_meta", None)
            same += [(user, v) for user in item.users if getattr(user.target, "_opname", None) in ("detach", "alias")]


def _partition(gm, joint_inputs, **kw):
    _true_statistics(gm)
    return torch._functorch.partitioners.min_cut_rematerialization_partition(gm, joint_inputs, **kw)


def compile_fx(gm, example_inputs, *, mode=None, options=None):
    """What the backend does with a graph that Dynamo captured: the autograd stage, then Taper for forward and backward."""
    global _decompositions
    if _decompositions is None:
        _decompositions = table()
    resolved = {"resolved": resolve(mode, options or {})}
    one = _compiler(resolved)
    if _cache.usable():
        compilers, kept = [_cache.compiler(one, resolved) for _ in range(3)], _cache.keyed(resolved)
    else:
        compilers, kept = [one] * 3, contextlib.nullcontext()
    with kept:
        return aot_autograd(fw_compiler=compilers[0], bw_compiler=compilers[1], inference_compiler=compilers[2], decompositions=_decompositions,
                            partition_fn=_partition)(gm, example_inputs)


def compile_saved(gm, examples, options):
    """A graph from AOTAutograd's cache."""
    return _compiler(options)(gm, examples)


def backend(gm, example_inputs, *, mode=None, options=None, **kw):
    """The entry of torch.compile(backend="taper"). mode and options are those of taper.compile."""
    if kw:
        raise TypeError(f"backend 'taper' got an unexpected argument {next(iter(kw))!r}")
    return compile_fx(gm, example_inputs, mode=mode, options=options)
