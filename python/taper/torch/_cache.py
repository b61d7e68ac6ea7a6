"""AOTAutograd's cache for Taper's programs: a new process gets the graphs behind capture from disk and compiles them from Taper's own cache."""
import contextlib
import os

import taper
import torch
import torch._functorch.config as functorch

try:  # PyTorch 2.13; earlier ones keep only Inductor's programs
    from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
    from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
    from torch._inductor.output_code import OutputCode
    from torch.fx._graph_pickler import GraphPickler, Options
    _THERE = all(hasattr(functorch, n) for n in ("bundled_autograd_cache", "force_non_lazy_backward_lowering")) and hasattr(torch.compiler.config, "cache_key_tag")
except ImportError:
    _THERE, OutputCode = False, object
_FORM = 3  # of entries: raised when what is kept changes
_META = ("val", "stack_trace", "tensor_meta")


def usable():
    """May AOTAutograd's cache be used? TAPER_CACHE=0 and PyTorch's own switches turn it off."""
    return _THERE and os.environ.get("TAPER_CACHE", "1") != "0"


class Code(OutputCode):
    """A program of Taper's as AOTAutograd's cache keeps it: the graph. make(gm, examples, options) compiles it, here or in a later process."""

    def __init__(self, gm, examples, options, make):
        self._boxed_call = True
        self._fx_graph_cache_key, self._fx_graph_cache_debug_lines, self._time_taken_ns = None, None, 0
        self.options, self.saved = options, None
        self.gm = gm
        self.program = make(gm, examples)

    def __call__(self, inputs):
        return self.program(inputs)

    def prepare_for_serialization(self):
        """On a copy, which is pickled then."""
        if not getattr(self.program, "whole", False) or any(isinstance(v, torch.Tensor) for v in vars(self.gm).values()):
            raise BypassAOTAutogradCache("a graph that is not Taper's as a whole, or holds constants")
        if any(n.target is torch.ops.higher_order.with_effects for n in self.gm.graph.nodes):
            raise BypassAOTAutogradCache("calls with effects take tokens, which an entry of the cache does not pass")
        self.saved = GraphPickler.dumps(self.gm, Options(ops_filter=None, node_metadata_key_filter=lambda key: key in _META))
        self.gm = self.program = None

    def post_compile(self, example_inputs, constants, graph_kwargs):
        if self.program is None:
            from ._backend import compile_saved
            from torch._guards import detect_fake_mode
            self.gm = GraphPickler.loads(self.saved, detect_fake_mode(example_inputs))
            self.gm.recompile()
            self.program = compile_saved(self.gm, [n.meta.get("val") for n in self.gm.graph.nodes if n.op == "placeholder"], self.options)

    def set_triton_bundle(self, triton_bundle):
        pass


def compiler(make, options):
    """make(gm, examples) as a compiler whose programs are kept."""
    return SerializableAOTDispatchCompiler(Code, lambda gm, examples: Code(gm, examples, options, make))


@contextlib.contextmanager
def keyed(options):
    """While AOTAutograd runs: its entries are kept whole, backward with them, under a key that is Taper's alone."""
    tag = f"{torch.compiler.config.cache_key_tag} taper {taper.__version__} form {_FORM} {sorted(options.items()) if isinstance(options, dict) else options!r}"
    with functorch.patch(bundled_autograd_cache=True, force_non_lazy_backward_lowering=True), torch.compiler.config.patch(cache_key_tag=tag):
        yield
