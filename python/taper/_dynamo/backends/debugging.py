"""Backends that help to find which stage is at fault. They are tagged "debug" and not listed by default."""
from . import register_backend
from .common import _eager, aot_autograd
from ..._functorch.partitioners import default_partition


@register_backend(tags=("debug",))
def eager_noexcept(gm, example_inputs):
    """eager, but an exception inside the graph is the compiler's fault, not the program's."""
    def run(*args):
        try:
            return gm.forward(*args)
        except Exception as e:
            from ..exc import TorchDynamoException
            raise TorchDynamoException("Unexpected exception when running generated GraphModule") from e
    return run


@register_backend(tags=("debug",))
def pre_dispatch_eager(gm, example_inputs):
    """eager under another name: there is no dispatcher in front of the captured graph."""
    return _eager(gm, example_inputs)


aot_eager_default_partitioner = register_backend(aot_autograd(fw_compiler=_eager, partition_fn=default_partition),
                                                 name="aot_eager_default_partitioner", tags=("debug",))
