"""aot_module_simplified and what goes with it."""
from .._dynamo.backends.common import AotAutograd


def make_boxed_func(f):
    """f(*args) as a function of one list."""
    def g(args):
        return f(*args)
    g._boxed_call = True
    return g


def make_boxed_compiler(compiler):
    def f(gm, example_inputs):
        out = compiler(gm, example_inputs)
        return out if getattr(out, "_boxed_call", False) else make_boxed_func(out)
    return f


def aot_module_simplified(mod, args, fw_compiler, bw_compiler=None, partition_fn=None, decompositions=None,
                          keep_inference_input_mutations=False, inference_compiler=None, **kwargs):
    """Compile a captured graph module's forward and backward with the given compilers."""
    return AotAutograd(fw_compiler=fw_compiler, bw_compiler=bw_compiler, partition_fn=partition_fn,
                       decompositions=decompositions, inference_compiler=inference_compiler)(mod, args)
