"""How a joint graph is cut into forward and backward. aot_autograd(partition_fn=) takes one of these, or a function
partition_fn(joint_module, (primals, tangents), num_fwd_outputs=n) that returns the two graph modules: forward takes the
primals and returns the n results and then what it saves, backward takes what was saved and then the tangents, and returns
the gradients. Such a function may edit joint_module and pass it on to one of these."""
from .. import _C


def _cut(joint, num_fwd_outputs, min_cut):
    from .._dynamo.backends.common import _capsule
    from ..fx import GraphModule
    primals = sum(n.op == "placeholder" and not n.name.startswith("tangents") for n in joint.graph.nodes)
    return tuple(GraphModule._from_capture(c, aten=True) for c in _C._aot_partition(_capsule(joint), primals, num_fwd_outputs, min_cut))


def default_partition(joint_module, joint_inputs=None, *, num_fwd_outputs, **options):
    """Save what backward reads, recompute nothing."""
    return _cut(joint_module, num_fwd_outputs, False)


def min_cut_rematerialization_partition(joint_module, joint_inputs=None, *, num_fwd_outputs, **options):
    """Keep the fewest bytes: cheap values are computed again in backward."""
    return _cut(joint_module, num_fwd_outputs, True)
