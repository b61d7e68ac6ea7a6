"""The backend: graphs of PyTorch's, forward and backward, through Taper's compiler."""
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
from taper.compiler._options import resolve
from ._import import Unsupported, has_row, import_graph

_C._bridge_init(torch.Tensor, lambda t: taper.from_dlpack(t.detach()), torch.from_dlpack,
                lambda t, size, stride, offset: t.detach().as_strided(size, stride, t.storage_offset() + offset))
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


class _Program:
    """A graph of PyTorch's that Taper compiled: called with PyTorch's tensors in a list, which it empties."""

    def __init__(self, gm, examples, name, options):
        self._boxed_call = True
        self.gm, self.name, self.options = gm, name, options
        self.variants = {}  # values of the symbols -> program; () where there are none
        self.symbolic = None
        places = [i for i, e in enumerate(examples) if isinstance(e, (torch.SymInt, int)) and not isinstance(e, bool)]
        self.symbols = places
        if not places:
            self.symbolic = self._compile(None)
            return
        try:
            self.symbolic = self._compile(None)
        except Unsupported:
            self.symbolic = None  # each set of sizes gets a program of its own

    def _compile(self, values):
        graph, refused, keep = import_graph(self.gm, self.name, values)
        for node, operator, reason, line in refused:
            if _strict():
                raise RuntimeError(f"{operator} ({node}) has no counterpart in Taper: {reason}" + (f"\n  {line}" if line else "")
                                   + "\n  TAPER_STRICT=1 makes this an error; without it the call runs in PyTorch")
            _note(self.name, node, operator, reason, line)
        return _C._bridge_program(graph, "inductor", keep, self.options)

    def __call__(self, args):
        out = self.symbolic(args) if self.symbolic is not None else None
        if out is None:  # a program for these sizes alone
            key = tuple(args[i] for i in self.symbols)
            run = self.variants.get(key)
            if run is None:
                run = self.variants[key] = self._compile(key)
            out = run(args)
        args.clear()
        return out


def _compiler(options):
    def compile_graph(gm, examples):
        global _counter
        with _lock:
            name, _counter = f"torch_graph_{_counter}", _counter + 1
        try:
            return _Program(gm, examples, name, options)
        except Unsupported as e:
            if _strict():
                raise
            _note(name, "", "the whole graph", str(e), "")
            return torch._dynamo.backends.common.make_boxed_func(gm.forward) if hasattr(
                torch._dynamo.backends.common, "make_boxed_func") else torch._functorch.aot_autograd.make_boxed_func(gm.forward)
    return compile_graph


def _needed_decompositions():
    """Core decompositions of operators that Taper has no row for. Those that Taper has stay whole."""
    table = dict(torch._decomp.core_aten_decompositions())
    table.pop(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default, None)  # its backward would miss the logsumexp
    return {op: fn for op, fn in table.items() if isinstance(op, torch._ops.OpOverload) and not has_row(op)}


_decompositions = None


def compile_fx(gm, example_inputs, *, mode=None, options=None):
    """What the backend does with a graph that Dynamo captured: the autograd stage, then Taper for forward and backward."""
    global _decompositions
    if _decompositions is None:
        _decompositions = _needed_decompositions()
    one = _compiler({"resolved": resolve(mode, options or {})})
    return aot_autograd(fw_compiler=one, bw_compiler=one, inference_compiler=one, decompositions=_decompositions,
                        partition_fn=torch._functorch.partitioners.min_cut_rematerialization_partition)(gm, example_inputs)


def backend(gm, example_inputs, *, mode=None, options=None, **kw):
    """The entry of torch.compile(backend="taper"). mode and options are those of taper.compile."""
    if kw:
        raise TypeError(f"backend 'taper' got an unexpected argument {next(iter(kw))!r}")
    return compile_fx(gm, example_inputs, mode=mode, options=options)
