"""The tape as a graph: its steps, hooks on what it saves."""
from .. import _C

Node = _C._Node


class saved_tensors_hooks:
    """While active, every tensor saved for backward goes through pack_hook, and through unpack_hook when used."""
    _disabled = []

    def __init__(self, pack_hook, unpack_hook):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self):
        if saved_tensors_hooks._disabled:
            raise RuntimeError(saved_tensors_hooks._disabled[-1])
        _C._push_saved_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exc):
        _C._pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):
    def __init__(self, pin_memory=False, device_type="cuda"):
        super().__init__(lambda t: (t.device, t.cpu() if str(t.device) != "cpu" else t),
                         lambda packed: packed[1].to(packed[0]))


class disable_saved_tensors_hooks:
    """Entering saved_tensors_hooks raises RuntimeError(error_message) while active."""

    def __init__(self, error_message):
        self.message = error_message

    def __enter__(self):
        saved_tensors_hooks._disabled.append(self.message)

    def __exit__(self, *exc):
        saved_tensors_hooks._disabled.pop()


class GradientEdge(tuple):
    """(node, output_nr)"""
    __slots__ = ()

    def __new__(cls, node, output_nr):
        return tuple.__new__(cls, (node, output_nr))

    node = property(lambda self: self[0])
    output_nr = property(lambda self: self[1])


def get_gradient_edge(tensor):
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require "
                           "gradients")
    fn = tensor.grad_fn
    if fn is None:
        fn = tensor.view_as(tensor).grad_fn.next_functions[0][0]
    return GradientEdge(fn, tensor.output_nr)


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """fn is called once the gradients of all the tensors (mode "all") or of the first one ("any") are there."""
    tensors = tuple(tensors)
    seen = [None] * len(tensors)
    state = {"count": 0}

    def hook_for(i):
        def hook(grad):
            if mode == "any":
                if state["count"] == 0:
                    fn(grad)
                state["count"] = (state["count"] + 1) % len(tensors)
                return
            seen[i] = grad
            state["count"] += 1
            if state["count"] == len(tensors):
                grads, state["count"] = list(seen), 0
                seen[:] = [None] * len(tensors)
                fn(grads)
        return hook

    handles = [t.register_hook(hook_for(i)) for i, t in enumerate(tensors)]

    class Handles:
        def remove(self):
            for h in handles:
                h.remove()

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            self.remove()
    return Handles()
